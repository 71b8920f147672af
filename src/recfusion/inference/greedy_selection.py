"""Greedy selection of a list, item by item: limits per category, target shares and diversity."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from recfusion.core.arrays import Csr, FloatArray, IntArray
from recfusion.evaluation.topk import top_k
from recfusion.inference.bundle import Bundle
from recfusion.inference.categories import Categories
from recfusion.inference.filters import CategoryLimit
from recfusion.inference.request import Reranking, errors_about

_FEWEST, _PER_PLACE = 100, 5  # candidates of a list: at least 100, or 5 for each place
_MIX = 0.01  # share of the target mixed into a list's distribution: keeps the divergence finite (Steck 2018)


@dataclass(frozen=True)
class Reranker:
    """Repeatedly selects the candidate with the highest value among those that the limits still allow.

    With relevance r (the score, 0 to 1 over the candidates), the largest similarity m of an item in the list to the
    candidate, and the divergence KL(p, q) of the target shares p from the shares q of the list with the candidate, the
    value is (1 - d) (1 - c) r - d m - c KL, d and c being diversity and calibration. Without these two controls it is
    the score.
    """

    bundle: Bundle
    limits: Sequence[CategoryLimit]
    diversity: float
    calibration: float  # 0 without a target
    target: FloatArray | None  # p, (categories + 1,): the last is the share of all other values
    chances: FloatArray | None  # p(category | item), (items, categories + 1)

    @classmethod
    def of(cls, bundle: Bundle, limits: Sequence[CategoryLimit], reranking: Reranking) -> "Reranker | None":
        """Return the re-ranker for these limits and weights; None if the order of the scores is the list."""
        if not limits and not reranking.diversity and not reranking.shares:
            return None
        target = chances = None
        for column, wanted in reranking.shares.items():
            with errors_about(f"reranking.shares.{column}"):
                target, chances = _target(bundle.categories(column), wanted)
        calibration = reranking.calibration if reranking.shares else 0.0
        return cls(bundle, limits, reranking.diversity, calibration, target, chances)

    def lists(self, scores: FloatArray, seen: Csr, k: int) -> tuple[IntArray, FloatArray]:
        """Return (items, scores) of each user's list, as `top_k` does; `scores` is overwritten."""
        n_items = scores.shape[1]
        k = min(k, n_items)
        columns, _ = top_k(scores, seen, min(n_items, max(_FEWEST, _PER_PLACE * k)))
        items, found = np.full((len(scores), k), -1), np.full((len(scores), k), -np.inf, np.float32)
        for row, best in enumerate(columns):
            candidates = self._with_targets(best[best >= 0], scores[row], k)
            chosen = self._chosen(candidates, scores[row][candidates], k)
            if len(chosen) < k and len(candidates) < np.count_nonzero(scores[row] > -np.inf):
                every = np.argsort(-scores[row], kind="stable")
                candidates = every[scores[row][every] > -np.inf]
                chosen = self._chosen(candidates, scores[row][candidates], k)
            items[row, : len(chosen)] = candidates[chosen]
            found[row, : len(chosen)] = scores[row][candidates[chosen]]
        return items, found

    def _with_targets(self, candidates: IntArray, scores: FloatArray, k: int) -> IntArray:
        """Return the candidates and the K best items of each category with a target share, best first."""
        if self.target is None or self.chances is None:
            return candidates
        more = [candidates]
        for number in np.flatnonzero(self.target):
            own = np.flatnonzero((self.chances[:, number] > 0) & (scores > -np.inf))
            more.append(own[np.argsort(-scores[own], kind="stable")[:k]])
        every = np.unique(np.concatenate(more))
        return every[np.argsort(-scores[every], kind="stable")]

    def _chosen(self, candidates: IntArray, scores: FloatArray, k: int) -> list[int]:
        """Return the positions of the chosen candidates in the order of their selection."""
        value, left = scores.astype(np.float64), np.ones(len(candidates), bool)
        if (self.diversity or self.target is not None) and len(candidates):
            low, high = value.min(), value.max()
            value = (value - low) / max(high - low, 1e-12)
            value *= (1 - self.diversity) * (1 - self.calibration)
        close = np.zeros(len(candidates))
        place_of = np.full(len(self.bundle.items), -1)
        place_of[candidates] = np.arange(len(candidates))
        chances = self.chances[candidates] if self.chances is not None else None
        held = np.zeros(0 if self.target is None else len(self.target))
        belongs = [limit.categories.matrix[candidates].toarray() > 0 for limit in self.limits]
        used = [np.zeros(one.shape[1], np.int64) for one in belongs]
        chosen: list[int] = []
        while len(chosen) < k and left.any():
            now = value
            if self.diversity:
                now = now - self.diversity * close
            if chances is not None:
                shares = ((held + chances) / (len(chosen) + 1)).astype(np.float32)
                now = now - self.calibration * self._divergence(shares)
            place = int(np.argmax(np.where(left, now, -np.inf)))
            chosen.append(place)
            left[place] = False
            if self.diversity:
                near, alike = self.bundle.similarity.nearest(int(candidates[place]))
                there = place_of[near]
                np.maximum.at(close, there[there >= 0], alike[there >= 0])
            if chances is not None:
                held += chances[place]
            for limit, member, count in zip(self.limits, belongs, used, strict=True):
                count += member[place]
                full = count >= limit.most
                if (full & member[place]).any():
                    left &= ~member[:, full].any(1)
        return chosen

    def _divergence(self, q: FloatArray) -> FloatArray:
        """Return KL(p, (1 - mix) q + mix p) for each row of q, (candidates,)."""
        assert self.target is not None
        p = self.target[self.target > 0]
        mixed = (1 - _MIX) * q[:, self.target > 0] + _MIX * p
        return np.sum(p * np.log(p / mixed), axis=1)


def _target(categories: Categories, wanted: Mapping[str, float]) -> tuple[FloatArray, FloatArray]:
    """Return the target shares of the named values and of all others, and p(value | item) of the same."""
    numbers = [categories.number(name) for name in wanted]
    shares = np.array([*wanted.values(), max(0.0, 1 - sum(wanted.values()))])
    own = categories.chances[:, numbers].toarray()
    return shares / shares.sum(), np.hstack([own, np.maximum(0, 1 - own.sum(1, keepdims=True))])
