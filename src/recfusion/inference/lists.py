"""From histories to lists: the one path that batch frames, single users, the HTTP service and Spark use.

Items that filters exclude are masked here, before the selection.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from scipy.sparse import csr_array

from recfusion.core.arrays import Csr, FloatArray, IntArray, row_numbers
from recfusion.core.errors import InputError
from recfusion.data.signals import Extra
from recfusion.evaluation.scoring import read_by
from recfusion.evaluation.scoring import scores as model_scores
from recfusion.evaluation.topk import top_k
from recfusion.inference.bundle import Bundle
from recfusion.inference.explanations import Basis, Explanation, explain
from recfusion.inference.filters import AllowedItems, apply_filters, check_count
from recfusion.inference.greedy_selection import Reranker
from recfusion.inference.histories import Histories, check_history, histories_from_entries
from recfusion.inference.request import Filters, ItemFilters, ListRequest, Reranking
from recfusion.inference.reranking import log_relevance, n_assumed_items, scoring_terms
from recfusion.models.abilities import find_lists, finds_lists
from recfusion.models.base import Recommender


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
    include_seen: bool

    @classmethod
    def of(cls, bundle: Bundle, filters: ItemFilters | None = None, reranking: Reranking | None = None) -> "ListMaker":
        """Apply filters and re-ranking weights to the item table."""
        filters, reranking = filters or Filters(), reranking or Reranking()
        allowed = apply_filters(filters, bundle)
        return cls(
            bundle=bundle,
            allowed=allowed,
            reranking=reranking,
            terms=scoring_terms(reranking, bundle),
            reranker=Reranker.of(bundle, allowed.limits, reranking),
            include_seen=isinstance(filters, Filters) and filters.include_seen,
        )

    def lists(self, histories: Histories, k: int, *, why: int = 0, scores: FloatArray | None = None) -> Lists:
        """Return the lists of a batch of users, with up to `why` reasons for each item.

        `scores` (users, items) are the model's, if they are computed already; they are overwritten.
        """
        check_count("k", "item to recommend", k)
        history, extra = histories.matrix, histories.extra
        if self.reranking.adventurousness and _reads_entries(self.bundle.model, extra):
            raise InputError(
                "Adventurousness adds items to the history without ratings and times, which this model reads: leave it "
                "out, or use another model.",
                "reranking.adventurousness",
            )
        extended = history
        if scores is None and self._uses_index(extra):
            items, values = self._index_lists(history, k)
        else:
            scores = self._scores(histories, scores)
            extended = self._extend(history, scores)
            if extended is not history:
                scores = self._scores(replace(histories, matrix=extended))
            items, values = self._select(scores, history, extended, extra, k)
        basis = self._basis(histories)
        if not why:
            return Lists(items, values, basis)
        explanations = []
        for row, own in enumerate(items):
            one = slice(row, row + 1)
            parts = (history, extended) if len(items) == 1 else (history[one], extended[one])
            more = None if extra is None else extra.rows(one)
            explanations.append(explain(self.bundle, self.terms, basis[row], *parts, own[own >= 0], why, more))
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

    def _scores(self, histories: Histories, scores: FloatArray | None = None) -> FloatArray:
        """Return the model's scores (users, items); popularity for users without a history and features."""
        if scores is None:
            scores = model_scores(self.bundle.model, histories.matrix, histories.extra)
        for row, basis in enumerate(self._basis(histories)):
            if basis == "popularity":
                scores[row] = self.bundle.popularity
        return scores

    def _extend(self, history: Csr, scores: FloatArray) -> Csr:
        """Return the histories with the items that adventurousness assumes, the most likely ones by the scores."""
        if not self.reranking.adventurousness:
            return history
        lengths = np.diff(history.indptr)
        count = np.minimum(n_assumed_items(lengths, self.reranking.adventurousness), (history.shape[1] - lengths) // 2)
        items, _ = top_k(scores, history, max(1, int(count.max(initial=0))))
        joined = (np.arange(items.shape[1]) < count[:, None]) & (items >= 0)
        return with_items(history, np.nonzero(joined)[0], items[joined])

    def _select(
        self, scores: FloatArray, history: Csr, extended: Csr, extra: Extra | None, k: int
    ) -> tuple[IntArray, FloatArray]:
        """Return items and scores of the lists, (users, k), after re-ranking and filters."""
        if self.terms:
            scores = log_relevance(scores, extended) + sum(self.terms.values())
        if extended is not history:
            _move_last(scores, extended, history)
        if self.allowed.mask is not None:
            scores += np.where(self.allowed.mask, np.float32(0), np.float32(-np.inf))
        disliked = None if extra is None else extra.disliked
        if disliked is not None and not self.include_seen:
            scores[row_numbers(disliked), disliked.indices] = -np.inf
        seen = csr_array(history.shape, dtype=np.float32) if self.include_seen else history
        return top_k(scores, seen, k) if self.reranker is None else self.reranker.lists(scores, seen, k)

    def _uses_index(self, extra: Extra | None) -> bool:
        """Return whether the model's index finds the lists: it only knows the model's own scores."""
        plain = not self.terms and self.reranker is None and not self.reranking.adventurousness
        return plain and not self.include_seen and extra is None and finds_lists(self.bundle.model)

    def _index_lists(self, history: Csr, k: int) -> tuple[IntArray, FloatArray]:
        """Return the lists that the model's index finds; the most popular items for users without a history."""
        mask, popular = self.allowed.mask, self.bundle.popularity
        items, scores = find_lists(self.bundle.model, history, k, mask)
        empty = np.flatnonzero(np.diff(history.indptr) == 0)
        if len(empty):
            popular = popular if mask is None else np.where(mask, popular, np.float32(-np.inf))
            items[empty], scores[empty] = top_k(np.tile(popular, (len(empty), 1)), history[empty], k)
        return items, scores


def _move_last(scores: FloatArray, extended: Csr, history: Csr) -> None:
    """Move the assumed items behind all others, in their own order."""
    finite = np.isfinite(scores)
    span = np.max(scores, 1, where=finite, initial=-np.inf) - np.min(scores, 1, where=finite, initial=np.inf)
    assumed = (extended - history).tocoo()
    new = assumed.data > 0
    rows, columns = assumed.row[new], assumed.col[new]
    scores[rows, columns] -= (span + 1)[rows]


def _reads_entries(model: Recommender, extra: Extra | None) -> bool:
    """Return whether a model reads ratings or times of history entries."""
    read = read_by(model, extra)
    return read is not None and any(part is not None for part in (read.grades, read.times, read.disliked))


def with_items(history: Csr, rows: IntArray, columns: IntArray) -> Csr:
    """Return the histories with further items."""
    both_rows = np.concatenate([row_numbers(history), rows])
    both_columns = np.concatenate([history.indices, columns])
    ones = np.ones(len(both_rows), np.float32)
    return csr_array((ones, (both_rows, both_columns)), shape=history.shape)
