"""The closed form with item features, which gives the columns of all items, and columns of new items.

The settings of new items are chosen on known items that are left out.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cholesky, solve_triangular
from scipy.sparse import csr_array

from recfusion.core.arrays import Csr, FloatArray, keep_entries, row_numbers
from recfusion.data.split import Fold
from recfusion.evaluation.metrics import Values
from recfusion.models import self_tuning as selftune
from recfusion.models.linear.gram import invert_in_place

_SAMPLE = 500  # users for making the scores of new and known items comparable
_LIST = 100  # length of the lists for that
_GROUPS = 10  # of the items: one of them is new to each user
_L2S = (0.03, 0.1, 0.3, 1.0, 3.0)
_OWNS = (0.0, 0.2, 0.4, 0.8)


@dataclass(frozen=True)
class Solved:
    """Weights of items, and the part of them that comes from features."""

    weights: FloatArray  # (items, items): W, 0 on the diagonal
    shared: FloatArray  # (features, items): C, where W = B + F C


def solve_with_features(
    g: FloatArray, item_l2: FloatArray, noise: FloatArray, features: Csr, feature_l2: float
) -> Solved:
    """Return the weights of items and of the history's features that predict each item; `g` is overwritten.

    For target j, w = B_.j + F C_.j over the items but j minimises the loss of thinned rows,
    w'(G + diag noise)w - 2 w'G_.j, plus sum_i item_l2_i B_ij^2 + feature_l2 |C_.j|^2. With
    K^-1 = diag(item_l2) - H H', the penalty of w after minimising over B and C, and P = (G + noise + K^-1)^-1:

        W_ij = P_ij (e_j - s_j item_l2_j) + s_j (P H H')_ij

    where s_j and e_j account for item j not being in the history (docs/explanation/signals.md).
    """
    n, d = len(g), item_l2.astype(np.float64)
    place = np.diag_indices(n)
    scaled = np.asarray(features.multiply(d[:, None]).todense(), np.float64) if features.nnz else np.zeros((n, 0))
    inner = features.T @ scaled if scaled.size else np.zeros((scaled.shape[1],) * 2)
    inner[np.diag_indices(len(inner))] += feature_l2
    lower = cholesky(inner, lower=True) if len(inner) else inner
    h = solve_triangular(lower, scaled.T, lower=True).T if len(inner) else scaled  # (items, features)
    h32 = h.astype(np.float32)
    g[place] += noise + item_l2
    if h.shape[1]:
        g -= h32 @ h32.T
    p = invert_in_place(g)
    ph = p @ h32  # (items, features)
    diagonal, kept = np.diag(p).astype(np.float64), np.sum(ph * h, axis=1)
    a = d * diagonal - kept  # (P K^-1)_jj
    q = d * a - d * kept + np.sum((h @ (h.T @ ph)) * h, axis=1)  # (K^-1 P K^-1)_jj
    s = a / (a**2 + diagonal * (d - np.sum(h**2, axis=1) - q))
    e = (s * a - 1) / diagonal
    weights = p.T  # P is symmetric: its transpose is P in the memory order for scoring
    weights *= (e - s * d).astype(np.float32)
    if h.shape[1]:
        weights += ph @ (h32 * s[:, None].astype(np.float32)).T
    np.fill_diagonal(weights, s - 1)  # the item's own prediction from features alone: part of C
    shared = np.zeros((0, n), np.float32)
    if h.shape[1]:
        shared = solve_triangular(lower, (h32.T @ weights).astype(np.float64), lower=True, trans="T").astype(np.float32)
    np.fill_diagonal(weights, 0)
    return Solved(weights, shared)


@dataclass(frozen=True)
class AsNew:
    """The ridge regression of the known items' columns on their features, F (F'F + l2)^-1, with its leverage."""

    map: FloatArray  # (items, features); 0 for items without users
    features: Csr
    leverage: FloatArray  # (items,): the share of an item's own column in its prediction

    def left_out(self, scores: FloatArray) -> FloatArray:
        """Return the scores (users, items) that each item would have as a new item, predicted from the others.

        This is exactly the regression without item j: (y^_j - h_j y_j) / (1 - h_j).
        """
        predicted = np.asarray(self.features @ (scores @ self.map).T).T  # (users, items)
        predicted -= scores * self.leverage
        predicted /= 1 - self.leverage
        return np.ascontiguousarray(predicted, np.float32)


def as_new(features: Csr, known: NDArray[np.bool_], l2: float) -> AsNew:
    """Return the map from columns of known items to columns of items by their features alone."""
    own = csr_array(features.multiply(known[:, None])).astype(np.float64)  # (items, features)
    inner = (own.T @ own).toarray() + l2 * np.eye(own.shape[1])
    mapped = own @ np.linalg.inv(inner)  # the rows are sparse: this is cheaper than solving for each
    leverage = np.asarray(own.multiply(mapped).sum(axis=1)).ravel()
    return AsNew(mapped.astype(np.float32), features, np.minimum(leverage, 0.999).astype(np.float32))


@dataclass(frozen=True)
class Guessed:
    """Scores of users outside of the training data: of items as known items, and as if each were new."""

    plain: FloatArray  # (users, items)
    by_columns: FloatArray  # (users, items): as if new, from the columns of the known items
    by_likeness: FloatArray  # (users, items): as if new, for one unit of `own`

    @classmethod
    def of(cls, history: Csr, weights: FloatArray, scale: FloatArray, new: AsNew) -> "Guessed":
        plain = (history @ weights) * scale
        return cls(plain, new.left_out(plain), new.left_out(history.toarray() * scale))

    def as_new(self, own: float) -> FloatArray:
        """Return the scores as if each item were new, without the lift."""
        return self.by_columns + np.float32(own) * self.by_likeness


def fair_lift(history: Csr, weights: FloatArray, scale: FloatArray, owns: Sequence[float], new: AsNew) -> list[float]:
    """Return the factor, for each of `owns`, that lists items scored as new as often as the same items scored as known.

    A regression shrinks its predictions: without a factor hardly any new item would get into a list. `history`
    (users, items) are users outside of the training data.
    """
    known = np.flatnonzero(new.map.any(axis=1))
    rows = np.unique(np.linspace(0, history.shape[0] - 1, min(_SAMPLE, history.shape[0])).astype(np.int64))
    history, k = history[rows], min(_LIST, len(known) // 2)
    if not k:
        return [1.0] * len(owns)
    found = Guessed.of(history, weights, scale, new)
    unseen = history.toarray()[:, known] == 0
    shown = np.where(unseen, found.plain[:, known], -np.inf)
    last = np.partition(shown, -k, axis=1)[:, [-k]]  # (users, 1): the last scores of the lists

    def lift(own: float) -> float:
        guessed = found.as_new(own)[:, known]
        enters = (last / np.where(unseen & (guessed > 0) & (last > 0), guessed, np.nan)).ravel()
        enters = enters[np.isfinite(enters)]  # the factors that bring a new item into a list
        places = k * len(rows)
        return float(np.partition(enters, places - 1)[places - 1]) if len(enters) >= places else 1.0

    return [lift(own) for own in owns]


@dataclass(frozen=True)
class Hidden:
    """Users with a tenth of the items hidden as new: removed from histories, and held out if the user had them."""

    fold: Fold
    groups: NDArray[np.int64]  # (items,)
    new_to: NDArray[np.int64]  # (users,): the group that is new to each user

    @classmethod
    def of(cls, valid: Fold, known: NDArray[np.bool_], rng: np.random.Generator) -> "Hidden":
        """Split all items of validation users again; users with nothing on one side are dropped."""
        valid = selftune.judged_users(valid, _SAMPLE)
        whole = csr_array(((valid.history + valid.held_out) > 0).astype(np.float32))
        groups = rng.permutation(len(known)) % _GROUPS
        new_to = np.arange(whole.shape[0]) % _GROUPS
        hidden = groups[whole.indices] == new_to[row_numbers(whole)]
        shown, wanted = keep_entries(whole, ~hidden), keep_entries(whole, hidden & known[whole.indices])
        assert shown is not None
        assert wanted is not None
        judges = np.flatnonzero((np.diff(shown.indptr) > 0) & (np.diff(wanted.indptr) > 0))
        return cls(Fold(valid.users, shown, wanted).take(judges), groups, new_to[judges])

    def judge(self, weights: FloatArray, scale: FloatArray, new: AsNew, tried: Sequence[tuple[float, float]]) -> Values:
        """Return NDCG@100 (tried, users) of ranking the hidden items among all items, for pairs of `own` and lift."""

        def scored(rows: slice) -> Iterable[FloatArray]:
            found = Guessed.of(self.fold.history[rows], weights, scale, new)
            theirs = self.groups == self.new_to[rows][:, None]  # (users, items)
            return (np.where(theirs, np.float32(lift) * found.as_new(own), found.plain) for own, lift in tried)

        return selftune.ndcg_of(scored, self.fold)


def judged_settings(
    hidden: Hidden,
    valid: Fold,
    features: Csr,
    known: NDArray[np.bool_],
    weights: FloatArray,
    scale: FloatArray,
    *,
    new_l2: float | None,
    own: float | None,
    lift: float | None,
) -> list[selftune.Judged]:
    """Score penalties of the map and values of `own` by items that are hidden from validation users.

    Unless a lift is given, each has the lift that gives new items their share of lists: the metric counts new items
    only, so that it would rise with any lift.
    """
    judged = []
    owns = _OWNS if own is None else (own,)
    for l2 in _L2S if new_l2 is None else (new_l2,):
        new = as_new(features, known, l2)
        lifts = fair_lift(valid.history, weights, scale, owns, new) if lift is None else [lift] * len(owns)
        values = hidden.judge(weights, scale, new, list(zip(owns, lifts, strict=True)))
        judged += [selftune.Judged({"new_l2": l2, "own": mine}, row) for mine, row in zip(owns, values, strict=True)]
    return judged
