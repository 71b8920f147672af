"""The bound of the deep denoiser against brute force: Bayes' rule by plain sums, likelihoods by all chains."""

from itertools import product
from math import comb
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import thinning_bound as bounds
from conftest import csr, random_csr
from recfusion.core.arrays import Csr, column_counts
from recfusion.diffusion.binomial import Binomial
from recfusion.diffusion.process import Denoiser
from recfusion.models.thinning.deep import ThinningDeep
from thinning_bound import removed_rate, thinning_bound

SMALL: dict[str, Any] = {"width": 8, "latent": 4, "layers": 2, "max_epochs": 3}
LENGTHS = np.array([0, 3, 5, 0, 2, 1])  # users with 0, 1, 2, ... items
N_ITEMS = 4
STATES = torch.tensor(list(product((0.0, 1.0), repeat=N_ITEMS)))  # (16, 4)
TRAIN = csr([[0, 1], [0, 1, 2], [0], [0, 2], [1, 2, 3], [0, 1, 2, 3], [0, 1], [3]], N_ITEMS)


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def smoothed(train: Csr) -> Tensor:
    return torch.from_numpy((column_counts(train) + 0.5) / (train.shape[0] + 1))


def by_bayes(share: np.ndarray, k: int, a: float) -> float:
    """Return the mean of n - k under share[n] Binomial(k; n, a), by plain sums."""
    joint = [share[n] * comb(n, k) * a**k * (1 - a) ** (n - k) if n >= k else 0.0 for n in range(len(share))]
    return sum((n - k) * weight for n, weight in enumerate(joint)) / sum(joint)


def spread(lengths: np.ndarray, n_items: int) -> np.ndarray:
    """Return the shares of the lengths with a thousandth of all users spread evenly over 0..n_items."""
    counts = np.zeros(n_items + 1)
    counts[: len(lengths)] = lengths
    return 0.999 * counts / counts.sum() + 0.001 / (n_items + 1)


@pytest.mark.parametrize("a", [0.05, 0.5, 0.8, 0.999])
@pytest.mark.parametrize("k", [0, 1, 3, 5, 8])
def test_the_rate_is_bayes_rule_on_the_training_users_lengths(k: int, a: float) -> None:
    found = removed_rate(LENGTHS, 8, torch.tensor([k]), torch.tensor([a], dtype=torch.float64))
    assert found.item() == pytest.approx(by_bayes(spread(LENGTHS, 8), k, a), rel=1e-9, abs=1e-12)


def test_the_rate_of_one_row_does_not_depend_on_the_others() -> None:
    k, a = torch.tensor([0, 2, 4]), torch.tensor([0.3, 0.6, 0.9])
    together = removed_rate(LENGTHS, 8, k, a)
    alone = [removed_rate(LENGTHS, 8, k[[row]], a[[row]]).item() for row in range(3)]
    assert together.tolist() == pytest.approx(alone)


@pytest.mark.parametrize("k", [1, 3, 5])
def test_the_rate_vanishes_like_the_share_that_is_removed(k: int) -> None:
    """As a tends to 1, s / (1 - a) tends to (k + 1) share(k + 1) / share(k): one item more is all that may be gone."""
    share = spread(LENGTHS, 8)
    gone = torch.tensor([1e-6, 1e-7, 1e-8], dtype=torch.float64)
    found = removed_rate(LENGTHS, 8, torch.full((3,), k), 1 - gone) / gone
    assert found[1:].tolist() == pytest.approx([(k + 1) * share[k + 1] / share[k]] * 2, rel=5e-3)
    assert found[1].item() == pytest.approx(found[2].item(), rel=5e-3)


@pytest.mark.parametrize("k", [0, 2, 5, 6])
def test_where_all_users_have_as_many_items_the_rate_is_what_is_missing(k: int) -> None:
    """Exactly so without the thousandth of users that is spread over all lengths; nearly so with it."""
    lengths = np.array([0, 0, 0, 0, 0, 0, 40])
    alone = np.eye(7)[6]
    found = removed_rate(lengths, 10, torch.tensor([k]), torch.tensor([0.5])).item()
    assert by_bayes(alone, k, 0.5) == 6 - k
    assert found == pytest.approx(6 - k, abs=0.1)


def test_without_the_spread_the_rate_of_one_length_is_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "_SPREAD", 0.0)
    k = torch.arange(7)
    for a in (0.1, 0.9, 0.9999):
        found = removed_rate(np.array([0, 0, 0, 0, 0, 0, 40]), 10, k, torch.full((7,), a))
        assert found.tolist() == pytest.approx([6, 5, 4, 3, 2, 1, 0])


def test_a_user_longer_than_any_in_training_has_a_rate() -> None:
    found = removed_rate(LENGTHS, 8, torch.tensor([7, 8]), torch.tensor([0.5, 0.5]))
    assert 0 < found[0] < 1
    assert found[1] == 0


def captured(model: ThinningDeep, steps: int, monkeypatch: pytest.MonkeyPatch) -> tuple[Binomial, Denoiser]:
    """Return the process and the denoiser that `thinning_bound` hands to `elbo`."""
    seen: list[Any] = []
    with monkeypatch.context() as patch:
        patch.setattr(bounds, "elbo", lambda *given: seen.extend(given))
        thinning_bound(model, TRAIN, smoothed(TRAIN), rng(), steps=steps)
    return seen[0], seen[1]


def bernoulli(p: Tensor, x: Tensor) -> Tensor:
    """Return the log probability of the rows of x under independent entries, (..., rows)."""
    return torch.where(x > 0.5, p, 1 - p).double().log().sum(-1)


def reverse_tables(denoiser: Denoiser, steps: int) -> list[Tensor]:
    """Return p(x_{t-1} = 1 | x_t = state), (16, 4), for t = 1..T, by the formula for thinning."""
    tables = []
    with torch.no_grad():
        for t in range(1, steps + 1):
            before, now = 1 - (t - 1) / (steps + 1), 1 - t / (steps + 1)
            guess = torch.sigmoid(denoiser(STATES, torch.full((len(STATES),), t))).double()
            tables.append(torch.where(STATES > 0.5, 1.0, (before - now) / (1 - now) * guess))
    return tables


@pytest.mark.parametrize("steps", [1, 3])
def test_the_bound_is_unbiased_and_never_below_the_exact_likelihood(
    steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All 16 rows of four items: every chain is summed for -log p, every x_t for the bound's expectation."""
    model = ThinningDeep(**SMALL).fit(TRAIN, rng=0)
    _, denoiser = captured(model, steps, monkeypatch)
    tables, means = reverse_tables(denoiser, steps), smoothed(TRAIN)
    last = 1 / (steps + 1)
    density = bernoulli(last * means, STATES).exp()  # p(x_T)
    for table in reversed(tables):
        density = density @ bernoulli(table[:, None], STATES[None]).exp()  # from each state to each state
    assert density.sum().item() == pytest.approx(1, abs=1e-6)

    expected = torch.zeros(16, dtype=torch.float64)
    for row, x0 in enumerate(STATES.double()):
        final = bernoulli(last * x0, STATES).exp()  # q(x_T | x_0)
        possible = final > 0
        prior = bernoulli(last * means, STATES)
        expected[row] += (final[possible] * (final[possible].log() - prior[possible])).sum()
        for t, table in enumerate(tables, start=1):
            before, now = 1 - (t - 1) / (steps + 1), 1 - t / (steps + 1)
            at_t = bernoulli(now * x0, STATES).exp()
            for state in range(16):
                if at_t[state] == 0:
                    continue
                true = torch.where(STATES[state] > 0.5, 1.0, (before - now) / (1 - now) * x0)
                q = bernoulli(true, STATES).exp()
                reach = q > 0
                gap = q[reach].log() - bernoulli(table[state], STATES[reach])
                expected[row] += at_t[state] * (q[reach] * gap).sum()
    assert (expected >= -density.log() - 1e-6).all()

    copies = 1500
    users = csr([torch.nonzero(x0)[:, 0].tolist() for x0 in STATES for _ in range(copies)], N_ITEMS)
    drawn = thinning_bound(model, users, means, rng(1), steps=steps, draws=4).total.double().reshape(16, copies)
    error = drawn.std(1) / copies**0.5
    assert ((drawn.mean(1) - expected).abs() < 4.5 * error + 1e-4).all()
    assert (drawn.mean(1) + 4.5 * error + 1e-4 >= -density.log()).all()


def test_a_user_with_every_item_or_none_has_a_finite_bound() -> None:
    model = ThinningDeep(**SMALL).fit(TRAIN, rng=0)
    found = thinning_bound(model, csr([[], [0, 1, 2, 3]], N_ITEMS), smoothed(TRAIN), rng(), draws=200)
    for part in (found.L_T, found.L_steps, found.L_0):
        assert torch.isfinite(part).all()


def test_the_prior_s_part_is_finite_and_small_and_more_steps_change_the_whole_little() -> None:
    train = random_csr(60, 15, 0.25, 0)
    model = ThinningDeep(**SMALL).fit(train, rng=0)
    few, many = (thinning_bound(model, train, smoothed(train), rng(1), steps=steps, draws=100) for steps in (50, 200))
    for found in (few, many):
        assert torch.isfinite(found.L_T).all()
        assert (found.L_T >= 0).all()
        assert found.L_T.mean() < 0.05 * found.total.mean()
    assert many.L_T.mean() < few.L_T.mean()
    assert many.total.mean().item() == pytest.approx(few.total.mean().item(), rel=0.03)


def test_the_right_order_of_items_has_a_lower_bound_than_the_wrong_one() -> None:
    """Two groups with items of their own: a net that has learnt them beats one whose logits are turned over."""
    train = csr([[0, 1, 2], [3, 4, 5]] * 30, 6)
    model = ThinningDeep(**SMALL | {"max_epochs": 30}, lr=2e-2, weight_decay=0.0).fit(train, rng=0)
    good = thinning_bound(model, train, smoothed(train), rng(1), draws=50).total.mean()
    decoder = model.net_.get_submodule("decoder")
    with torch.no_grad():
        for parameter in decoder.parameters():
            parameter.neg_()
    assert thinning_bound(model, train, smoothed(train), rng(1), draws=50).total.mean() > good + 1
