"""The mixture's arithmetic: standardised scores, and weights found on validation users."""

from dataclasses import dataclass, field
from typing import Self

import numpy as np
import pytest
from folds import fold

from conftest import csr, random_csr
from recfusion.core.arrays import Csr, FloatArray
from recfusion.core.rng import RngLike
from recfusion.data.split import Fold
from recfusion.evaluation.evaluate import evaluate
from recfusion.models.base import Recommender
from recfusion.models.thinning.mixture_weights import Ballot, find_weights, search_weights, standardised

SEEN = random_csr(6, 20, 0.3, 1)


@dataclass
class Told(Recommender):
    """A scorer that is told what is held out, and sees it through noise."""

    valid: Fold = field(compare=False)  # and so no setting
    signal: float
    noise: float
    seed: int = 0

    def fit(self, train: Csr, valid: Fold | None = None, *, rng: RngLike = None) -> Self:
        return self

    def score(self, history: Csr) -> FloatArray:
        known = {tuple(row.indices.tolist()): number for number, row in enumerate(self.valid.history)}
        rows = [known[tuple(row.indices.tolist())] for row in history]
        drawn = np.random.default_rng(self.seed).normal(size=self.valid.history.shape)[rows]
        return (self.signal * self.valid.held_out.toarray()[rows] + self.noise * drawn).astype(np.float32)


def judged(parts: dict[str, Recommender], weights: dict[str, float], valid: Fold) -> float:
    """Return NDCG@100 of the weighted sum of standardised scores."""

    class Mixed:
        def score(self, history: Csr) -> FloatArray:
            each = [
                np.float32(weights[name]) * standardised(part.score(history), history) for name, part in parts.items()
            ]
            return np.asarray(sum(each), np.float32)

    return evaluate(Mixed(), valid, valid.history, ("ndcg@100",), threads=1).mean()["ndcg@100"]


def test_standardised_scores_have_mean_0_and_deviation_1_over_unseen_items() -> None:
    scores = np.random.default_rng(0).normal(3, 7, SEEN.shape).astype(np.float32)
    found = standardised(scores.copy(), SEEN)
    seen = SEEN.toarray() > 0
    assert (found[seen] == 0).all()
    for row in range(6):
        own = found[row][~seen[row]]
        assert own.mean() == pytest.approx(0, abs=1e-6)
        assert own.std() == pytest.approx(1, abs=1e-5)
        plain = scores[row][~seen[row]]
        assert own == pytest.approx((plain - plain.mean()) / plain.std(), abs=1e-5)


def test_standardising_forgets_scale_and_offset_and_what_seen_items_score() -> None:
    scores = np.random.default_rng(0).normal(size=SEEN.shape).astype(np.float32)
    other = 100 * scores - 40
    other[SEEN.toarray() > 0] = 1e6
    assert standardised(other, SEEN) == pytest.approx(standardised(scores, SEEN), abs=1e-4)


@pytest.mark.parametrize("value", [0.0, 0.1, -3.7, 1e6])
def test_constant_scores_and_users_who_have_everything_become_0(value: float) -> None:
    history = csr([[0], [0, 1, 2, 3, 4], [], [0, 1, 2, 3]], 5)
    assert (standardised(np.full((4, 5), value, np.float32), history) == 0).all()


def test_items_that_a_part_never_recommends_are_level_with_its_worst() -> None:
    scores = np.array([[5, 1, -np.inf, 3, 2], [-np.inf] * 5, [1, 2, 3, 4, 5]], np.float32)
    found = standardised(scores, csr([[0], [1], [4]], 5))
    assert np.isfinite(found).all()
    assert found[0].argsort()[-2:].tolist() == [4, 3]
    assert found[0, 2] == found[0].min()
    assert (found[1] == 0).all()


def test_the_part_that_is_noise_gets_no_weight() -> None:
    valid = fold(40, held_out=40)  # so many that equal shares of noise would put others among them
    parts: dict[str, Recommender] = {"perfect": Told(valid, 1.0, 0.01), "noise": Told(valid, 0.0, 1.0, 1)}
    start = {"perfect": 0.5, "noise": 0.5}
    weights = find_weights(Ballot.of(parts, valid), start)
    assert weights["perfect"] > 0
    assert weights["noise"] <= 0.15 * weights["perfect"]
    assert judged(parts, weights, valid) == pytest.approx(1)
    assert judged(parts, start, valid) < 0.98


def test_the_search_takes_the_noise_out_of_a_part_that_is_not_perfect() -> None:
    valid = fold(60, held_out=20)
    parts: dict[str, Recommender] = {"good": Told(valid, 1.0, 0.5), "noise": Told(valid, 0.0, 1.0, 1)}
    weights = find_weights(Ballot.of(parts, valid), {"good": 0.3, "noise": 0.7})
    assert weights["noise"] < 0.2 * weights["good"]


@pytest.mark.parametrize("seed", range(4))
def test_searched_weights_are_never_behind_a_start_on_validation(seed: int) -> None:
    valid = fold(30, seed=seed)
    noise = np.random.default_rng(seed).uniform(0.3, 2, 3)
    parts: dict[str, Recommender] = {
        f"part {place}": Told(valid, 1.0, level, seed=10 * seed + place) for place, level in enumerate(noise.tolist())
    }
    starts = [dict.fromkeys(parts, 0.25), *({name: float(name == one) for name in parts} for one in parts)]
    found = search_weights(Ballot.of(parts, valid), starts)
    assert min(found.values()) >= 0
    assert sum(found.values()) == pytest.approx(1)
    best = judged(parts, found, valid)
    assert all(best >= judged(parts, start, valid) - 1e-9 for start in starts)


def ballot(gains: list[float]) -> Ballot:
    """Return users with two candidates, of whom part `one` puts the right one first and `two` the wrong one."""
    users = len(gains)
    up, down = np.tile([1.0, 0.0], (users, 1)), np.tile([0.0, 1.0], (users, 1))
    relevant = np.tile([True, False], (users, 1))
    return Ballot(("one", "two"), np.stack([up, down]).astype(np.float32), relevant, 1 / np.array(gains))


def test_the_judgement_of_a_ballot_is_that_of_the_mixture() -> None:
    valid = fold(30, n_items=900)
    parts: dict[str, Recommender] = {str(seed): Told(valid, 1.0, 0.8, seed=seed) for seed in range(3)}
    weights = {"0": 0.5, "1": 0.3, "2": 0.2}
    assert Ballot.of(parts, valid).ndcg(weights).mean() == pytest.approx(judged(parts, weights, valid), abs=1e-6)


def test_parts_that_are_joined_are_judged_as_their_mean_with_one_weight() -> None:
    valid = fold(30, n_items=900)
    parts: dict[str, Recommender] = {str(seed): Told(valid, 1.0, 0.8, seed=seed) for seed in range(3)}
    joined = Ballot.of(parts, valid).joined(["pair", "other", "pair"])
    assert joined.names == ("pair", "other")
    of_both = joined.ndcg({"pair": 0.6, "other": 0.4}).mean()
    assert of_both == pytest.approx(judged(parts, {"0": 0.3, "1": 0.4, "2": 0.3}, valid), abs=1e-6)


def test_a_gain_within_the_noise_leaves_the_usual_weights_and_a_clear_one_moves_them() -> None:
    """Putting the right item first gains each user 1 - 1/log2(3) = .369 in DCG, times what the user's DCG counts."""
    usual = {"one": 0.4, "two": 0.6}
    clear = find_weights(ballot([1.0, 1.01] * 20), usual)
    assert clear["one"] > 0.5 + 1e-6
    noisy = find_weights(ballot([1.0, *[1e-9] * 29]), usual)  # one user of thirty: gain 1 e, error 1 e
    assert noisy == pytest.approx(usual, abs=0.02)
    assert sum(clear.values()) == pytest.approx(1)


def test_weights_go_as_far_from_the_usual_ones_as_noise_allows() -> None:
    """Gains (2, 2, 0, 0) times .369: the mean is twice the standard error, so 3/4 of the way."""
    usual, gains = {"one": 0.4, "two": 0.6}, [2.0, 2.0, 1e-9, 1e-9]
    found = search_weights(ballot(gains), [usual])
    pulled = find_weights(ballot(gains), usual)
    assert found["one"] > 0.5
    assert pulled["one"] == pytest.approx(0.4 + 0.75 * (find_best(gains, usual) - 0.4), abs=1e-6)


def find_best(gains: list[float], usual: dict[str, float]) -> float:
    """Return the share of part `one` that the search finds, from all of its starts."""
    starts = [usual, {"one": 1.0, "two": 0.0}, {"one": 0.4, "two": 0.0}]
    return search_weights(ballot(gains), starts)["one"]


def test_a_part_with_next_to_nothing_is_dropped() -> None:
    found = find_weights(ballot([1.0, 1.0001] * 200), {"one": 0.4, "two": 0.6})
    assert found["two"] == 0 or found["two"] >= 0.02


def test_two_parts_that_err_in_different_ways_are_better_together() -> None:
    valid = fold(40)
    parts: dict[str, Recommender] = {name: Told(valid, 1.0, 0.6, seed) for seed, name in enumerate(("one", "two"))}
    weights = find_weights(Ballot.of(parts, valid), {"one": 0.9, "two": 0.1})
    assert min(weights.values()) > 0.3 * max(weights.values())
    assert judged(parts, weights, valid) > max(judged(parts, {"one": 1.0, "two": 0.0}, valid), 0) + 0.02
