"""Updates of the linear thinning model with dislikes and times in closed form: likes and dislikes are two blocks."""

from copy import copy
from dataclasses import dataclass

import numpy as np

from recfusion.core.arrays import Csr, FloatArray
from recfusion.data.signals import Extra
from recfusion.models.base import Recommender, Shape
from recfusion.models.linear.gram import invert_in_place
from recfusion.models.thinning.blocks import own_excluded, trends, with_dislikes
from recfusion.models.thinning.low_rank_update import Numbers, correct, gram_by_length, isolate, weighted_gram
from recfusion.models.thinning.signals import ThinningSignals
from recfusion.models.thinning.updates import Counts, Exact, largest_error, weighted_rows
from recfusion.models.updating import Arrays, Change, Kept, UserRows

MOST_FEATURES = 12_000  # with more, P would take more space than a new fit is worth


def has_correction(model: ThinningSignals) -> bool:
    """Return whether a model has a correction in closed form: all likes count alike, and P is not too large."""
    fitted = vars(model).get("weights_")
    small = fitted is None or fitted.shape[0] <= MOST_FEATURES
    return model.uses == "history" and model.values == "binary" and not model.fading and small


def blocks_of(rows: UserRows, n_blocks: int) -> Csr:
    """Return rows of features: likes, and dislikes if there are two blocks."""
    return with_dislikes(rows.matrix, (rows.extra or Extra()).disliked, n_blocks)


@dataclass(frozen=True)
class Blocks:
    """The counts of likes and dislikes, and P over both."""

    counts: Counts
    n: Numbers  # (features,): weighted users of each like and dislike
    p: FloatArray  # (features, features)
    trends: FloatArray  # (items,): of the last full fit

    @property
    def n_blocks(self) -> int:
        return len(self.n) // len(self.counts.n)

    @property
    def ridge(self) -> Numbers:
        return self.counts.fixed.ridge(self.n)

    def arrays(self) -> Arrays:
        return self.counts.arrays() | {"features": self.n, "p": self.p, "trends": self.trends}

    @classmethod
    def kept(cls, model: ThinningSignals, kept: Kept) -> "Blocks":
        return cls(Counts.kept(model, kept), kept["features"], kept["p"], kept["trends"])

    def over(self, n_items: int) -> "Blocks":
        """Return a copy over more items: a new one has nothing but its penalty."""
        n_old, n_blocks = len(self.counts.n), self.n_blocks
        places = np.concatenate([np.arange(n_old) + block * n_items for block in range(n_blocks)])
        n, wide = np.zeros(n_blocks * n_items), np.zeros((n_blocks * n_items,) * 2, np.float32)
        n[places] = self.n
        np.fill_diagonal(wide, 1 / self.counts.fixed.ridge(np.zeros(1)))
        wide[np.ix_(places, places)] = self.p
        trends = np.append(self.trends, np.ones(n_items - n_old, np.float32))
        return Blocks(self.counts, n, wide, trends)

    def model(self, like: ThinningSignals) -> ThinningSignals:
        """Return the model with these weights."""
        found, n_items = copy(like), len(self.counts.n)
        weights = own_excluded(self.p, None, n_items)[0]
        found.weights_ = weights * (self.counts.scaling * self.trends ** np.float32(like.trend_))
        return found


def solved_blocks(counts: Counts, rows: UserRows, n_blocks: int, trends: FloatArray) -> Blocks:
    """Return P by a new inverse, with the fixed means of the last full fit."""
    z, fixed = blocks_of(rows, n_blocks), counts.fixed
    g = gram_by_length(weighted_rows(fixed, rows.matrix, z))
    n = fixed.counts(rows.matrix, z)
    g[np.diag_indices(len(g))] += fixed.ridge(n).astype(np.float32)
    return Blocks(counts, n, invert_in_place(g), trends)


class SignalsUpdater(Exact):
    """Updates `thinning-signals`: the user's likes and dislikes change together. P and the trends are kept."""

    def n_bytes(self, model: Recommender, shape: Shape) -> int:
        assert isinstance(model, ThinningSignals)
        return 4 * ((1 + (model.dislikes == "features" and shape.dislikes > 0)) * shape.items) ** 2

    def keep(self, model: Recommender, rows: UserRows) -> Arrays:
        assert isinstance(model, ThinningSignals)
        n_items = rows.matrix.shape[1]
        recent = trends(rows.matrix, None if rows.extra is None else rows.extra.times)
        n_blocks = model.weights_.shape[0] // n_items
        return solved_blocks(Counts.of(model, rows.matrix), rows, n_blocks, recent).arrays()

    def update(self, model: Recommender, kept: Kept, change: Change) -> tuple[Recommender, Arrays]:
        assert isinstance(model, ThinningSignals)
        old = Blocks.kept(model, kept).over(change.n_items)
        new, fixed, n_blocks = old.counts.after(change), old.counts.fixed, Blocks.kept(model, kept).n_blocks
        before, after = (blocks_of(rows, n_blocks) for rows in (change.before, change.after))
        s = np.union1d(before.indices, after.indices).astype(np.int64)
        if change.again or new.needs_inverse(len(s), len(old.p)):
            found = solved_blocks(new.renewed(), change.rows, n_blocks, old.trends)
            return found.model(model), found.arrays()
        n = old.n + fixed.counts(change.after.matrix, after)
        n -= fixed.counts(change.before.matrix, before)
        n[np.abs(n) < 1e-9 * max(1.0, fixed.scale)] = 0  # without the rounding errors of sums and differences
        m = weighted_gram(after, fixed.weights(change.after.matrix), s)
        m -= weighted_gram(before, fixed.weights(change.before.matrix), s)
        m[np.diag_indices(len(s))] += fixed.ridge(n)[s] - old.ridge[s]
        correct(old.p, s, m)
        lone = s[n[s] == 0]
        isolate(old.p, lone, fixed.ridge(n[lone]))
        found = Blocks(new, n, old.p, old.trends)
        return found.model(model), found.arrays()

    def error(self, model: Recommender, kept: Kept, rows: UserRows, probes: Csr) -> float:
        assert isinstance(model, ThinningSignals)
        blocks = Blocks.kept(model, kept)
        p, n_blocks, n_items = blocks.p, blocks.n_blocks, rows.matrix.shape[1]
        z, likes = blocks_of(rows, n_blocks), probes.T.toarray().astype(np.float64)
        # A probe's dislikes are the likes of the probe before it.
        v = np.concatenate([np.roll(likes, block, axis=1) for block in range(n_blocks)])  # (features, probes)
        y = p.astype(np.float64) @ v
        weighed = blocks.counts.fixed.weights(rows.matrix)[:, None] * (z @ y)
        r = v - (z.T @ weighed + blocks.ridge[:, None] * y)
        # A score sums P v over the item's own like and dislike S_j, with the first column of the inverse of P_SS.
        own = np.arange(len(p)).reshape(n_blocks, n_items)
        first = np.linalg.inv(p[own[:, None], own].transpose(2, 0, 1).astype(np.float64))[:, 0]  # (items, blocks)

        def scores(values: Numbers) -> Numbers:
            by_block = values.reshape(n_blocks, n_items, -1)
            return np.asarray(np.einsum("jb,bjp->jp", first, by_block) * blocks.counts.scaling[:, None])

        return largest_error(scores(p @ r.astype(np.float32)), scores(y), likes)
