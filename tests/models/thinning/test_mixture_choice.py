"""What a mixture chooses on validation users: dropped parts, entry weights beside weights of parts."""

from itertools import product

import numpy as np
import pytest

from recfusion.models.sequence.recency import UNWEIGHTED
from recfusion.models.thinning.mixture_choice import choose_together, contributions, found_weights, helpful_weights
from recfusion.models.thinning.mixture_weights import Ballot, variant

USERS, ITEMS = 200, 150


def ballot(noise: dict[str, float], seed: int = 0) -> Ballot:
    """Return scores that are the truth plus noise of some deviation; one item is relevant for each user."""
    rng = np.random.default_rng(seed)
    relevant = np.arange(ITEMS) == rng.integers(0, ITEMS, USERS)[:, None]
    scores = [relevant + deviation * rng.normal(size=relevant.shape) for deviation in noise.values()]
    return Ballot(tuple(noise), np.stack(scores).astype(np.float32), relevant, np.ones(USERS))


def test_no_subset_of_the_parts_with_the_same_shares_is_better() -> None:
    votes = ballot({"good": 0.5, "fair": 0.8, "noise": 5.0, "more noise": 9.0})
    usual = {"good": 0.2, "fair": 0.2, "noise": 0.3, "more noise": 0.3}
    found = helpful_weights(votes, usual)
    assert found["noise"] == found["more noise"] == 0
    whole = votes.ndcg(found).mean()
    for kept in product((0.0, 1.0), repeat=len(usual)):
        subset = {name: found[name] * keep for name, keep in zip(usual, kept, strict=True)}
        if any(subset.values()):
            assert votes.ndcg(subset).mean() <= whole + 1e-9
    assert all(added > 0 for added in contributions(votes, {k: v for k, v in found.items() if v}).values())


def test_dropping_nothing_leaves_the_weights_of_the_search() -> None:
    votes, usual = ballot({"one": 0.6, "two": 0.7}), {"one": 0.5, "two": 0.5}
    assert helpful_weights(votes, usual) == pytest.approx(found_weights(votes, usual))
    assert choose_together(votes, {}, usual, drop=False) == ({}, found_weights(votes, usual))


def test_powers_are_chosen_beside_the_other_parts() -> None:
    """Alone, both variants of `a` are equally good; beside `b`, the one with other errors than `b` is better."""
    rng = np.random.default_rng(1)
    relevant = np.arange(ITEMS) == rng.integers(0, ITEMS, USERS)[:, None]
    shared, own, third = (rng.normal(size=relevant.shape) for _ in range(3))
    usual, other = (0.5, 0.0), (1.0, 0.0)
    scores = np.stack([relevant + 0.5 * each for each in (shared, own, 0.8 * shared + 0.6 * third)]).astype(np.float32)
    votes = Ballot((variant("a", usual), variant("a", other), "b"), scores, relevant, np.ones(USERS))
    powers, weights = choose_together(votes, {"a": [usual, other]}, {"a": 0.5, "b": 0.5})
    assert powers == {"a": other}
    assert min(weights.values()) > 0.3
    given = {"a": 0.9, "b": 0.1}
    assert choose_together(votes, {"a": [usual]}, given, given) == ({"a": usual}, given)


def test_a_variant_without_powers_has_the_name_of_its_part() -> None:
    assert variant("ease", UNWEIGHTED) == "ease"
    assert variant("ease", (0.5, 1.0)) != variant("ease", (1.0, 0.5))
