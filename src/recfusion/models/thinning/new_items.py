"""Columns of new items by their features; their settings are chosen on known items that are left out."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, vstack

from recfusion.core.arrays import Csr, FloatArray, keep_entries, row_numbers
from recfusion.data.split import Fold
from recfusion.evaluation.metrics import Values
from recfusion.models import self_tuning as selftune
from recfusion.models.leave_one_out import nobody

if TYPE_CHECKING:
    from recfusion.models.thinning.signals import ThinningSignals

_SAMPLE = 500  # users for making the scores of new and known items comparable
_LIST = 100  # length of the lists for that
_GROUPS = 10  # of the items: one of them is new to each user
_L2S = (0.03, 0.1, 0.3, 1.0, 3.0)
_OWNS = (0.0, 0.2, 0.4, 0.8)


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
class Columns:
    """The weights of a fit, for choosing the settings of new items."""

    weights: FloatArray | Csr  # (items, items), before they are scaled
    scale: FloatArray  # (items,): of popularity
    features: Csr  # (items, features)
    known: NDArray[np.bool_]  # (items,): some training user has the item


@dataclass(frozen=True)
class Guessed:
    """Scores of users outside of the training data: of items as known items, and as if each were new."""

    plain: FloatArray  # (users, items)
    by_columns: FloatArray  # (users, items): as if new, from the columns of the known items
    by_likeness: FloatArray  # (users, items): as if new, for one unit of `own`

    @classmethod
    def of(cls, history: Csr, columns: Columns, new: AsNew) -> "Guessed":
        plain = dense(history @ columns.weights) * columns.scale
        return cls(plain, new.left_out(plain), new.left_out(history.toarray() * columns.scale))

    def as_new(self, own: float) -> FloatArray:
        """Return the scores as if each item were new, without the lift."""
        return self.by_columns + np.float32(own) * self.by_likeness


def fair_lift(history: Csr, columns: Columns, owns: Sequence[float], new: AsNew) -> list[float]:
    """Return the factor, for each of `owns`, that lists items scored as new as often as the same items scored as known.

    A regression shrinks its predictions: without a factor hardly any new item would get into a list. `history`
    (users, items) are users outside of the training data.
    """
    known = np.flatnonzero(new.map.any(axis=1))
    rows = np.unique(np.linspace(0, history.shape[0] - 1, min(_SAMPLE, history.shape[0])).astype(np.int64))
    history, k = history[rows], min(_LIST, len(known) // 2)
    if not k:
        return [1.0] * len(owns)
    found = Guessed.of(history, columns, new)
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

    def judge(self, columns: Columns, new: AsNew, tried: Sequence[tuple[float, float]]) -> Values:
        """Return NDCG@100 (tried, users) of ranking the hidden items among all items, for pairs of `own` and lift."""

        def scored(rows: slice) -> Iterable[FloatArray]:
            found = Guessed.of(self.fold.history[rows], columns, new)
            theirs = self.groups == self.new_to[rows][:, None]  # (users, items)
            return (np.where(theirs, np.float32(lift) * found.as_new(own), found.plain) for own, lift in tried)

        return selftune.ndcg_of(scored, self.fold)


def choose(model: "ThinningSignals", valid: Fold | None, columns: Columns, rng: np.random.Generator) -> None:
    """Choose the penalty of the map and `own`, by known items that are hidden from validation users.

    Unless a lift is given, each has the lift that gives new items their share of lists: the metric counts new items
    only, so that it would rise with any lift.
    """
    there = valid if columns.features.nnz else None
    hidden = None if there is None else Hidden.of(there, columns.known, rng)
    jury = None if hidden is None else selftune.Jury(nobody(hidden.fold.history), hidden.fold)
    owns = _OWNS if model.own is None else (model.own,)

    def objective(_values: Mapping[str, Any], _jury: selftune.Jury) -> list[selftune.Judged]:
        assert hidden is not None
        assert there is not None
        judged = []
        for l2 in _L2S if model.new_l2 is None else (model.new_l2,):
            new = as_new(columns.features, columns.known, l2)
            lifts = fair_lift(there.history, columns, owns, new) if model.lift is None else [model.lift] * len(owns)
            values = hidden.judge(columns, new, list(zip(owns, lifts, strict=True)))
            judged += [selftune.Judged({"new_l2": l2, "own": own}, row) for own, row in zip(owns, values, strict=True)]
        return judged

    trials = min(1, model.tune_trials)
    selftune.settle(model, objective, jury, rng, searched=(), free=("new_l2", "own"), trials=trials)


def place_new_items(scores: FloatArray, guide: FloatArray, history: Csr, new: NDArray[np.bool_]) -> None:
    """Set the scores of new items, in place: as many unseen known items are above each as in the guide's scores.

    Between two known items, and above all of them, scores keep the guide's distances, in the scale of `scores`.
    """
    unseen = np.tile(~new, (len(scores), 1))
    unseen[row_numbers(history), history.indices] = False
    for own, theirs, known, scale in zip(scores, guide, unseen, spread(scores, history, new), strict=True):
        if known.any():
            places, values = np.sort(theirs[known]), np.sort(own[known])
            asked = theirs[new]
            own[new] = np.interp(asked, places, values) + scale * np.maximum(asked - places[-1], 0)


def spread(scores: FloatArray, history: Csr, new: NDArray[np.bool_]) -> FloatArray:
    """Return the standard deviation of each user's scores of unseen items that are not new, (users,)."""
    counted = np.tile(~new, (len(scores), 1))
    counted[row_numbers(history), history.indices] = False
    return np.asarray(np.std(scores, axis=1, dtype=np.float64, where=counted), np.float32)


def people_weights(train: Csr, users: Csr, l2: float) -> FloatArray:
    """Return the regression of the rows on user features, for users without known items, (1 + features, items)."""
    known = users.toarray().astype(np.float64)
    about = np.hstack([np.ones((len(known), 1)), known])  # (users, 1 + features)
    ridge = np.r_[1e-6, np.full(known.shape[1], l2)]
    found = np.linalg.solve(about.T @ about + np.diag(ridge), (train.T @ about).T)
    return np.asarray(found, np.float32)


def no_features(n_items: int) -> dict[str, Any]:
    """Return the learned arrays of a model without signals."""
    wide, high = np.zeros((0, n_items), np.float32), np.zeros((n_items, 0), np.float32)
    empty = {"shared_": wide, "map_": high, "links_": high[:0], "new_": np.zeros(n_items, bool), "people_": wide}
    added = {"added_columns_": high, "added_rows_": wide, "features_": csr_array(high)}
    chosen = dict.fromkeys(("recency_", "trend_", "feature_l2_", "new_l2_", "own_", "lift_"))
    return {"typical_": np.ones(2, np.float32)} | empty | added | chosen


def with_added(saved: Callable[[str], NDArray[Any]], features: Csr, kept: Csr) -> dict[str, NDArray[Any] | Csr]:
    """Return the learned arrays that change when items with these `features` are added, without a fit.

    `saved` reads one array of a saved model; `kept` are its `features_`, with items that were added before.
    """
    mapped, n_items = saved("map_"), len(saved("new_"))
    known = vstack([kept, features]).tocsr().astype(np.float32)
    added = known[n_items:]
    rows = np.hstack([added @ saved("shared_"), (added @ saved("links_")) @ added.T.toarray()])
    within = np.arange(added.shape[0])
    rows[within, n_items + within] = 0
    columns = np.ascontiguousarray((added @ mapped.T).T)
    return {"features_": known, "added_columns_": columns, "added_rows_": rows.astype(np.float32)}


def dense(scores: FloatArray | Csr) -> FloatArray:
    """Return a product of sparse and dense, or of two sparse matrices, as an array."""
    return scores.toarray() if isinstance(scores, csr_array) else np.asarray(scores)


def scale_columns(weights: FloatArray | Csr, scale: FloatArray) -> None:
    """Multiply the columns of weights by factors, in place."""
    if isinstance(weights, csr_array):
        weights.data *= scale[weights.indices]
    else:
        weights *= scale
