"""The linear denoiser with dislikes, ratings or counts, and timestamps."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal, Self

import numpy as np
from scipy.sparse import csr_array, hstack

from recfusion.core.arrays import Csr, FloatArray, IntArray, binary_csr
from recfusion.core.rng import RngLike, make_rng
from recfusion.data.interactions import Signal
from recfusion.data.signals import Extra, valued
from recfusion.data.split import Fold
from recfusion.models import self_tuning as selftune
from recfusion.models.base import Shape
from recfusion.models.linear.gram import FLOPS, gram, gram_bytes, invert_in_place, require_gram_memory
from recfusion.models.reasons import Reasons, exact
from recfusion.models.sequence.recency import fades, recency, recent_counts
from recfusion.models.settings import learned, self_tuned, setting
from recfusion.models.thinning.linear import RidgeRecommender, fit_linear, penalty

Transform = Literal["binary", "units", "log", "saturating"]
_POWERS = (0.0, 0.25, 0.5, 0.75, 1.0)  # of recency: all are scored with one fit
_TRENDS = (0.0, 0.5, 1.0)
_PENALTY = ("l2", "nu", "kappa", "b")  # c is chosen with recency and trend
_DISLIKES_DOC = "use of known dislikes; they are never recommended either way"
_VALUES_DOC = "weight of a like of n stars or plays: 1, n units that are thinned, log(1 + n), n / (n + median)"


def graded(grades: Csr | None, transform: Transform, median: float, unit: float) -> FloatArray:
    """Return the weight of each stored entry, divided by `unit`; an unknown rating counts as the median.

    A count below 0 cannot be thinned and has weight 0. Thinning of units: n stars or plays are n units that each
    survive with probability a, so that B(n, a) survive. Then E[z_i z_k] = a^2 n_i n_k and E[z_i^2] = a^2 n_i^2 +
    a (1 - a) n_i: the Gram matrix of the counts, and on its diagonal the noise kappa times the sum of the units; for
    thinned ones it is kappa times their number (docs/explanation/signals.md).
    """
    n = np.maximum(np.asarray(median if grades is None else grades.data, np.float64), 0)
    if transform == "binary":
        return np.ones(n.shape, np.float32)
    if transform == "log":
        n = np.log1p(n)
    elif transform == "saturating":
        n = n / np.maximum(n + max(median, 1e-12), 1e-12)
    return np.asarray(n / max(unit, 1e-12), np.float32)


@dataclass
class ThinningSignals(RidgeRecommender):
    """`ThinningLinear` with ratings and timestamps; without signals it gives the same scores.

    A row has a block of likes, each with the value of its rating, and a second block of dislikes if they are known:

        z = [v_u, d_u],   B_.j minimises |y_j - Z b|^2 + b' diag(Lambda) b, with 0 for item j's own features,

    and at scoring the r-th newest like weighs (1 + r)^-recency: score_j = (z B)_j n_j^-c t_j^trend, with t_j the recent
    popularity of item j over its whole popularity. Lambda is that of `ThinningLinear` with the counts of each block;
    if ratings are units, the noise is that of units that survive. The derivations are in docs/explanation/signals.md.
    `ThinningLinear` chooses the ridge on likes alone (an inverse of one block takes an eighth of that of two); c,
    recency and trend are chosen on the validation users with the final weights, without further fits.
    """

    reads: ClassVar[frozenset[Signal]] = frozenset({"grades", "times"})
    same_as_linear: ClassVar[tuple[str, ...]] = _PENALTY
    dislikes: Literal["features", "ignored"] = setting("features", _DISLIKES_DOC, search="all")
    values: Transform = setting("binary", _VALUES_DOC)
    recency: float | None = self_tuned(0.5, "power p of (1 + r)^-p, if times are known", search=(0.0, 1.0))
    recency_by: Literal["rank", "age"] = setting("rank", "r: newer entries in the history, or weeks before its newest")
    trend: float | None = self_tuned(0.0, "power of recent over whole popularity, if times are known", search=(0, 1))
    fading: float = setting(0.0, "half-life of a like in the fit, in days; 0: all count alike", at_least=0)
    tune_trials: int = selftune.trials_setting()
    recency_: float = learned()
    trend_: float = learned()
    weights_: FloatArray = learned()  # (items in blocks, items)
    typical_: FloatArray = learned()  # (2,): the median grade, and the root of the mean square of a value

    def fit(self, train: Csr, valid: Fold | None = None, *, rng: RngLike = None, extra: Extra | None = None) -> Self:
        known, generator = extra or Extra(), make_rng(rng)
        n_items, n_blocks = train.shape[1], 1 + (self.dislikes == "features" and known.disliked is not None)
        require_gram_memory(n_items * n_blocks, "A thinning model with signals", 2.1)
        likes = fit_linear(self, train, valid, generator)
        self.typical_ = np.array([1.0 if known.grades is None else np.median(known.grades.data), 1.0], np.float32)
        self.typical_[1] = np.sqrt(np.mean(graded(known.grades, self.values, *self.typical_) ** 2))
        weights, trends = self._solve(train, known, n_blocks), _trends(train, known.times)
        selftune.settle(
            *(self, lambda _, jury: self._variants(weights, train, trends, jury.valid)),
            *(selftune.validation_jury(train, valid), generator),
            searched=(),
            free=("c", "recency", "trend"),
            trials=self.tune_trials,
            starts={"c": likes.c_},
        )
        if known.times is None:
            self.recency_ = self.trend_ = 0.0
        weights *= selftune.scalings(train, (self.c_,))[0] * trends ** np.float32(self.trend_)
        self.weights_ = weights
        return self

    def score(self, history: Csr, *, extra: Extra | None = None) -> FloatArray:
        return np.asarray(self._features(history, extra, self.recency_) @ self.weights_)

    def reasons(self, history: Csr, items: IntArray, *, extra: Extra | None = None) -> Reasons:
        n_items = self.weights_.shape[1]
        again = np.arange(len(self.weights_) - n_items).reshape(-1, 1)  # the source of a dislike is its item
        return exact(self._features(history, extra, self.recency_), self.weights_, items, again)

    def seconds(self, shape: Shape) -> float:
        """Return about how many seconds a fit takes: n^3 for each trial, and 8 n^3 for the inverse with dislikes."""
        trials = self.tune_trials * float(min(shape.items, selftune.MOST_ITEMS)) ** 3
        return (trials + float(self._n_blocks(shape) * shape.items) ** 3) / FLOPS

    def fit_bytes(self, shape: Shape) -> int:
        n_blocks = self._n_blocks(shape)
        features = n_blocks * shape.items
        solved = 3 * 4 * features * shape.items  # the weights and the products that make them
        return solved + gram_bytes(features, 1.1, n_blocks * (shape.interactions + shape.dislikes))

    def _n_blocks(self, shape: Shape) -> int:
        return 1 + (self.dislikes == "features" and shape.dislikes > 0)

    def _solve(self, train: Csr, known: Extra, n_blocks: int) -> FloatArray:
        """Return the weights (features, items) from the blocks of features to the likes."""
        n_items = train.shape[1]
        roots = _roots(train, self.b_)
        left = np.ones(train.nnz, np.float32)
        if self.fading and known.times is not None:
            left = fades(known.times, self.fading)
        z = _rows_times(self._blocks(train, known, n_blocks, left), roots)
        y = _rows_times(valued(train, left), roots)
        g = gram(z)
        likes = np.bincount(y.indices, y.data**2, n_items).astype(np.float32)
        power = 1 if self.values == "units" else 2  # units survive independently: their noise grows with their number
        noise = np.bincount(
            z.indices, np.abs(z.data) ** power * np.repeat(roots, np.diff(z.indptr)) ** (2 - power), len(g)
        )
        counts = np.concatenate([likes, np.diag(g)[n_items:]])
        a = None if self.values == "binary" else np.asarray((z.T @ y).todense(), np.float32)
        ridge = penalty(counts, l2=self.l2_, nu=self.nu_, mean=float(likes.mean()))
        g[np.diag_indices(len(g))] += ridge + np.float32(self.kappa_) * noise.astype(np.float32)
        p = invert_in_place(g)
        return own_excluded(p, None if a is None else p @ a, n_items, n_blocks)

    def _blocks(self, history: Csr, known: Extra, n_blocks: int, left: FloatArray) -> Csr:
        """Return rows of features: the values of likes times what is `left` of each, and dislikes."""
        blocks = [valued(history, graded(known.grades, self.values, *self.typical_) * left)]
        if n_blocks > 1:
            disliked = known.disliked
            empty = np.zeros(history.shape[0] + 1, np.int32)
            indptr, indices = (empty, empty[:0]) if disliked is None else (disliked.indptr, disliked.indices)
            blocks.append(binary_csr(indptr, indices, history.shape[1]))
        return side_by_side(blocks)

    def _features(self, history: Csr, extra: Extra | None, power: float) -> Csr:
        known = extra or Extra()
        n_blocks = len(self.weights_) // self.weights_.shape[1]
        return self._blocks(history, known, n_blocks, self._left(history, known, power))

    def _left(self, history: Csr, known: Extra, power: float) -> FloatArray:
        """Return the weight of each like at scoring, by its recency."""
        if not power or known.times is None:
            return np.ones(history.nnz, np.float32)
        return recency(known.times, power, self.recency_by)

    def _variants(self, weights: FloatArray, train: Csr, trends: FloatArray, judged: Fold) -> list[selftune.Judged]:
        """Score the powers of popularity, recency and trend, which all use the same weights."""
        timed = judged.extra is not None and judged.extra.times is not None
        grid = {
            "c": selftune.POWERS if self.c is None else (self.c,),
            "recency": (_POWERS if timed else (0.5,)) if self.recency is None else (self.recency,),
            "trend": (_TRENDS if timed else (0.0,)) if self.trend is None else (self.trend,),
        }
        scales = selftune.scalings(train, grid["c"])
        pairs = [(c, trend) for trend in grid["trend"] for c in grid["c"]]
        every = np.concatenate([scales * trends ** np.float32(trend) for trend in grid["trend"]])  # (pairs, items)
        n_blocks = len(weights) // weights.shape[1]
        found = []
        for power in grid["recency"]:

            def scored(rows: slice, power: float = power) -> Iterator[FloatArray]:
                part = judged.take(rows)
                known = part.extra or Extra()
                left = self._left(part.history, known, power)
                scores = np.asarray(self._blocks(part.history, known, n_blocks, left) @ weights)
                return (scores * row for row in every)

            for (c, trend), values in zip(pairs, selftune.ndcg_of(scored, judged), strict=True):
                found.append(selftune.Judged({"c": c, "recency": power, "trend": trend}, values))
        return found


def _roots(train: Csr, b: float) -> FloatArray:
    """Return the roots of the user weights |u|^-b, rescaled to keep the sum over all likes, (users,)."""
    lengths = np.diff(train.indptr).astype(np.float64)
    weights = np.maximum(lengths, 1) ** -b
    return np.sqrt(weights * lengths.sum() / max((weights * lengths).sum(), 1e-12)).astype(np.float32)


def _rows_times(rows: Csr, scale: FloatArray) -> Csr:
    return valued(rows, rows.data * np.repeat(scale, np.diff(rows.indptr)))


def _trends(train: Csr, times: Csr | None) -> FloatArray:
    """Return each item's recent over its whole popularity, 1 on average; all 1 without times."""
    if times is None or not times.nnz:
        return np.ones(train.shape[1], np.float32)
    whole = np.bincount(train.indices, minlength=train.shape[1])
    share = recent_counts(times) / np.maximum(whole, 1)
    return np.asarray(np.where(whole > 0, share / share[whole > 0].mean(), 1), np.float32)


def own_excluded(p: FloatArray, a: FloatArray | None, n_items: int, n_blocks: int) -> FloatArray:
    """Return the weights (features, items) of a denoiser with blocks of features, without each item's own features.

    The first block of features has the likes of the items; further blocks of the same length say something else about
    the same items, such as dislikes; then come columns that belong to no item. Target j is the like of item j; S_j are
    the features of item j itself, one in each block. With P = (Z'Z + diag Lambda)^-1 and A = P Z'Y, column j minimises

        |y_j - Z b|^2 + b' diag(Lambda) b   with b = 0 on S_j:      b = A_.j - P_.S (P_SS)^-1 A_Sj

    Without `a` the targets are the first block itself: A_.j = e_j - Lambda_j P_.j, and b = e_j - P_.S (P_SS)^-1 e_1.
    """
    items = np.arange(n_items)
    places = np.stack([items + block * n_items for block in range(n_blocks)])  # (blocks, items): S_j by columns
    inner = p[places[:, None], places[None]].transpose(2, 0, 1).astype(np.float64)  # (items, blocks, blocks): P_SS
    right = np.zeros((n_items, n_blocks, 1)) if a is None else a[places, items].T[:, :, None].astype(np.float64)
    if a is None:
        right[:, 0] = 1
    shares = np.linalg.solve(inner, right)[:, :, 0].astype(np.float32)  # (items, blocks)
    weights = np.zeros((len(p), n_items), np.float32) if a is None else a
    for block in range(n_blocks):
        weights -= p[:, block * n_items : (block + 1) * n_items] * shares[:, block]
    for block in range(n_blocks):
        weights[places[block], items] = 0
    return weights


def side_by_side(blocks: list[Csr]) -> Csr:
    """Return rows of features with several blocks of columns, (users, features)."""
    return blocks[0] if len(blocks) == 1 else csr_array(hstack(blocks, format="csr"))
