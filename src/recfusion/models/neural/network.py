"""What every network model shares: training in epochs with early stopping, resuming, saving and loading."""

import dataclasses
import logging
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from recfusion.core.arrays import Csr, FloatArray
from recfusion.core.memory import require_memory
from recfusion.core.rng import RngLike, make_rng
from recfusion.data.signals import Extra, all_grades
from recfusion.data.split import Fold
from recfusion.evaluation.evaluate import evaluate
from recfusion.models.base import Recommender, Shape
from recfusion.models.self_tuning import LEAST_USERS, cannot_choose
from recfusion.models.settings import setting
from recfusion.training.batches import seeded, torch_rng
from recfusion.training.checkpoint import TrainState
from recfusion.training.epoch import Checkpoint, Epoch
from recfusion.training.loop import Phase, fit_epochs

log = logging.getLogger(__name__)
_VALIDATED = "ndcg@100"
_SECONDS_PER_CELL = 1.8e-5  # of a whole training, for each user and item, about: it depends on the net
# Of training: the weight, its gradient and that gradient in the making, two moments of AdamW, the best weight so far.
_BYTES_PER_WEIGHT = 24
_BYTES_BESIDE = 40 << 20  # scores of a batch of validation users, and what the library takes for itself
_LEAST_BATCHES = 10  # in an epoch, however few users there are


@dataclass
class NeuralRecommender(Recommender):
    """A model whose learned numbers are the weights of a network; a subclass says which net and which loss."""

    lr: float = setting(1e-3, "learning rate of AdamW", at_least=0, search=(1e-4, 1e-2), log=True)
    weight_decay: float = setting(0.0, "weight decay of AdamW", at_least=0, search=(0.0, 6.0))
    batch_size: int = setting(
        200, "users in a batch; fewer if an epoch had less than ten batches", at_least=1, search=(50, 1000), log=True
    )
    max_epochs: int = setting(200, "epochs at the most", at_least=1, at_most=100_000)
    patience: int = setting(10, "epochs without a better validation ndcg@100 before training stops", at_least=1)
    device: str = dataclasses.field(default="cpu", compare=False, kw_only=True)  # where to compute: no part of a model
    maps: ClassVar[float] = 2.0  # numbers that a batch holds at once for each of its users and items (measured)
    best_epoch_: int = dataclasses.field(init=False, repr=False, compare=False)
    net_: nn.Module = dataclasses.field(init=False, repr=False, compare=False)

    @abstractmethod
    def make_net(self, n_items: int) -> nn.Module:
        """Return the network that scores, with fresh weights."""

    @abstractmethod
    def loss(self, rows: Csr, trained: nn.Module, rng: torch.Generator) -> Tensor:
        """Return the mean loss of a batch of users; `trained` is what `trainee` returned."""

    @abstractmethod
    def scores(self, history: Csr) -> Tensor:
        """Return what `score` does, as a tensor on whatever device."""

    @torch.no_grad()
    def score(self, history: Csr, *, extra: Extra | None = None) -> FloatArray:
        return self.scores(self.encoded(history, extra)).cpu().numpy()

    def encoded(self, history: Csr, extra: Extra | None) -> Csr:
        """Return the rows that the loss and `scores` get: a model that reads signals puts them into their values."""
        return history

    def training_rows(self, encoded: Csr, extra: Extra | None) -> Csr:
        """Return the rows that training batches are drawn from: the encoded histories."""
        return encoded

    def phases(self, train: Csr, trained: nn.Module, rng: torch.Generator) -> Sequence[Phase]:
        """Return what an epoch consists of: one pass in which all of the net learns by the loss."""
        return [Phase(lambda rows: self.loss(rows, trained, rng))]

    def prepare(self, train: Csr) -> None:
        """Learn what is no weight of the network, before that is made."""

    def trainee(self) -> nn.Module:
        """Return what is trained: the net itself, or a module that holds it beside what only training needs.

        All of it goes into checkpoints, the net alone into the saved model.
        """
        return self.net_

    def undecayed(self) -> Iterable[nn.Parameter]:
        """Return the parameters that weight decay leaves alone: those for which 0 is no natural value."""
        return ()

    def fit(self, train: Csr, valid: Fold | None = None, *, rng: RngLike = None, extra: Extra | None = None) -> Self:
        for _ in self.epochs(train, valid, rng=rng, extra=extra):
            pass
        return self

    def epochs(
        self,
        train: Csr,
        valid: Fold | None = None,
        *,
        rng: RngLike = None,
        checkpoint: Checkpoint | None = None,
        extra: Extra | None = None,
    ) -> Iterator[Epoch]:
        if valid is not None and len(valid.users) < LEAST_USERS and self.max_epochs > 1:
            # They choose all the same: a dozen users find an epoch that is about right, and the last is far too late.
            told = cannot_choose(len(valid.users), "the number of epochs", "validation")
            log.warning(self.named(f"{told}: the choice is made all the same, and owes much to chance."))
        generator = torch_rng(make_rng(rng))
        if extra is not None:
            self.check_grades(all_grades(extra.grades, extra.disliked), "the data")
        known = self.encoded(train, extra)
        self.prepare(known)
        self._require_memory(Shape.of(train))
        self.net_ = seeded(lambda: self.make_net(train.shape[1]), generator).to(self.device)
        trained = self.trainee()
        state = TrainState(
            net=trained,
            optimizer=torch.optim.AdamW(self._groups(trained), lr=self.lr, weight_decay=self.weight_decay, fused=True),
            rng=generator,
        )

        def validated() -> float:
            assert valid is not None
            return evaluate(self, valid, train, (_VALIDATED,), threads=1).mean()[_VALIDATED]

        self.best_epoch_ = 1
        for epoch in fit_epochs(
            state,
            self.phases(known, trained, generator),
            self.training_rows(known, extra),
            None if valid is None else validated,
            batch_size=self.batch_rows(train.shape[0]),
            max_epochs=self.max_epochs,
            patience=self.patience,
            checkpoint=checkpoint,
            rate=self.rate,
        ):
            self.best_epoch_ = epoch.best_epoch
            yield epoch
        trained.zero_grad(set_to_none=True)  # as large as the weights, and of no use any more

    def _groups(self, trained: nn.Module) -> list[dict[str, Any]]:
        """Return the parameters as the optimizer takes them: those with weight decay, and those without."""
        free = list(self.undecayed())
        known = {id(parameter) for parameter in free}
        decayed = [parameter for parameter in trained.parameters() if id(parameter) not in known]
        return [{"params": decayed}, *([{"params": free, "weight_decay": 0.0}] if free else [])]

    def settled(self) -> Self:
        """Return a fresh model that is trained for as many epochs as were best for this one."""
        return dataclasses.replace(self, max_epochs=max(1, self.best_epoch_))

    def needs_validation(self, shape: Shape) -> bool:
        """Return True: the number of epochs is chosen on validation users."""
        return True

    def use_device(self, device: str) -> None:
        self.device = device

    def seconds(self, shape: Shape) -> float:
        return shape.users * shape.items * _SECONDS_PER_CELL

    def fit_bytes(self, shape: Shape) -> int:
        return _BYTES_PER_WEIGHT * self._numbers(shape.items) + self.batch_bytes(shape) + _BYTES_BESIDE

    def batch_bytes(self, shape: Shape) -> int:
        """Return about how many bytes a batch's numbers take on their way through the network and back."""
        return int(4 * self.maps * self.batch_rows(shape.users) * shape.items)

    def rate(self, epoch: int) -> float:
        """Return the learning rate of an epoch, counted from 1."""
        return self.lr

    def batch_rows(self, n_users: int) -> int:
        """Return how many users a batch has: fewer than asked for where an epoch would be but a few steps."""
        largest = (n_users - 1) // (_LEAST_BATCHES - 1)  # of which users / largest, rounded up, are still that many
        return max(1, min(self.batch_size, largest))

    def state(self) -> dict[str, NDArray[Any]]:
        weights = {f"net.{name}": tensor.cpu().numpy() for name, tensor in self.net_.state_dict().items()}
        return super().state() | weights

    def load_state(self, state: Mapping[str, NDArray[Any]], chosen: Mapping[str, Any], n_items: int) -> None:
        super().load_state(state, chosen, n_items)
        weights = {name.removeprefix("net."): array for name, array in state.items() if name.startswith("net.")}
        if not self._fits(weights, n_items):
            raise ValueError("the weights do not fit the network that the settings describe")
        self.net_ = self.make_net(n_items).to(self.device)
        self.net_.load_state_dict({name: torch.from_numpy(array) for name, array in weights.items()})
        self.net_.eval()

    def _sizes(self, n_items: int) -> dict[str, Tensor] | None:
        """Return the network's weights without memory for them; None where torch cannot tell their sizes."""
        try:
            with torch.device("meta"):
                return self.make_net(n_items).state_dict()
        except (RuntimeError, AttributeError):  # a net that looks at its own numbers, or at what `prepare` learns
            return None

    def _numbers(self, n_items: int) -> int:
        """Return how many weights the network has, as far as that can be told before it is made."""
        return sum(weights.numel() for weights in (self._sizes(n_items) or {}).values())

    def _require_memory(self, shape: Shape) -> None:
        """Raise before a network is made that cannot be trained here."""
        what = f"A network of {self._numbers(shape.items):,} weights on {shape.items:,} items"
        advice = (
            "lower batch_size, make the network smaller with --set, raise --min-users-per-item so that fewer items "
            "remain, or train thinning-local."
        )
        require_memory(self.fit_bytes(shape), what, advice)

    def _fits(self, weights: Mapping[str, NDArray[Any]], n_items: int) -> bool:
        """Compare the sizes of a network with its weights before memory is taken for it, where torch can tell them."""
        wanted = self._sizes(n_items)
        return wanted is None or (
            wanted.keys() == weights.keys() and all(of.shape == weights[name].shape for name, of in wanted.items())
        )

    @property
    def n_parameters(self) -> int:
        return sum(parameter.numel() for parameter in self.net_.parameters())
