"""Updates of the linear thinning models in closed form: with items alone, and with pairs of items."""

from copy import copy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from recfusion.core.arrays import Csr, FloatArray, IntArray, column_counts, row_numbers
from recfusion.models.base import Recommender, Shape
from recfusion.models.linear.gram import blas_threads, invert_in_place, solve_items
from recfusion.models.thinning.linear import RIDGE, RidgeRecommender, ThinningLinear
from recfusion.models.thinning.low_rank_update import (
    Fixed,
    Numbers,
    core,
    correct,
    gram_by_length,
    isolate,
    scale_and_add,
    weighted_gram,
)
from recfusion.models.thinning.pairs import exclude_own, rescale, with_pairs
from recfusion.models.updating import Arrays, Change, Kept, Updater, UserRows, widened

_CELLS = 1 << 22  # users x items scored at once
_LEAST_SPREAD = 0.01  # of the scores of probes: they estimate values of 0 and 1
_TESTED = 256  # items whose scores the certificate tests
_CORRECTIONS = 300  # after so many, a new inverse removes their rounding errors
_MOST = 0.4  # share of changed items from which a new inverse is quicker than a correction of the old one


def find(model: object) -> Updater | None:
    """Return the updater of a linear thinning model; None for other models."""
    if isinstance(model, ThinningLinear):  # before the fit, the number of pairs is known only roughly
        return PairsUpdater() if len(vars(model).get("pairs_", range(model.pairs))) else LinearUpdater()
    return None


@dataclass(frozen=True)
class Counts:
    """The counts of all users that penalties and scores depend on, with what stays fixed until the next full fit."""

    fixed: Fixed
    n: Numbers  # (items,): weighted users of each item
    users: NDArray[np.int64]  # (items,)
    age: int = 0  # corrections since the last inverse

    @classmethod
    def of(cls, model: RidgeRecommender, rows: Csr) -> "Counts":
        fixed = Fixed.of(rows, **{name: float(getattr(model, f"{name}_")) for name in RIDGE})
        return cls(fixed, fixed.counts(rows), column_counts(rows))

    @classmethod
    def kept(cls, model: RidgeRecommender, kept: Kept) -> "Counts":
        settings = {name: float(getattr(model, f"{name}_")) for name in RIDGE}
        fixed = Fixed(*(float(value) for value in kept["means"]), **settings)
        return cls(fixed, kept["n"], kept["users"], int(kept["age"][0]))

    def arrays(self) -> Arrays:
        means = np.array([self.fixed.scale, self.fixed.mean, self.fixed.mean_count])
        return {"means": means, "n": self.n, "users": self.users, "age": np.array([self.age])}

    def after(self, change: Change) -> "Counts":
        grown = change.n_items - len(self.n)
        n, users = np.append(self.n, np.zeros(grown)), np.append(self.users, np.zeros(grown, np.int64))
        before, after = change.before.matrix, change.after.matrix
        n = n + self.fixed.counts(after) - self.fixed.counts(before)
        users = users + column_counts(after) - column_counts(before)
        n[users == 0] = 0  # without the rounding errors of sums and differences
        return replace(self, n=n, users=users, age=self.age + 1)

    def needs_inverse(self, n_changed: int, n_features: int) -> bool:
        """Return whether a new inverse is quicker than a correction, or due after many of them."""
        return self.age >= _CORRECTIONS or n_changed > _MOST * n_features

    def renewed(self) -> "Counts":
        """Return the counts of a new inverse."""
        return replace(self, age=0)

    @property
    def ridge(self) -> Numbers:
        return self.fixed.ridge(self.n)

    @property
    def scaling(self) -> FloatArray:
        return self.fixed.scaling(self.users)


def _gram_change(fixed: Fixed, change: Change, before: Csr, after: Csr, features: IntArray) -> Numbers:
    """Return the change of G over these features, for the users' rows of features before and after."""
    return weighted_gram(after, fixed.weights(change.after.matrix), features) - weighted_gram(
        before, fixed.weights(change.before.matrix), features
    )


class Exact:
    """An update that equals a fit on the rows that remain."""

    def describe(self, model: Recommender, change: Change) -> tuple[bool, tuple[str, ...]]:
        return True, ()


class LinearUpdater(Exact):
    """Updates `thinning-linear` without pairs: its weights and the diagonal of P determine P."""

    def n_bytes(self, model: Recommender, shape: Shape) -> int:
        return 24 * shape.items

    def keep(self, model: Recommender, rows: UserRows) -> Arrays:
        assert isinstance(model, ThinningLinear)
        counts = Counts.of(model, rows.matrix)
        return counts.arrays() | {"diagonal": _diagonal(model.weights_, counts, rows.matrix)}

    def update(self, model: Recommender, kept: Kept, change: Change) -> tuple[Recommender, Arrays]:
        assert isinstance(model, ThinningLinear)
        old = Counts.kept(model, kept)
        new, n_items, s = old.after(change), change.n_items, change.items
        found = copy(model)
        if change.again or new.needs_inverse(len(s), n_items):
            found.weights_, diagonal = solved(new, change.rows.matrix)
            return found, new.renewed().arrays() | {"diagonal": diagonal}
        before = replace(old, n=widened(old.n, n_items), users=widened(old.users, n_items))
        weights = widened(model.weights_, n_items, n_items)
        fresh = 1 / before.ridge[len(kept["diagonal"]) :]  # a new item: nothing but its penalty
        d = np.append(kept["diagonal"], fresh)
        old_scale, new_scale = before.scaling, new.scaling
        # P_.S from rows, which are contiguous: W_ij = -P_ij scale_j / P_jj, and P is symmetric.
        u = (weights[s] * (-d / old_scale).astype(np.float32)).T  # (items, S)
        u[s, np.arange(len(s))] = d[s]
        fixed = new.fixed
        m = _gram_change(fixed, change, change.before.matrix, change.after.matrix, s)
        m[np.diag_indices(len(s))] += new.ridge[s] - before.ridge[s]
        with blas_threads(n_items):
            mixed = u @ core(u[s].astype(np.float64), m).astype(np.float32)  # P_.S K
        diagonal = d - np.einsum("ij,ij->i", mixed, u, dtype=np.float64)
        after = (new_scale / diagonal).astype(np.float32)
        ratio = (d / old_scale * new_scale / diagonal).astype(np.float32)
        right = np.ascontiguousarray((u * after[:, None]).T)
        found.weights_ = weights if change.in_place or weights is not model.weights_ else np.empty_like(weights)
        scale_and_add(weights, ratio, mixed, right, found.weights_)
        np.fill_diagonal(found.weights_, 0)
        lone = s[new.users[s] == 0]  # exactly nothing but their penalty is left: rounding errors would be large there
        found.weights_[lone], found.weights_[:, lone], diagonal[lone] = 0, 0, 1 / new.ridge[lone]
        return found, new.arrays() | {"diagonal": diagonal}

    def error(self, model: Recommender, kept: Kept, rows: UserRows, probes: Csr) -> float:
        assert isinstance(model, ThinningLinear)
        counts, d, weights = Counts.kept(model, kept), kept["diagonal"], model.weights_
        back = d / counts.scaling  # W_ij back_j = -P_ij
        # P v in 64 bits from the rows of each probe's items; then r = v - A P v, and P r is the error of P v.
        v = probes.T.toarray().astype(np.float64)  # (items, probes)
        y = d[:, None] * v
        for place in range(probes.shape[0]):
            own = probes.indices[probes.indptr[place] : probes.indptr[place + 1]]
            y[:, place] -= weights[own].sum(axis=0, dtype=np.float64) * back
        r = v - normal_product(counts, rows.matrix, y)
        some = np.linspace(0, len(d) - 1, min(len(d), _TESTED)).astype(np.int64)
        wrong = d[some, None] * r[some] - weights[some] @ (r * back[:, None]).astype(np.float32)
        per_score = (counts.scaling / d)[:, None]
        return largest_error(wrong * per_score[some], y * per_score, v)


def normal_product(counts: Counts, rows: Csr, y: Numbers) -> Numbers:
    """Return (G + Lambda) y from the rows of all users, in 64 bits, (items, probes)."""
    weighed = counts.fixed.weights(rows)[:, None] * (rows @ y)
    return np.asarray(rows.T @ weighed + counts.ridge[:, None] * y)


def largest_error(wrong: Numbers, scores: Numbers, v: Numbers) -> float:
    """Return the largest error over the standard deviation of the probes' scores of items outside of them."""
    outside = scores[v == 0]
    spread = float(outside.std()) if outside.size else 0.0
    return float(np.abs(wrong).max(initial=0) / max(spread, _LEAST_SPREAD))


def solved(counts: Counts, rows: Csr) -> tuple[FloatArray, Numbers]:
    """Return the weights and the diagonal of P by a new inverse, with the fixed means of the last full fit."""
    weights, diagonal = solve_items(_gram(counts, rows), counts.ridge.astype(np.float32))
    weights *= counts.scaling
    return weights, diagonal.astype(np.float64)


def _gram(counts: Counts, rows: Csr, features: Csr | None = None) -> FloatArray:
    return gram_by_length(weighted_rows(counts.fixed, rows, rows if features is None else features))


def weighted_rows(fixed: Fixed, rows: Csr, features: Csr) -> Csr:
    """Return the features of users times the roots of the users' weights."""
    roots = np.repeat(np.sqrt(fixed.weights(rows)).astype(np.float32), np.diff(features.indptr))
    return csr_array((features.data * roots, features.indices, features.indptr), shape=features.shape)


def _diagonal(weights: FloatArray, counts: Counts, rows: Csr) -> Numbers:
    """Return the diagonal of P for fitted weights: 1 / P_jj = A_jj - sum_i G_ji B_ij, with B the unscaled weights."""
    explained, step = np.zeros(rows.shape[1]), max(1, _CELLS // max(1, rows.shape[1]))
    user_weights = counts.fixed.weights(rows)
    for start in range(0, rows.shape[0], step):
        part = rows[start : start + step]
        scores, at = np.asarray(part @ weights), row_numbers(part)
        values = user_weights[start + at] * scores[at, part.indices]
        explained += np.bincount(part.indices, values, rows.shape[1])
    return np.asarray(1 / (counts.n + counts.ridge - explained / counts.scaling))


class PairsUpdater(Exact):
    """Updates `thinning-linear` with pairs: all features of a changed user change together. P is kept."""

    def n_bytes(self, model: Recommender, shape: Shape) -> int:
        assert isinstance(model, ThinningLinear)
        return 4 * (shape.items + min(model.pairs, shape.items * (shape.items - 1) // 2)) ** 2 + 24 * shape.items

    def keep(self, model: Recommender, rows: UserRows) -> Arrays:
        assert isinstance(model, ThinningLinear)
        counts = Counts.of(model, rows.matrix)
        return counts.arrays() | {"p": _inverse_with_pairs(model, counts, rows.matrix)}

    def update(self, model: Recommender, kept: Kept, change: Change) -> tuple[Recommender, Arrays]:
        assert isinstance(model, ThinningLinear)
        old, pairs, n_items = Counts.kept(model, kept), model.pairs_, change.n_items
        new = old.after(change)
        before, after = (with_pairs(rows, pairs) for rows in (change.before.matrix, change.after.matrix))
        s = np.union1d(before.indices, after.indices).astype(np.int64)
        if change.again or new.needs_inverse(len(s), n_items + len(pairs)):
            p, new = _inverse_with_pairs(model, new, change.rows.matrix), new.renewed()
        else:
            p = _with_new_items(kept["p"], old, n_items)
            fixed, grown = new.fixed, np.zeros(n_items - len(old.n))
            m = _gram_change(fixed, change, before, after, s)
            m *= survival(pairs, n_items, s, 1 / (1 + model.kappa_))
            more = np.append(fixed.penalty(new.n) - fixed.penalty(np.append(old.n, grown)), np.zeros(len(pairs)))
            m[np.diag_indices(len(s))] += more[s]
            correct(p, s, m)
            gone = np.flatnonzero(new.users == 0)
            lone = np.concatenate([gone, n_items + np.flatnonzero(np.isin(pairs, gone).any(axis=1))])
            left = np.append(fixed.penalty(new.n), np.full(len(pairs), model.pair_l2_ or 0))[lone]
            isolate(p, lone, left)
        found = copy(model)
        found.weights_ = exclude_own(p.copy(), pairs, n_items)
        found.weights_ *= new.scaling
        return found, new.arrays() | {"p": p}

    def error(self, model: Recommender, kept: Kept, rows: UserRows, probes: Csr) -> float:
        """Test rows of P, of one item of each probe: r = e_i - A_i P is the residual, and r P the error of P_i."""
        assert isinstance(model, ThinningLinear)
        matrix, counts, p = rows.matrix, Counts.kept(model, kept), kept["p"]
        n_items = matrix.shape[1]
        ridge = np.append(counts.fixed.penalty(counts.n), np.full(len(model.pairs_), float(model.pair_l2_ or 0)))
        some = probes.indices[probes.indptr[:-1]].astype(np.int64)
        v = np.zeros((len(p), len(some)))
        v[some, np.arange(len(some))] = 1
        r = v.copy()
        for place, item in enumerate(some):
            own = matrix[np.flatnonzero(np.diff(matrix[:, [item]].indptr))]
            row = counts.fixed.weights(own) @ with_pairs(own, model.pairs_).astype(np.float64)  # of G
            row *= survival(model.pairs_, n_items, np.arange(len(p)), 1 / (1 + model.kappa_), [item])[0]
            row[item] += ridge[item]
            r[:, place] -= p.astype(np.float64) @ row
        wrong, per_score = p @ r.astype(np.float32), (counts.scaling / np.diag(p)[:n_items])[:, None]
        rows_of_p = p[:n_items, some] * per_score
        return largest_error(wrong[:n_items] * per_score, rows_of_p, v[:n_items])


def survival(
    pairs: IntArray, n_items: int, features: IntArray, q: float, among: NDArray[Any] | list[int] | None = None
) -> Numbers:
    """Return q^-|a intersect b| for features a in `among` (by default the same ones) and b in `features`."""
    feature = np.concatenate([np.arange(n_items), np.repeat(np.arange(n_items, n_items + len(pairs)), 2)])
    item = np.concatenate([np.arange(n_items), pairs.ravel()])
    contains = csr_array((np.ones(len(item)), (feature, item)), shape=(n_items + len(pairs), n_items))
    left = contains[features if among is None else np.asarray(among)]
    return np.asarray(q ** -(left @ contains[features].T).toarray())


def _with_new_items(p: FloatArray, old: Counts, n_items: int) -> FloatArray:
    """Return a copy of P over more items, which come before the pairs: a new item has nothing but its penalty."""
    n_old, grown = len(old.n), n_items - len(old.n)
    if not grown:
        return p.copy()
    places = np.append(np.arange(n_old), np.arange(n_items, n_items + len(p) - n_old))
    wide = np.zeros((len(p) + grown, len(p) + grown), np.float32)
    wide[np.ix_(places, places)] = p
    fresh = np.arange(n_old, n_items)
    wide[fresh, fresh] = 1 / old.fixed.penalty(np.zeros(grown))
    return wide


def _inverse_with_pairs(model: ThinningLinear, counts: Counts, rows: Csr) -> FloatArray:
    g = _gram(counts, rows, with_pairs(rows, model.pairs_))
    n_items = rows.shape[1]
    rescale(g, model.pairs_, n_items, 1 / (1 + model.kappa_))
    assert model.pair_l2_ is not None
    ridge = np.append(counts.fixed.penalty(counts.n), np.full(len(model.pairs_), model.pair_l2_))
    g[np.diag_indices(len(g))] += ridge.astype(np.float32)
    return invert_in_place(g)


def equivalent_l2(model: RidgeRecommender, kept: Kept, rows: Csr) -> float:
    """Return the penalty l2 with which a full fit on the rows has the scores of the updated model, up to a factor.

    An update keeps the scale of user weights and the mean popularity of the last full fit. A full fit divides G by the
    ratio of the scales, and the ratios of scales and means change l2 alone.
    """
    counts = Counts.kept(model, kept)
    now, old = Fixed.of(rows, **{name: float(getattr(model, f"{name}_")) for name in RIDGE}), counts.fixed
    return float(old.l2 * (now.scale / old.scale) ** (1 - old.nu) * (now.mean / old.mean) ** old.nu)
