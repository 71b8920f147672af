"""The base class of network models: training with early stopping, checkpoints, saving and loading."""

import dataclasses
import logging
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from recfusion.core.arrays import Csr, FloatArray
from recfusion.core.memory import require_memory
from recfusion.core.rng import RngLike, make_rng
from recfusion.data.signals import Extra, all_grades
from recfusion.data.split import Fold
from recfusion.evaluation.evaluate import evaluate
from recfusion.evaluation.metrics import MAIN_METRIC
from recfusion.models.abilities import check_rating_values
from recfusion.models.base import Recommender, Shape
from recfusion.models.neural import training_settings as training
from recfusion.models.self_tuning import LEAST_USERS, cannot_choose
from recfusion.models.thinning.parts import part_message
from recfusion.training.batches import seeded, torch_rng
from recfusion.training.checkpoint import TrainState
from recfusion.training.epoch import Checkpoint, Epoch
from recfusion.training.loop import Phase, fit_epochs

log = logging.getLogger(__name__)
_SECONDS_PER_CELL = 1.8e-5  # of a whole training per user and item, roughly: it depends on the network
# In training: the weight, its gradient twice while it is computed, two moments of AdamW, the best weight so far.
_BYTES_PER_WEIGHT = 24
_OTHER_BYTES = 40 << 20  # scores of a batch of validation users, and torch itself
_LEAST_BATCHES = 10  # per epoch, even for few users


@dataclass
class NeuralRecommender(Recommender):
    """A model whose learned parameters are the weights of a network; a subclass defines the network and the loss."""

    lr: float = training.lr(1e-3)
    weight_decay: float = training.weight_decay(0.0)
    batch_size: int = training.batch_size(200)
    max_epochs: int = training.max_epochs(200)
    patience: int = training.patience(10)
    device: str = dataclasses.field(default="cpu", compare=False, kw_only=True)  # not a setting of the model
    needs_validation: ClassVar[bool] = True  # for the number of epochs
    maps: ClassVar[float] = 2.0  # numbers that a batch holds per user and item (measured)
    best_epoch_: int = dataclasses.field(init=False, repr=False, compare=False)
    net_: nn.Module = dataclasses.field(init=False, repr=False, compare=False)

    @abstractmethod
    def make_net(self, n_items: int) -> nn.Module:
        """Return the scoring network with initial weights."""

    @abstractmethod
    def loss(self, rows: Csr, trained: nn.Module, rng: torch.Generator) -> Tensor:
        """Return the mean loss of a batch of users; `trained` is the result of `training_module`."""

    @abstractmethod
    def scores(self, history: Csr) -> Tensor:
        """Return scores (users, items) of encoded histories as a tensor."""

    @torch.no_grad()
    def score(self, history: Csr, *, extra: Extra | None = None) -> FloatArray:
        return self.scores(self.encoded(history, extra)).cpu().numpy()

    def encoded(self, history: Csr, extra: Extra | None) -> Csr:
        """Return the rows for the loss and `scores`; a model that reads signals stores them in the values."""
        return history

    def training_rows(self, encoded: Csr, extra: Extra | None) -> Csr:
        """Return the rows that training batches are drawn from: the encoded histories."""
        return encoded

    def phases(self, train: Csr, trained: nn.Module, rng: torch.Generator) -> Sequence[Phase]:
        """Return the passes of an epoch: one, in which the whole network is trained."""
        return [Phase(lambda rows: self.loss(rows, trained, rng))]

    def prepare(self, train: Csr) -> None:
        """Learn what is not a weight of the network, before the network is made."""

    def training_module(self) -> nn.Module:
        """Return the module to train: the network, or a module that adds what only training needs.

        Checkpoints contain the whole module; the saved model contains the network alone.
        """
        return self.net_

    def undecayed_parameters(self) -> Iterable[nn.Parameter]:
        """Return the parameters without weight decay: those for which 0 is no natural value."""
        return ()

    def before_training(self, train: Csr, valid: Fold | None, extra: Extra | None, rng: np.random.Generator) -> None:
        """Learn what `encoded` needs."""

    def after_training(self, train: Csr, valid: Fold | None) -> None:
        """Choose settings that need the trained network, on the validation users."""

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
            # They are still used: a dozen users find roughly the right epoch, and the last epoch is far too late.
            told = cannot_choose(len(valid.users), "the number of epochs", "validation")
            log.warning(part_message(self, f"{told}: they are used all the same, and the chosen epoch will be noisy."))
        if extra is not None:
            check_rating_values(self, all_grades(extra.grades, extra.disliked), "the data")
        numpy_rng = make_rng(rng)
        self.before_training(train, valid, extra, numpy_rng)
        generator = torch_rng(numpy_rng)
        encoded = self.encoded(train, extra)
        self.prepare(encoded)
        self._require_memory(Shape.of(train))
        self.net_ = seeded(lambda: self.make_net(train.shape[1]), generator).to(self.device)
        trained = self.training_module()
        optimizer = torch.optim.AdamW(
            self._parameter_groups(trained), lr=self.lr, weight_decay=self.weight_decay, fused=True
        )
        self.best_epoch_ = 1
        for epoch in fit_epochs(
            TrainState(trained, optimizer, generator),
            self.phases(encoded, trained, generator),
            self.training_rows(encoded, extra),
            None if valid is None else lambda: self._validation_ndcg(train, valid),
            batch_size=self.batch_rows(train.shape[0]),
            max_epochs=self.max_epochs,
            patience=self.patience,
            min_improvement=self.least_improvement,
            checkpoint=checkpoint,
            learning_rate=self.learning_rate,
        ):
            self.best_epoch_ = epoch.best_epoch
            yield epoch
        trained.zero_grad(set_to_none=True)  # gradients are as large as the weights
        self.after_training(train, valid)

    def _validation_ndcg(self, train: Csr, valid: Fold) -> float:
        return evaluate(self, valid, train, (MAIN_METRIC,), threads=1).mean()[MAIN_METRIC]

    def choose(self, name: str, values: Sequence[float], train: Csr, valid: Fold) -> None:
        """Set a learned field to the value with the best validation NDCG@100; the first one wins a tie."""
        ndcg = []
        for value in values:
            setattr(self, name, value)
            ndcg.append(self._validation_ndcg(train, valid))
        setattr(self, name, values[int(np.argmax(ndcg))])

    def _parameter_groups(self, trained: nn.Module) -> list[dict[str, Any]]:
        """Return the parameters with weight decay, and those without."""
        free = list(self.undecayed_parameters())
        known = {id(parameter) for parameter in free}
        decayed = [parameter for parameter in trained.parameters() if id(parameter) not in known]
        return [{"params": decayed}, *([{"params": free, "weight_decay": 0.0}] if free else [])]

    def settled(self) -> Self:
        """Return an unfitted model with the chosen settings and the best number of epochs."""
        return dataclasses.replace(self, **self.chosen(), max_epochs=max(1, self.best_epoch_))

    def use_device(self, device: str) -> None:
        self.device = device

    def seconds(self, shape: Shape) -> float:
        return shape.users * shape.items * _SECONDS_PER_CELL

    def fit_bytes(self, shape: Shape) -> int:
        return _BYTES_PER_WEIGHT * self._numbers(shape.items) + self.batch_bytes(shape) + _OTHER_BYTES

    def batch_bytes(self, shape: Shape) -> int:
        """Return the approximate bytes of a batch in the forward and backward pass."""
        return int(4 * self.maps * self.batch_rows(shape.users) * shape.items)

    def learning_rate(self, epoch: int) -> float:
        """Return the learning rate of an epoch, counted from 1."""
        return self.lr

    @property
    def least_improvement(self) -> float:
        """The smallest improvement of the validation ndcg@100 that early stopping counts."""
        return 0.0

    def batch_rows(self, n_users: int) -> int:
        """Return the users of a batch: fewer than `batch_size` if an epoch would have too few batches."""
        largest = (n_users - 1) // (_LEAST_BATCHES - 1)  # ceil(users / largest) is still that many batches
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
        """Return the network's weights without allocating them; None if torch cannot know their sizes."""
        try:
            with torch.device("meta"):
                return self.make_net(n_items).state_dict()
        except (RuntimeError, AttributeError):  # the network reads its own weights, or what `prepare` learns
            return None

    def _numbers(self, n_items: int) -> int:
        """Return the number of weights, 0 if it is not known before the network is made."""
        return sum(weights.numel() for weights in (self._sizes(n_items) or {}).values())

    def _require_memory(self, shape: Shape) -> None:
        """Raise if memory does not suffice to train the network."""
        what = f"A network of {self._numbers(shape.items):,} weights on {shape.items:,} items"
        advice = (
            "lower batch_size, make the network smaller with --set, raise --min-users-per-item so that fewer items "
            "remain, or train thinning-local."
        )
        require_memory(self.fit_bytes(shape), what, advice)

    def _fits(self, weights: Mapping[str, NDArray[Any]], n_items: int) -> bool:
        """Return whether saved weights have the network's shapes, before it is allocated; True if they are unknown."""
        sizes = self._sizes(n_items)
        return sizes is None or {n: tuple(w.shape) for n, w in sizes.items()} == {
            n: w.shape for n, w in weights.items()
        }

    @property
    def n_parameters(self) -> int:
        return sum(parameter.numel() for parameter in self.net_.parameters())
