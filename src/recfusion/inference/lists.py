"""From scores to lists under rules and knobs: the one place where what may not come is masked, before selection."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from recfusion.core.arrays import Csr, FloatArray, IntArray, row_numbers
from recfusion.core.errors import InputError
from recfusion.data.signals import Extra
from recfusion.evaluation.scoring import read_by
from recfusion.evaluation.scoring import scores as model_scores
from recfusion.evaluation.topk import top_k
from recfusion.inference.bundle import Bundle
from recfusion.inference.filters import Allowed, Rules, allowed_items, check_count
from recfusion.inference.greedy_selection import Reranker
from recfusion.inference.reranking import Knobs, assumed_items, knob_terms, log_relevance
from recfusion.models.abilities import find_lists, finds_lists
from recfusion.models.base import Recommender


@dataclass(frozen=True)
class Lists:
    """Lists of some users: columns of the items and their scores, (users, k); -1 and -inf where a list ends."""

    items: IntArray
    scores: FloatArray


@dataclass(frozen=True)
class ListMaker:
    """A model under rules and knobs, ready to make lists."""

    bundle: Bundle
    allowed: Allowed
    knobs: Knobs
    terms: dict[str, FloatArray]  # of the soft knobs, (items,) each
    popularity: FloatArray  # (items,), the scores of a user without history
    reranker: Reranker | None
    include_seen: bool

    @classmethod
    def of(cls, bundle: Bundle, rules: Rules | None = None, knobs: Knobs | None = None) -> "ListMaker":
        """Read rules and knobs against the item table."""
        rules, knobs = rules or Rules(), knobs or Knobs()
        allowed = allowed_items(rules, bundle)
        return cls(
            bundle=bundle,
            allowed=allowed,
            knobs=knobs,
            terms=knob_terms(knobs, bundle.categories, bundle.counts),
            popularity=bundle.popularity,
            reranker=Reranker.of(bundle, allowed.limits, knobs),
            include_seen=rules.include_seen,
        )

    def lists(self, history: Csr, k: int, extra: Extra | None = None, scores: FloatArray | None = None) -> Lists:
        """Return the lists of one batch of users (users, items), with what else is known of them.

        The model's `scores` of them, where they are at hand, are overwritten.
        """
        check_count("item to recommend", k)
        if self.knobs.adventurousness and reads_entries(self.bundle.model, extra):
            raise InputError(
                "Adventurousness takes items for granted, of which no grades and times are known: leave it out, or use "
                "a model that reads none of them."
            )
        if scores is None and self._may_find(extra):
            return self._found(history, k)
        scores = self._plain(history, extra, scores)
        believed = self.believed(history, scores)
        if believed is not history:
            scores = self._plain(believed, extra)
        if self.terms:
            scores = log_relevance(scores, believed) + sum(self.terms.values())
        self._put_last(scores, believed, history)
        if self.allowed.mask is not None:
            scores += np.where(self.allowed.mask, np.float32(0), np.float32(-np.inf))
        disliked = None if extra is None else extra.disliked
        if disliked is not None and not self.include_seen:
            scores[row_numbers(disliked), disliked.indices] = -np.inf
        seen = csr_array(history.shape, dtype=np.float32) if self.include_seen else history
        if self.reranker is None:
            return Lists(*top_k(scores, seen, k))
        return Lists(*self.reranker.lists(scores, seen, k))

    def _may_find(self, extra: Extra | None) -> bool:
        """Return whether lists are what the model finds: the best by its own scores."""
        plain = not self.terms and self.reranker is None and not self.knobs.adventurousness and not self.include_seen
        return plain and extra is None and finds_lists(self.bundle.model)

    def _found(self, history: Csr, k: int) -> Lists:
        """Return what the model finds, and what is popular for users without a history."""
        mask = self.allowed.mask
        items, scores = find_lists(self.bundle.model, history, k, mask)
        empty = np.flatnonzero(np.diff(history.indptr) == 0)
        if len(empty):
            popular = self.popularity if mask is None else np.where(mask, self.popularity, np.float32(-np.inf))
            items[empty], scores[empty] = top_k(np.tile(popular, (len(empty), 1)), history[empty], k)
        return Lists(items, scores)

    def believed(self, history: Csr, scores: FloatArray | None = None) -> Csr:
        """Return the histories with what adventurousness takes for granted, by the model's scores for them."""
        if not self.knobs.adventurousness:
            return history
        scores = self._plain(history) if scores is None else scores
        lengths = np.diff(history.indptr)
        count = np.minimum(assumed_items(lengths, self.knobs.adventurousness), (history.shape[1] - lengths) // 2)
        items, _ = top_k(scores, history, max(1, int(count.max(initial=0))))
        joined = (np.arange(items.shape[1]) < count[:, None]) & (items >= 0)
        return with_items(history, np.nonzero(joined)[0], items[joined])

    def _plain(self, history: Csr, extra: Extra | None = None, scores: FloatArray | None = None) -> FloatArray:
        scores = model_scores(self.bundle.model, history, extra) if scores is None else scores
        empty = (np.diff(history.indptr) == 0) & ~self.described(history, extra)
        if empty.any():
            scores[empty] = self.popularity
        return scores

    def described(self, history: Csr, extra: Extra | None) -> NDArray[np.bool_]:
        """Return of which users the model reads features, (users,)."""
        read = read_by(self.bundle.model, extra)
        users = None if read is None else read.user_features
        return np.zeros(history.shape[0], bool) if users is None else np.diff(users.matrix.indptr) > 0

    def _put_last(self, scores: FloatArray, believed: Csr, history: Csr) -> None:
        """Put what is taken for granted behind everything else, in its own order: it comes where nothing else is."""
        if believed is history:
            return
        finite = np.isfinite(scores)
        span = np.max(scores, 1, where=finite, initial=-np.inf) - np.min(scores, 1, where=finite, initial=np.inf)
        assumed = (believed - history).tocoo()
        new = assumed.data > 0
        rows, columns = assumed.row[new], assumed.col[new]
        scores[rows, columns] -= (span + 1)[rows]


def reads_entries(model: Recommender, extra: Extra | None) -> bool:
    """Return whether a model reads more of the entries of histories than that they are there."""
    read = read_by(model, extra)
    return read is not None and any(part is not None for part in (read.grades, read.times, read.disliked))


def with_items(history: Csr, rows: IntArray, columns: IntArray) -> Csr:
    """Return the histories with further items."""
    both_rows = np.concatenate([row_numbers(history), rows])
    both_columns = np.concatenate([history.indices, columns])
    ones = np.ones(len(both_rows), np.float32)
    return csr_array((ones, (both_rows, both_columns)), shape=history.shape)
