"""Diffusion of sequences against sums over all cuts and all sequences, and draws against their chances."""

from itertools import permutations, product
from math import exp, log

import numpy as np
import pytest
import torch
from torch import Tensor

from ordered import Ordered, entry_log_probs
from recfusion.core.errors import InputError

THINGS = 4


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def reader(prefixes: Tensor, lengths: Tensor) -> Tensor:
    """Return logits that depend on all of a prefix and on its order."""
    first = torch.randn(THINGS, generator=rng(1))
    from_each = 2 * torch.randn(THINGS + 1, THINGS, generator=rng(2))
    out = []
    for prefix, length in zip(prefixes.tolist(), lengths.tolist(), strict=True):
        out.append(first + sum((from_each[i] / (length - k) for k, i in enumerate(prefix[:length])), torch.zeros(4)))
    return torch.stack(out)


def logits_of(entries: list[int]) -> Tensor:
    """Return what the reader says after each prefix, (n, things)."""
    n = len(entries)
    return reader(torch.tensor([entries] * n).reshape(n, n), torch.arange(n)) if n else torch.zeros(0, THINGS)


def with_cuts(entries: list[int], cuts: tuple[bool, ...]) -> float:
    """Return p(x^0 | cuts) by plain products; cuts[k] is the place after entry k."""
    chance, start = 1.0, 0
    for at in range(len(entries)):
        z = logits_of([*entries[: start + 1]])[start]
        left = [i for i in range(THINGS) if i not in entries[:at]]
        chance *= exp(z[entries[at]]) / sum(exp(z[i]) for i in left)
        if at < len(entries) - 1 and cuts[at]:
            start = at + 1
    return chance


def all_cuts(entries: list[int], rho: float) -> list[tuple[float, float]]:
    """Return the chance of each set of cuts, and p(x^0 | cuts)."""
    places = max(0, len(entries) - 1)
    return [
        (float(np.prod([rho if cut else 1 - rho for cut in cuts])), with_cuts(entries, cuts))
        for cuts in product((False, True), repeat=places)
    ]


@pytest.mark.parametrize("rho", [0.2, 0.7, 1.0])
@pytest.mark.parametrize("entries", [[2], [0, 3], [1, 3, 0], [3, 0, 2, 1]])
def test_likelihood_and_bound_are_the_sums_over_all_sets_of_cuts(entries: list[int], rho: float) -> None:
    noise, told = Ordered(rho), torch.tensor(entries)
    cuts = all_cuts(entries, rho)
    exact = noise.log_prob(logits_of(entries), told).item()
    assert exact == pytest.approx(log(sum(chance * p for chance, p in cuts)), abs=1e-6)
    bound = noise.bound(logits_of(entries), told).item()
    assert bound == pytest.approx(-sum(chance * log(p) for chance, p in cuts), abs=1e-6)
    assert bound >= -exact - 1e-9
    if rho == 1 or len(entries) == 1:
        assert bound == pytest.approx(-exact)


@pytest.mark.parametrize("rho", [0.3, 1.0])
@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_the_likelihoods_of_all_sequences_of_a_length_add_up_to_one(n: int, rho: float) -> None:
    every = (list(each) for each in permutations(range(THINGS), n))
    total = sum(Ordered(rho).log_prob(logits_of(each), torch.tensor(each)).exp().item() for each in every)
    assert total == pytest.approx(1, abs=1e-6)


def test_nothing_has_a_likelihood_of_one() -> None:
    nothing = torch.zeros(0, dtype=torch.long)
    assert Ordered(0.5).log_prob(torch.zeros(0, THINGS), nothing).item() == 0
    assert Ordered(0.5).bound(torch.zeros(0, THINGS), nothing).item() == 0


def test_every_entry_comes_back_from_one_place_and_farther_ones_by_the_reach() -> None:
    weights = Ordered.of_reach(2.0).weights(6)
    assert weights.sum(0).tolist() == pytest.approx([1] * 6)
    assert (weights[2, 3] / weights[2, 2]).item() == pytest.approx(exp(-1 / 2))
    assert (weights[2, 5] / weights[2, 2]).item() == pytest.approx(exp(-3 / 2))
    assert not weights.tril(-1).any()
    assert torch.equal(Ordered.of_reach(0.0).weights(3), torch.eye(3, dtype=torch.float64))


def test_what_is_past_or_earlier_in_the_block_is_no_candidate() -> None:
    found = entry_log_probs(torch.zeros(3, 5), torch.tensor([4, 0, 2])).exp()
    assert found.tolist() == [
        pytest.approx([1 / 5, 1 / 4, 1 / 3]),
        pytest.approx([0, 1 / 4, 1 / 3]),
        pytest.approx([0, 0, 1 / 3]),
    ]


@pytest.mark.parametrize("rho", [0.4, 1.0])
def test_sequences_are_drawn_as_often_as_their_likelihood_says(rho: float) -> None:
    draws, n = 6000, 3
    noise, nothing = Ordered(rho), torch.zeros(draws, 0, dtype=torch.long)
    found = noise.sample(reader, nothing, torch.zeros(draws, dtype=torch.long), torch.full((draws,), n), rng(3))
    seen = dict.fromkeys(permutations(range(THINGS), n), 0)
    for each in found.tolist():
        seen[tuple(each)] += 1
    for each, count in seen.items():
        p = noise.log_prob(logits_of(list(each)), torch.tensor(each)).exp().item()
        assert abs(count / draws - p) < 4.5 * (p * (1 - p) / draws) ** 0.5 + 1e-9, each


def test_a_sequence_that_is_begun_is_continued_to_its_own_length_and_nothing_comes_twice() -> None:
    begun = torch.tensor([[2, 0, -1], [1, 9, 9], [3, 2, 1]])
    found = Ordered(0.5).sample(reader, begun, torch.tensor([2, 1, 3]), torch.tensor([4, 2, 3]), rng(5))
    assert found[0, :2].tolist() == [2, 0]
    assert sorted(found[0].tolist()) == [0, 1, 2, 3]
    assert found[1, 0] == 1
    assert found[1, 1] in (0, 2, 3)
    assert found[1, 2:].tolist() == [-1, -1]
    assert found[2].tolist() == [3, 2, 1, -1]


@pytest.mark.parametrize("rho", [0.0, -0.1, 1.5, float("nan")])
def test_a_chance_of_cuts_that_is_none_is_refused(rho: float) -> None:
    with pytest.raises(InputError, match="0 < rho <= 1"):
        Ordered(rho)
