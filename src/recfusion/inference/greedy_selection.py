"""Greedy selection of a list, item by item: limits per category, target shares, diversity, pins and new items."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from recfusion.core.arrays import Csr, FloatArray, IntArray
from recfusion.evaluation.topk import popular_first, top_k
from recfusion.inference.bundle import Bundle
from recfusion.inference.categories import Categories
from recfusion.inference.filters import CategoryLimit
from recfusion.inference.request import Reranking, errors_about
from recfusion.inference.reranking import ages

_FEWEST, _PER_PLACE = 100, 5  # candidates of a list: at least 100, or 5 for each place
_MIX = 0.01  # share of the target mixed into a list's distribution: keeps the divergence finite (Steck 2018)


@dataclass(frozen=True)
class Reranker:
    """Repeatedly selects the candidate with the highest value among those that the limits still allow.

    With relevance r (the score, 0 to 1 over the candidates), the largest similarity m of an item in the list to the
    candidate, and the divergence KL(p, q) of the target shares p from the shares q of the list with the candidate, the
    value is (1 - d) (1 - c) r - d m - c KL, d and c being diversity and calibration. Without these two controls it is
    the score. Pinned items are at their places. Where the list so far has too few new items, the best new one is next.
    """

    bundle: Bundle
    limits: Sequence[CategoryLimit]
    diversity: float
    calibration: float  # 0 without a target
    target: FloatArray | None  # p, (categories + 1,): the last is the share of all other values
    chances: FloatArray | None  # p(category | item), (items, categories + 1)
    pins: Mapping[int, int]  # place, from 1: column of an item
    new: NDArray[np.bool_]  # (items,)
    new_share: float  # least share of new items

    @classmethod
    def of(cls, bundle: Bundle, limits: Sequence[CategoryLimit], reranking: Reranking) -> "Reranker | None":
        """Return the re-ranker for these limits and weights; None if the order of the scores is the list."""
        least = reranking.new_share
        if not (limits or reranking.is_greedy):
            return None
        target = chances = None
        for column, wanted in reranking.shares.items():
            with errors_about(f"reranking.shares.{column}"):
                target, chances = _target(bundle.categories(column), wanted)
        calibration = reranking.calibration if reranking.shares else 0.0
        places = zip(reranking.pins, bundle.columns_of(list(reranking.pins.values())).tolist(), strict=True)
        pins = {int(place): column for place, column in places if column >= 0}
        new = np.zeros(len(bundle.items), bool)
        if least and reranking.new_column is not None:
            new = ages(bundle, reranking.new_column) <= reranking.new_days
        return cls(bundle, limits, reranking.diversity, calibration, target, chances, pins, new, least)

    def lists(self, scores: FloatArray, seen: Csr, k: int) -> tuple[IntArray, FloatArray]:
        """Return (items, scores) of each user's list, as `top_k` does; `scores` is overwritten."""
        n_items = scores.shape[1]
        k = min(k, n_items)
        best_first = top_k(scores, seen, min(n_items, max(_FEWEST, _PER_PLACE * k)))
        columns, _ = popular_first(*best_first, scores, self.bundle.popularity)
        items, found = np.full((len(scores), k), -1), np.full((len(scores), k), -np.inf, np.float32)
        for row, best in enumerate(columns):
            candidates = self._with_targets(best[best >= 0], scores[row], k)
            chosen = self._chosen(candidates, scores[row][candidates], k)
            if len(chosen) < k and len(candidates) < np.count_nonzero(scores[row] > -np.inf):
                candidates = self._best_first(np.flatnonzero(scores[row] > -np.inf), scores[row])
                chosen = self._chosen(candidates, scores[row][candidates], k)
            items[row, : len(chosen)] = candidates[chosen]
            found[row, : len(chosen)] = scores[row][candidates[chosen]]
        return items, found

    def _with_targets(self, candidates: IntArray, scores: FloatArray, k: int) -> IntArray:
        """Return the candidates, pins, and the K best new items and items of each target share, best first."""
        groups = [] if self.target is None or self.chances is None else list(self.chances.T[self.target > 0] > 0)
        groups += [self.new] if self.new_share else []
        if not groups and not self.pins:
            return candidates
        pinned = np.array(list(self.pins.values()), np.int64)
        more = [candidates, pinned[scores[pinned] > -np.inf]]
        for member in groups:
            own = np.flatnonzero(member & (scores > -np.inf))
            more.append(self._best_first(own, scores)[:k])
        return self._best_first(np.unique(np.concatenate(more)), scores)

    def _best_first(self, items: IntArray, scores: FloatArray) -> IntArray:
        """Return the items by their scores, and items with equal scores by popularity."""
        return items[np.lexsort((-self.bundle.popularity[items], -scores[items]))]

    def _chosen(self, candidates: IntArray, scores: FloatArray, k: int) -> list[int]:
        """Return the positions of the chosen candidates in the order of their selection."""
        value = scores.astype(np.float64)
        if (self.diversity or self.target is not None) and len(candidates):
            low, high = value.min(), value.max()
            value = (value - low) / max(high - low, 1e-12)
            value *= (1 - self.diversity) * (1 - self.calibration)
        close = np.zeros(len(candidates))
        place_of = np.full(len(self.bundle.items), -1)
        place_of[candidates] = np.arange(len(candidates))
        chances = self.chances[candidates] if self.chances is not None else None
        held = np.zeros(0 if self.target is None else len(self.target))
        left, new = _Left(self.limits, candidates), self.new[candidates]
        pins = {rank: int(place_of[item]) for rank, item in self.pins.items() if rank <= k and place_of[item] >= 0}
        pins = {rank: place for rank, place in sorted(pins.items()) if left.take(place)}
        chosen: list[int] = []
        while len(chosen) < k and (pins or left.mask.any()):
            rank = len(chosen) + 1
            if rank in pins or not left.mask.any():
                place = pins.pop(min(pins))
            else:
                now = value
                if self.diversity:
                    now = now - self.diversity * close
                if chances is not None:
                    shares = ((held + chances) / rank).astype(np.float32)
                    now = now - self.calibration * self._divergence(shares)
                behind = np.count_nonzero(new[chosen]) < int(self.new_share * rank + 1e-9)
                usable = left.mask & new if behind and (left.mask & new).any() else left.mask
                place = int(np.argmax(np.where(usable, now, -np.inf)))
                left.take(place)
            chosen.append(place)
            if self.diversity:
                near, alike = self.bundle.similarity.nearest(int(candidates[place]))
                there = place_of[near]
                np.maximum.at(close, there[there >= 0], alike[there >= 0])
            if chances is not None:
                held += chances[place]
        return chosen

    def _divergence(self, q: FloatArray) -> FloatArray:
        """Return KL(p, (1 - mix) q + mix p) for each row of q, (candidates,)."""
        assert self.target is not None
        p = self.target[self.target > 0]
        mixed = (1 - _MIX) * q[:, self.target > 0] + _MIX * p
        return np.sum(p * np.log(p / mixed), axis=1)


class _Left:
    """The candidates that can still be taken: neither taken nor excluded by the limits per category."""

    def __init__(self, limits: Sequence[CategoryLimit], candidates: IntArray) -> None:
        self.mask = np.ones(len(candidates), bool)
        members = [limit.categories.matrix[candidates].toarray() > 0 for limit in limits]
        self._counts = [
            (limit.most, member, np.zeros(member.shape[1], np.int64))
            for limit, member in zip(limits, members, strict=True)
        ]

    def take(self, place: int) -> bool:
        """Take a candidate, and return whether it could be taken."""
        if not self.mask[place]:
            return False
        self.mask[place] = False
        for most, member, count in self._counts:
            count += member[place]
            full = count >= most
            if (full & member[place]).any():
                self.mask &= ~member[:, full].any(1)
        return True


def _target(categories: Categories, wanted: Mapping[str, float]) -> tuple[FloatArray, FloatArray]:
    """Return the target shares of the named values and of all others, and p(value | item) of the same."""
    numbers = [categories.number(name) for name in wanted]
    shares = np.array([*wanted.values(), max(0.0, 1 - sum(wanted.values()))])
    own = categories.chances[:, numbers].toarray()
    return shares / shares.sum(), np.hstack([own, np.maximum(0, 1 - own.sum(1, keepdims=True))])
