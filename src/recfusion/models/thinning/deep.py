"""The deep denoiser of thinned rows: a network trained on the ranking part of the bound, and that bound."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor, nn

from recfusion.core.arrays import Csr, FloatArray, IntArray, column_counts
from recfusion.core.errors import InputError
from recfusion.core.memory import require_memory
from recfusion.models.base import Shape
from recfusion.models.neural import training_settings as training
from recfusion.models.neural.network import NeuralRecommender
from recfusion.models.self_tuning import relative
from recfusion.models.settings import learned, setting
from recfusion.models.thinning.low_rank import SPARE, leading
from recfusion.models.thinning.plan import LARGE
from recfusion.nets.sparse import NEVER, SparseRows
from recfusion.nets.vae import Autoencoder, DenseEncoder, multinomial_nll
from recfusion.training.epoch import Epoch, warmup_cosine

_WARM_UP = 10  # epochs until the learning rate is highest
_GAIN = 3.0  # of the input vectors, which may start longer because similar items start alike
_NOTHING = 1e-6  # features shorter than this count as none
_PER_SECOND = 1.8e10  # multiply-adds of training on one core (measured)
_MORE = 0.3  # share of the epochs that a fit repeats which continues an earlier one


@dataclass
class ThinningDeep(NeuralRecommender):
    """A network that sees the items that survive thinning and predicts the removed ones.

    x_t keeps a share a of a user's ones, with a uniform between `low` and `high`. The loss is the cross-entropy of the
    removed items under a softmax over the entries with x_t = 0: the ranking part of the bound's term at a, without its
    factor 1 / (1 - a), which would let the least noisy rows dominate. A history is x_t at its own noise level, and one
    reverse step ranks. The bound also needs the rate s(x_t, a) (studies/thinning_bound.py).

    Strong weight decay with a learning rate that rises and falls makes so large a net generalise from a few thousand
    users; early stopping hardly matters. The decay pulls towards popularity, not towards equal scores: the output's
    bias starts at `prior` log(count) and does not decay.

    The input and output vectors of items start as random mixtures of the leading directions of the co-occurrences:
    items of the same users start alike, so that fewer epochs are needed than from random vectors.
    """

    n_bags: ClassVar[int] = 1  # sets of input vectors: a history is read as so many bags of items
    lr: float = setting(2e-3, "highest learning rate of AdamW", at_least=0, search=(2e-4, 1e-2), log=True)
    weight_decay: float = training.weight_decay(1.5)
    batch_size: int = training.batch_size(500, (100, 1000))
    max_epochs: int = setting(14, "epochs; the learning rate falls to 0 over them", at_least=1, at_most=100_000)
    patience: int = training.patience(20)
    width: int = training.width(1000, "width of the encoder's layers", (200, 1200))
    layers: int = setting(5, "layers of the encoder", at_least=1, at_most=1000, search=(1, 6))
    latent: int = training.width(300, "length of a user's code", (50, 600))
    low: float = setting(0.4, "smallest share of items that survives in training", at_least=0, search=(0.1, 0.7))
    high: float = setting(0.9, "largest share of items that survives in training", at_least=0, search=(0.7, 1.0))
    input_power: float = setting(0.25, "items are weighted by their count to minus this power", search=(0.0, 0.5))
    prior: float = setting(1.0, "power of popularity that outputs start at and decay to", at_least=0, search=(0.0, 1.0))
    b: float = setting(0.5, "users with |u| items are weighted by |u|^-b within a batch", search=(0.0, 1.0))
    directions: int = setting(300, "co-occurrence directions of the first vectors; 0: random", at_least=0, at_most=5000)
    # The weights that a continued fit starts with, and how many epochs the earlier fit had. It is not a setting.
    start: tuple[Mapping[str, Tensor], int] | None = field(default=None, compare=False, kw_only=True, repr=False)
    item_weights_: FloatArray = learned()  # (items,)
    lengths_: IntArray = learned()  # training users with 0, 1, 2, ... items
    _counts: FloatArray = field(init=False, repr=False, compare=False)  # (items,), during the fit
    _features: FloatArray = field(init=False, repr=False, compare=False)  # (items, directions or fewer), during the fit

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.low <= self.high <= 1:
            raise InputError(f"Expected shares of survivors low <= high <= 1, got {self.low} and {self.high}.", "low")

    def prepare(self, train: Csr) -> None:
        vectors, wide = f"The start of item vectors on {train.shape[0]:,} users", self._start_bytes(Shape.of(train))
        require_memory(wide, vectors, "set fewer directions (0: random vectors), or train thinning-fast.")
        self._counts = relative(column_counts(train).astype(np.float32))
        self.item_weights_ = self._counts ** np.float32(-self.input_power)
        self.lengths_ = np.bincount(np.diff(train.indptr)).astype(np.int64)
        self._features = co_occurrence_features(train, 0 if self.start else self.directions)

    def make_net(self, n_items: int) -> Autoencoder:
        hidden = DenseEncoder(self.n_bags * n_items, self.width, self.layers)
        nn.init.xavier_normal_(hidden.first.weight)  # with smaller features the eps of the layer norm would dominate
        nn.init.zeros_(hidden.first.bias)
        encoder = nn.Sequential(hidden, nn.Linear(self.width, self.latent))
        return Autoencoder(encoder, nn.Linear(self.latent, n_items))

    def training_module(self) -> nn.Module:
        """Return the net, which starts with about the logits of popularity.

        The random vectors of the first items become the vectors of the directions: features have length 1, so that an
        item's vector is about as long as it was drawn.
        """
        if self.start:
            self.net_.load_state_dict(self.start[0])
            return self.net_
        features = torch.from_numpy(self._features).to(self.device)
        n_items, directions = features.shape
        with torch.no_grad():
            self._bias().copy_(self.prior * torch.from_numpy(self._counts).log())
            for name, gain in (("encoder.0.first.weight", _GAIN), ("decoder.weight", 1.0)) if directions else ():
                every: Tensor = self.net_.get_parameter(name)  # (bags of items, width)
                for vectors in every.view(-1, n_items, every.shape[1]):
                    vectors.copy_(gain * (features @ vectors[:directions]))
        self._features = self._features[:, :0]  # they are in the vectors now
        return self.net_

    def epochs(self, *arguments: Any, **options: Any) -> Iterator[Epoch]:
        epochs = self.max_epochs
        if self.start:
            self.max_epochs = max(1, round(_MORE * epochs))
        try:
            yield from super().epochs(*arguments, **options)
        finally:
            self.max_epochs, self.start = epochs, None

    def undecayed_parameters(self) -> Iterable[nn.Parameter]:
        return (self._bias(),)

    def _bias(self) -> nn.Parameter:
        bias: nn.Parameter = self.net_.get_parameter("decoder.bias")
        return bias

    def learning_rate(self, epoch: int) -> float:
        epochs = self.start[1] if self.start else self.max_epochs
        return self.lr * warmup_cosine(epochs - self.max_epochs + epoch, epochs, _WARM_UP)

    def continued(self) -> Self:
        """Return an unfitted model that starts with these weights, for a fit on more users; small data starts anew."""
        if self.lengths_ @ np.arange(len(self.lengths_)) < LARGE:  # interactions: a fit from scratch takes seconds
            return replace(self)
        return replace(self, start=(self.net_.state_dict(), self.max_epochs))

    def economical(self, shape: Shape) -> Self:
        """Return a smaller net with more epochs for small data: as good in a mixture, in less time."""
        if shape.interactions >= LARGE:
            return self
        width, layers, latent = min(self.width, 400), min(self.layers, 2), min(self.latent, 200)
        epochs = min(2 * self.max_epochs, 100_000)
        return replace(self, width=width, layers=layers, latent=latent, max_epochs=epochs)

    def seconds(self, shape: Shape) -> float:
        """Return about how many seconds a fit takes: weights behind the input three times for each user and epoch."""
        dense = self._numbers(shape.items) - self.n_bags * shape.items * self.width
        return 3.0 * self.max_epochs * shape.users * dense / _PER_SECOND

    def fit_bytes(self, shape: Shape) -> int:
        """Return the larger of the bytes for the start of the item vectors and for the training."""
        return max(super().fit_bytes(shape), self._start_bytes(shape))

    def _start_bytes(self, shape: Shape) -> int:
        vectors = min(self.directions + 1 + SPARE, shape.items) if self.directions else 0
        return 4 * vectors * (shape.users + 4 * shape.items) + 24 * shape.interactions

    def scores(self, history: Csr) -> Tensor:
        return self.logits(SparseRows.of(history, self.device))

    def logits(self, xt: SparseRows) -> Tensor:
        """Return the logits (rows, items) of the items that are missing from x_t."""
        weights = torch.from_numpy(self.item_weights_).to(self.device)
        out: Tensor = self.net_(xt.weighted(xt.values * weights[xt.columns]).normalised())
        return out

    def loss(self, rows: Csr, trained: nn.Module, rng: torch.Generator) -> Tensor:
        x0 = SparseRows.of(rows, self.device)
        a = self.low + (self.high - self.low) * torch.rand(len(x0.starts), generator=rng).to(self.device)
        kept = torch.rand(len(x0.columns), generator=rng).to(self.device) < a[x0.row_of]
        xt, removed = x0.only(kept), x0.only(~kept)
        logits = self.logits(xt).index_put_((xt.row_of, xt.columns), torch.tensor(NEVER, device=self.device))
        return self.mean_loss(logits, removed, x0.sums().clamp(min=1))

    def mean_loss(self, logits: Tensor, targets: SparseRows, lengths: Tensor) -> Tensor:
        """Return the mean cross-entropy of the targets; a row of some length counts length^-b."""
        weights = lengths**-self.b
        return (weights * multinomial_nll(logits, targets)).sum() / (weights * lengths).sum() * lengths.mean()


def co_occurrence_features(train: Csr, directions: int) -> FloatArray:
    """Return features of items from co-occurrences, rows of length 1 or 0, (items, directions or fewer).

    With M the users' and N the items' counts, these are the leading eigenvectors of N^-1/2 X'M^-1X N^-1/2, each times
    the root of its eigenvalue, without popularity: that is the eigenvector n^1/2 of eigenvalue 1, which is not the only
    one if the data has parts without a common user.
    """
    if not directions:
        return np.zeros((train.shape[1], 0), np.float32)
    lengths = np.diff(train.indptr)
    shares = np.repeat(np.maximum(lengths, 1).astype(np.float32) ** np.float32(-0.5), lengths)
    rows = csr_array((shares, train.indices, train.indptr), shape=train.shape)
    counts = column_counts(train).astype(np.float32)
    s, u = leading(rows, np.maximum(counts, 1), directions + 1, np.random.default_rng(0))
    features = u * np.sqrt(np.maximum(s, 0))
    popularity = np.sqrt(counts / max(1.0, float(counts.sum())))
    features -= np.outer(popularity, popularity @ features)
    norms = np.linalg.norm(features, axis=1, keepdims=True)
    return np.asarray(features / np.where(norms > _NOTHING, norms, 1), np.float32)
