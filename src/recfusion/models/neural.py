"""What every network model shares: training in epochs with early stopping, resuming, saving and loading."""

import dataclasses
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from recfusion.core.arrays import Csr, FloatArray
from recfusion.core.rng import RngLike, make_rng
from recfusion.data.signals import Extra
from recfusion.data.split import Fold
from recfusion.evaluation.evaluate import evaluate
from recfusion.models.base import Recommender, Shape
from recfusion.models.settings import setting
from recfusion.training.batches import seeded, torch_rng
from recfusion.training.checkpoint import TrainState
from recfusion.training.epoch import Checkpoint, Epoch
from recfusion.training.loop import Phase, fit_epochs

_VALIDATED = "ndcg@100"
_SECONDS_PER_CELL = 1.8e-5  # of a whole training, for each user and item, about: it depends on the net
_LEAST_BATCHES = 10  # in an epoch, however few users there are


@dataclass
class NeuralRecommender(Recommender):
    """A model whose learned numbers are the weights of a network; a subclass says which net and which loss."""

    lr: float = setting(1e-3, "learning rate of AdamW", at_least=0, search=(1e-4, 1e-2), log=True)
    weight_decay: float = setting(0.0, "weight decay of AdamW", at_least=0, search=(0.0, 6.0))
    batch_size: int = setting(
        200, "users in a batch; fewer if an epoch had less than ten batches", at_least=1, search=(50, 1000), log=True
    )
    max_epochs: int = setting(200, "epochs at the most", at_least=1)
    patience: int = setting(10, "epochs without a better validation ndcg@100 before training stops", at_least=1)
    device: str = dataclasses.field(default="cpu", compare=False, kw_only=True)  # where to compute: no part of a model
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
        for _ in self._epochs(train, valid, extra, rng, None):
            pass
        return self

    def epochs(
        self, train: Csr, valid: Fold | None = None, *, rng: RngLike = None, checkpoint: Checkpoint | None = None
    ) -> Iterator[Epoch]:
        return self._epochs(train, valid, None, rng, checkpoint)

    def reading_epochs(
        self, train: Csr, valid: Fold | None, extra: Extra, *, rng: RngLike, checkpoint: Checkpoint | None
    ) -> Iterator[Epoch]:
        return self._epochs(train, valid, extra, rng, checkpoint)

    def _epochs(
        self, train: Csr, valid: Fold | None, extra: Extra | None, rng: RngLike, checkpoint: Checkpoint | None
    ) -> Iterator[Epoch]:
        generator = torch_rng(make_rng(rng))
        rows = self.encoded(train, extra)
        self.prepare(rows)
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
            self.phases(rows, trained, generator),
            rows,
            None if valid is None else validated,
            batch_size=self.batch_rows(train.shape[0]),
            max_epochs=self.max_epochs,
            patience=self.patience,
            checkpoint=checkpoint,
            rate=self.rate,
        ):
            self.best_epoch_ = epoch.best_epoch
            yield epoch

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

    def _fits(self, weights: Mapping[str, NDArray[Any]], n_items: int) -> bool:
        """Compare the sizes of a network with its weights before memory is taken for it, where torch can tell them."""
        try:
            with torch.device("meta"):
                wanted = self.make_net(n_items).state_dict()
        except RuntimeError:  # a net that looks at its own numbers while it is made
            return True
        return wanted.keys() == weights.keys() and all(of.shape == weights[name].shape for name, of in wanted.items())

    @property
    def n_parameters(self) -> int:
        return sum(parameter.numel() for parameter in self.net_.parameters())
