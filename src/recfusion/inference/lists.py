"""From histories to lists: the one path that batch frames, single users, the HTTP service and Spark use.

Items that filters exclude are masked here, before the selection.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from recfusion.core.arrays import Csr, FloatArray, IntArray, keep_entries, row_numbers
from recfusion.core.errors import InputError
from recfusion.data.signals import Extra, valued
from recfusion.evaluation.scoring import read_by
from recfusion.evaluation.scoring import scores as model_scores
from recfusion.evaluation.topk import by_popularity, popular_first, top_k
from recfusion.inference.bundle import Bundle
from recfusion.inference.explanations import Basis, Explanation, explain, explain_bought
from recfusion.inference.filters import AllowedItems, apply_filters, check_count
from recfusion.inference.greedy_selection import Reranker
from recfusion.inference.histories import Histories, check_history, histories_from_entries
from recfusion.inference.request import ItemFilters, ListRequest, Reranking
from recfusion.inference.reranking import log_relevance, n_assumed_items, scoring_terms
from recfusion.models.abilities import find_lists, finds_lists
from recfusion.models.sequence.recency import newest

_RANKED = 1000  # unseen items whose scores define the scale of bought items


@dataclass(frozen=True)
class UserList:
    """One user's list; items are columns of the model."""

    items: list[int]
    scores: list[float]
    basis: Basis
    explanation: Explanation | None = None
    unknown: list[str] = field(default_factory=list)  # ids of the history that the model does not know


@dataclass(frozen=True)
class Lists:
    """Lists of some users: columns of the items and their scores, (users, k); -1 and -inf after the end of a list."""

    items: IntArray
    scores: FloatArray
    basis: list[Basis]  # of each user
    explanations: list[Explanation] | None = None  # of each user, if asked for

    def first(self, unknown: list[str]) -> UserList:
        """Return the first user's list as plain values."""
        items = self.items[0][self.items[0] >= 0].tolist()
        explanation = None if self.explanations is None else self.explanations[0]
        return UserList(items, self.scores[0][: len(items)].tolist(), self.basis[0], explanation, unknown)


def lists_for_requests(bundle: Bundle, requests: Sequence[ListRequest]) -> list[UserList | InputError]:
    """Return the list of each request; an error in one request is its result and leaves the others alone.

    All users are scored in one call of the model; filters and re-ranking are each request's own.
    """
    found: dict[int, UserList | InputError] = {}
    for place, request in enumerate(requests):
        try:
            check_history(bundle, request.history or ())
        except InputError as error:
            found[place] = error
    places = [place for place in range(len(requests)) if place not in found]
    if places:
        histories, unknown = histories_from_entries(bundle, [requests[place].history or () for place in places])
        # A model with an index is asked for each list; the others score all users at once.
        scores = None if finds_lists(bundle.model) else model_scores(bundle.model, histories.matrix, histories.extra)
    for row, place in enumerate(places):
        request, one = requests[place], slice(row, row + 1)
        try:
            maker = ListMaker.of(bundle, request, request.reranking)
            own = None if scores is None else scores[one]
            found[place] = maker.lists(histories.rows(one), request.k, why=request.why, scores=own).first(unknown[row])
        except InputError as error:
            found[place] = error
    return [found[place] for place in range(len(requests))]


@dataclass(frozen=True)
class ListMaker:
    """A model with filters and re-ranking weights, ready to make lists."""

    bundle: Bundle
    allowed: AllowedItems
    reranking: Reranking
    terms: dict[str, FloatArray]  # scoring terms of the re-ranking weights, (items,) each
    reranker: Reranker | None

    @classmethod
    def of(cls, bundle: Bundle, filters: ItemFilters | None = None, reranking: Reranking | None = None) -> "ListMaker":
        """Apply filters and re-ranking weights to the item table."""
        filters, reranking = filters or ItemFilters(), reranking or Reranking()
        allowed = apply_filters(filters, bundle)
        return cls(
            bundle=bundle,
            allowed=allowed,
            reranking=reranking,
            terms=scoring_terms(reranking, bundle),
            reranker=Reranker.of(bundle, allowed.limits, reranking),
        )

    @property
    def n_unknown(self) -> int:
        """The number of ids in the filters and pins that the item table does not have."""
        pins = {} if self.reranker is None else self.reranker.pins
        return self.allowed.unknown + len(self.reranking.pins) - len(pins)

    def lists(self, histories: Histories, k: int, *, why: int = 0, scores: FloatArray | None = None) -> Lists:
        """Return the lists of a batch of users, with up to `why` reasons for each item.

        `scores` (users, items) are the model's, if they are computed already; they are overwritten.
        """
        check_count("k", "item to recommend", k)
        history = histories.matrix
        extended, basis = histories, self._basis(histories)
        if scores is None and self._uses_index(histories):
            items, values = self._index_lists(history, k, basis)
        else:
            scores = self._scores(histories, basis, scores)
            extended = self._extend(histories, scores)
            if extended is not histories:
                scores = self._scores(extended, basis)
            items, values = self._select(scores, histories, extended.matrix, k)
        if not why:
            return Lists(items, values, basis)
        explanations = []
        for row, own in enumerate(items):
            one = slice(row, row + 1)
            assumed = extended.rows(one)
            parts, more = (history if len(items) == 1 else history[one], assumed.matrix), assumed.extra
            found = explain(self.bundle, self.terms, basis[row], *parts, own[own >= 0], why, more)
            explanations.append(explain_bought(self.bundle, histories.rows(one), own[own >= 0], found))
        return Lists(items, values, basis, explanations)

    def _basis(self, histories: Histories) -> list[Basis]:
        """Return what the list of each user is made from."""
        lengths = np.diff(histories.matrix.indptr).tolist()
        if all(lengths):
            return ["history"] * len(lengths)
        read = read_by(self.bundle.model, histories.extra)
        users = None if read is None else read.user_features
        featured = [0] * len(lengths) if users is None else np.diff(users.matrix.indptr).tolist()
        return [
            "history" if length else "features" if features else "popularity"
            for length, features in zip(lengths, featured, strict=True)
        ]

    def _scores(self, histories: Histories, basis: list[Basis], scores: FloatArray | None = None) -> FloatArray:
        """Return the model's scores (users, items), or popularity if the model has no information about a user.

        These users have no history and no features, or all their scores are equal, because their items have no
        neighbours. Their `basis` becomes "popularity".
        """
        if scores is None:
            scores = model_scores(self.bundle.model, histories.matrix, histories.extra)
        equal = scores.max(axis=1, initial=-np.inf) == scores.min(axis=1, initial=np.inf)
        basis[:] = ["popularity" if same else known for known, same in zip(basis, equal.tolist(), strict=True)]
        for row, known in enumerate(basis):
            if known == "popularity":
                scores[row] = self.bundle.popularity
        return scores

    def _extend(self, histories: Histories, scores: FloatArray) -> Histories:
        """Return the histories with the items that adventurousness assumes, the most likely ones by the scores."""
        history = histories.matrix
        if not self.reranking.adventurousness:
            return histories
        lengths = np.diff(history.indptr)
        count = np.minimum(n_assumed_items(lengths, self.reranking.adventurousness), (history.shape[1] - lengths) // 2)
        items, _ = top_k(scores, history, max(1, int(count.max(initial=0))))
        joined = (np.arange(items.shape[1]) < count[:, None]) & (items >= 0)
        extended = with_items(history, np.nonzero(joined)[0], items[joined])
        return replace(histories, matrix=extended, extra=_with_assumed(histories, extended))

    def _select(self, scores: FloatArray, histories: Histories, extended: Csr, k: int) -> tuple[IntArray, FloatArray]:
        """Return items and scores of the lists, (users, k), after re-ranking and filters."""
        history, bought = histories.matrix, self.allowed.bought
        if bought is not None:
            self._score_bought(scores, histories)
        if self.terms:
            scores = log_relevance(scores, extended) + sum(self.terms.values())
        if extended is not history:
            _move_last(scores, extended, history)
        if self.allowed.new is not None:
            own = scores[row_numbers(history), history.indices]
            scores += np.where(self.allowed.new, np.float32(0), np.float32(-np.inf))
            scores[row_numbers(history), history.indices] = own
        if self.allowed.mask is not None:
            scores += np.where(self.allowed.mask, np.float32(0), np.float32(-np.inf))
        if (gone := histories.returned) is not None:
            scores[row_numbers(gone), gone.indices] = -np.inf
        seen = history if bought is None else keep_entries(history, ~bought[history.indices])
        if self.reranker is not None:
            return self.reranker.lists(scores, seen, k)
        items, values = top_k(scores, seen, k)
        return popular_first(items, values, scores, self.bundle.popularity)

    def _score_bought(self, scores: FloatArray, histories: Histories) -> None:
        """Replace the scores of bought items by those of re-orders, which continue the scores of the unseen items."""
        rates, pairs, history = self.bundle.rates, histories.purchases, histories.matrix
        assert rates is not None
        assert pairs is not None
        _, unseen = top_k(scores.copy(), history, _RANKED, histories.returned)
        for row, (start, stop) in enumerate(itertools.pairwise(history.indptr.tolist())):
            if stop > start:
                own = unseen[row][np.isfinite(unseen[row])]
                scores[row, history.indices[start:stop]] = rates.scores(pairs.where(slice(start, stop)), own)

    def _uses_index(self, histories: Histories) -> bool:
        """Return whether the model's index finds the lists: it only knows the model's own scores."""
        returned = histories.extra is not None or (histories.returned is not None and histories.returned.nnz)
        plain = not self.terms and self.reranker is None and not self.reranking.adventurousness
        return plain and self.allowed.bought is None and not returned and finds_lists(self.bundle.model)

    def _index_lists(self, history: Csr, k: int, basis: list[Basis]) -> tuple[IntArray, FloatArray]:
        """Return the lists that the model's index finds; the most popular items if it says nothing about a user.

        These users have no history, or their items have no neighbours. Their `basis` becomes "popularity".
        """
        mask, popular = self.allowed.mask, self.bundle.popularity
        items, scores = by_popularity(*find_lists(self.bundle.model, history, k, mask), popular)
        blind = np.flatnonzero((np.diff(history.indptr) == 0) | ~np.any(np.isfinite(scores) & (scores != 0), axis=1))
        if len(blind):
            popular = popular if mask is None else np.where(mask, popular, np.float32(-np.inf))
            items[blind], scores[blind] = top_k(np.tile(popular, (len(blind), 1)), history[blind], k)
        for row in blind:
            basis[row] = "popularity"
        return items, scores


def _move_last(scores: FloatArray, extended: Csr, history: Csr) -> None:
    """Move the assumed items behind all others, in their own order."""
    finite = np.isfinite(scores)
    span = np.max(scores, 1, where=finite, initial=-np.inf) - np.min(scores, 1, where=finite, initial=np.inf)
    assumed = (extended - history).tocoo()
    new = assumed.data > 0
    rows, columns = assumed.row[new], assumed.col[new]
    scores[rows, columns] -= (span + 1)[rows]


def _with_assumed(histories: Histories, extended: Csr) -> Extra | None:
    """Return the signals of histories with assumed items: these are as new as the newest, with the median rating."""
    known, history = histories.extra, histories.matrix
    if known is None or (known.grades is None and known.times is None):
        return known
    rows = row_numbers(extended)
    keys, own = (row_numbers(m).astype(np.int64) * m.shape[1] + m.indices for m in (extended, history))
    given = np.isin(keys, own, assume_unique=True)

    def filled(values: Csr | None, usual: NDArray[Any]) -> Csr | None:
        if values is None:
            return None
        every = usual[rows].astype(values.dtype)
        every[given] = values.data
        return valued(extended, every)

    empty = np.zeros(history.shape[0], np.int64)
    latest = empty if known.times is None else np.where(np.diff(history.indptr) > 0, newest(known.times), 0)
    median = 1.0 if known.grades is None or not known.grades.nnz else float(np.median(known.grades.data))
    return replace(known, times=filled(known.times, latest), grades=filled(known.grades, empty + median))


def with_items(history: Csr, rows: IntArray, columns: IntArray) -> Csr:
    """Return the histories with further items."""
    both_rows = np.concatenate([row_numbers(history), rows])
    both_columns = np.concatenate([history.indices, columns])
    ones = np.ones(len(both_rows), np.float32)
    found = csr_array((ones, (both_rows, both_columns)), shape=history.shape)
    found.sort_indices()
    return found
