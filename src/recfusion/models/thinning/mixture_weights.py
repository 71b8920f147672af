"""The weights of a mixture: standardised scores, and a search on validation users that is shrunk by their noise."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from recfusion.core.arrays import Csr, FloatArray, row_numbers
from recfusion.data.split import Fold
from recfusion.evaluation.evaluate import batches
from recfusion.evaluation.metrics import MAIN_METRIC, Values, dcg, ideal_dcg, parse_metric
from recfusion.models.base import Recommender
from recfusion.models.sequence.recency import UNWEIGHTED, Powers
from recfusion.models.thinning.parts import part_scores

_STEPS = (0.4, 0.2, 0.1, 0.05)  # of the search, coarse to fine
_CANDIDATES = 600  # items that the search ranks for each user: the top-scored items of any part
_DEPTH = parse_metric(MAIN_METRIC)[1]  # of NDCG
_LEAST = 0.02  # parts with a smaller share are dropped

Weights = Mapping[str, float]
Tried = Mapping[str, Sequence[Powers]]  # part -> powers of recency and ratings, the usual ones first


def standardised(scores: FloatArray, history: Csr) -> FloatArray:
    """Return scores with mean 0 and deviation 1 over each user's unseen items, in place; seen items get 0."""
    rows, columns = row_numbers(history), history.indices
    never = scores == -np.inf
    if never.any():  # items that a part never recommends get its lowest score
        worst = np.min(scores, axis=1, initial=0, where=~never, keepdims=True)
        np.copyto(scores, worst, where=never)
    unseen = np.maximum(scores.shape[1] - np.diff(history.indptr), 1)[:, None]
    scores[rows, columns] = 0
    scores -= (scores.sum(1, dtype=np.float64)[:, None] / unseen).astype(np.float32)
    scores[rows, columns] = 0
    deviation = np.sqrt(np.square(scores).sum(1, dtype=np.float64)[:, None] / unseen)
    scores /= np.maximum(deviation, 1e-12).astype(np.float32)
    return scores


def weighted_sum(scores: Mapping[str, FloatArray], weights: Weights) -> FloatArray:
    """Return the sum of the parts' scores times their weights, (users, items)."""
    mixed = np.zeros_like(next(iter(scores.values())))
    for name, part in scores.items():
        if weights[name]:
            mixed += np.float32(weights[name]) * part
    return mixed


@dataclass(frozen=True)
class Ballot:
    """The parts' scores of candidate items of some users: all that NDCG@100 of a mixture needs."""

    names: tuple[str, ...]
    scores: FloatArray  # (parts, users, candidates), standardised
    relevant: NDArray[np.bool_]  # (users, candidates): held out
    ideal: Values  # (users,): the highest DCG that is possible

    @classmethod
    def of(cls, parts: Mapping[str, Recommender], fold: Fold, tried: Tried | None = None) -> "Ballot":
        """Score the users of a fold with every part, in batches, by each of the powers that are `tried` for it.

        The scores of `part` by powers p are named `variant(part, p)`; parts that are not weighted keep their names.
        """
        asked = [(name, powers) for name in parts for powers in (tried or {}).get(name, (UNWEIGHTED,))]
        found = [_candidates(parts, asked, fold.take(rows)) for rows in batches(*fold.history.shape)]
        scores, relevant = (np.concatenate(each, axis=-2) for each in zip(*found, strict=True))
        ideal = ideal_dcg(np.maximum(np.diff(fold.held_out.indptr), 1), _DEPTH)
        return cls(tuple(variant(*each) for each in asked), scores, relevant, ideal)

    def named(self, chosen: Mapping[str, str]) -> "Ballot":
        """Return a ballot with some of the scores under other names: new name -> name here."""
        places = [self.names.index(name) for name in chosen.values()]
        return replace(self, names=tuple(chosen), scores=self.scores[places])

    def joined(self, groups: Sequence[str]) -> "Ballot":
        """Return a ballot with the mean scores of each group of parts; `groups` has the group of each part."""
        names = tuple(dict.fromkeys(groups))
        members = [[part for part, group in enumerate(groups) if group == name] for name in names]
        return replace(self, names=names, scores=np.stack([self.scores[each].mean(0) for each in members]))

    def ndcg_of(self, name: str) -> Values:
        """Return each user's NDCG@100 under one of the scores, (users,)."""
        return self.named({name: name}).ndcg({name: 1.0})

    def ndcg(self, weights: Weights) -> Values:
        """Return each user's NDCG@100 under the weighted sum, (users,)."""
        mixed = np.tensordot(np.array([weights[name] for name in self.names], np.float32), self.scores, 1)
        depth = min(_DEPTH, mixed.shape[1])
        best = np.argpartition(-mixed, depth - 1, axis=1)[:, :depth]
        order = np.argsort(-np.take_along_axis(mixed, best, 1), axis=1, kind="stable")
        hits = np.take_along_axis(self.relevant, np.take_along_axis(best, order, 1), 1)
        return dcg(hits, _DEPTH) / self.ideal


def variant(name: str, powers: Powers) -> str:
    """Return the name of a part's scores by these powers."""
    return name if powers == UNWEIGHTED else f"{name} {powers}"


def _candidates(
    parts: Mapping[str, Recommender], asked: Sequence[tuple[str, Powers]], fold: Fold
) -> tuple[FloatArray, NDArray[np.bool_]]:
    history = fold.history
    of_parts = [part_scores(parts[name], history, fold.extra, powers) for name, powers in asked]
    scores = np.stack([standardised(each, history) for each in of_parts])  # (parts, users, items)
    highest = scores.max(axis=0)
    for seen in (history,) if fold.disliked is None else (history, fold.disliked):
        highest[row_numbers(seen), seen.indices] = -np.inf
    count = min(_CANDIDATES, highest.shape[1])
    chosen = np.argpartition(-highest, count - 1, axis=1)[:, :count]
    chosen.sort(axis=1)
    relevant = np.take_along_axis(fold.held_out.toarray() > 0, chosen, 1)
    theirs = np.take_along_axis(scores, chosen[None], 2)
    theirs[:, np.take_along_axis(highest, chosen, 1) == -np.inf] = -1e6  # a seen item, if there are too few others
    return theirs, relevant


def find_weights(ballot: Ballot, usual: Weights) -> dict[str, float]:
    """Return the shares (sum 1) with the highest NDCG@100 that a search finds, pulled towards the usual weights.

    With a gain g over the usual weights, of standard error e, the weights go a share 1 - (e / g)^2 of the way, and
    nowhere if g is not above e. Parts with tiny shares are dropped.
    """
    usual = _shares(usual)
    found = search_weights(ballot, [usual, *_starts(ballot, usual)])
    gain = ballot.ndcg(found) - ballot.ndcg(usual)
    mean, error = float(gain.mean()), float(gain.std() / np.sqrt(len(gain)))
    way = max(0.0, 1 - (error / mean) ** 2) if mean > 0 else 0.0
    pulled = {name: usual[name] + way * (found[name] - usual[name]) for name in usual}
    return _shares({name: share if share >= _LEAST else 0.0 for name, share in pulled.items()})


def search_weights(ballot: Ballot, starts: Sequence[Weights]) -> dict[str, float]:
    """Return the shares with the highest mean NDCG@100 that coordinate ascent finds from any of the starts."""
    climbed = [_climb(ballot, start) for start in starts]
    return _shares(max(climbed, key=lambda each: each[1])[0])


def _starts(ballot: Ballot, usual: Weights) -> list[dict[str, float]]:
    """Return further starts of the search: the best part alone, and the usual weights without the worst part."""
    alone = {one: float(ballot.ndcg({name: float(name == one) for name in usual}).mean()) for one in usual}
    best, worst = max(alone, key=alone.__getitem__), min(alone, key=alone.__getitem__)
    single = {name: float(name == best) for name in usual}
    fewer = {name: 0.0 if name == worst else share for name, share in usual.items()}
    return [single, fewer] if len(usual) > 1 else []


def _climb(ballot: Ballot, start: Weights) -> tuple[dict[str, float], float]:
    weights = dict(start)
    best = float(ballot.ndcg(weights).mean())
    for step in _STEPS:
        moved = True
        while moved:
            moved = False
            for name in weights:
                for change in (step, -step):
                    tried = weights | {name: max(0.0, weights[name] + change)}
                    if sum(tried.values()) > 0 and (score := float(ballot.ndcg(tried).mean())) > best + 1e-6:
                        weights, best, moved = tried, score, True
    return weights, best


def _shares(weights: Weights) -> dict[str, float]:
    total = sum(weights.values())
    return {name: weight / total for name, weight in weights.items()}
