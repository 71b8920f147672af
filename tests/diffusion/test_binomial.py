"""The binomial process against brute force over every path, for all constructors and schedules."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from enumeration import CHAINS, SCHEDULES, build, constant, harmonic, linear, paths, rates
from recfusion.core.errors import InputError
from recfusion.diffusion.binomial import Binomial
from recfusion.diffusion.process import Bits, kl
from recfusion.diffusion.schedule import Schedule

everywhere = [pytest.param(chain, name, id=f"{chain}, {name}") for chain in CHAINS for name in SCHEDULES]


def column(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)[:, None]


def check_against_paths(process: Binomial, u: list[float], d: list[float]) -> None:
    """Compare marginal, step and posterior of one entry with sums over all paths."""
    for x0 in (0, 1):
        known = list(paths(u, d, x0))
        for t in range(1, len(u) + 1):
            marginal = sum(p for path, p in known if path[t])
            assert process.q_marginal(column(x0), t).probs.item() == pytest.approx(marginal, abs=1e-12)
            step = 1 - d[t - 1] if x0 else u[t - 1]
            assert process.q_step(column(x0), t).probs.item() == pytest.approx(step, abs=1e-12)
            for xt in (0, 1):
                total = sum(p for path, p in known if path[t] == xt)
                both = sum(p for path, p in known if path[t] == xt and path[t - 1])
                expected = both / total if total > 0 else xt
                posterior = process.q_posterior(column(x0), column(xt), t)
                assert posterior.probs.item() == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(("chain", "name"), everywhere)
def test_every_distribution_equals_the_sum_over_all_paths(chain: str, name: str) -> None:
    check_against_paths(build(chain, SCHEDULES[name]), *rates(chain, SCHEDULES[name]))


@given(st.lists(st.tuples(st.floats(0.001, 1), st.floats(0.001, 1)), min_size=1, max_size=5))
def test_any_rates_equal_the_sum_over_all_paths(pairs: list[tuple[float, float]]) -> None:
    u, d = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    check_against_paths(Binomial(torch.tensor(u, dtype=torch.float64), torch.tensor(d, dtype=torch.float64), 0.5), u, d)


def test_the_papers_marginal_has_one_factor_too_many() -> None:
    schedule = Schedule(torch.tensor([0.1, 0.2, 0.3, 0.05]))
    abar = schedule.alpha_bar(4).item()
    process = Binomial.paper_kernel(schedule)
    assert process.q_marginal(column(1), 4).probs.item() == pytest.approx(abar + (1 - abar) / 2, abs=1e-7)
    assert process.q_marginal(column(1), 4).probs.item() == pytest.approx(0.7394, abs=5e-5)
    assert abar + (1 - abar) / 2 * abar == pytest.approx(0.6036, abs=5e-5)


@pytest.mark.parametrize(("chain", "name"), everywhere)
def test_draws_agree_with_the_marginal(chain: str, name: str) -> None:
    process, n = build(chain, SCHEDULES[name]), 4000
    rng = torch.Generator().manual_seed(0)
    x0 = torch.tensor([0.0, 1.0]).repeat(n, 1)  # (n, 2)
    for t in (1, 3, 5):
        p = process.q_marginal(x0[:1], t).probs[0]
        error = process.q_sample(x0, t, rng).mean(0) - p
        assert (error.abs() <= 4.5 * (p * (1 - p) / n).sqrt() + 1e-6).all()


def test_steps_and_entries_are_vectorised() -> None:
    means = torch.tensor([0.1, 0.5, 0.9])
    process = Binomial.drift(linear(4, 0.1, 0.5), means)
    rng = torch.Generator().manual_seed(1)
    x0, xt = (torch.rand(6, 2, 3, generator=rng).round().double() for _ in range(2))
    t = torch.tensor([1, 4, 2, 2, 3, 1])
    out = torch.randn(6, 2, 3, generator=rng, dtype=torch.float64)
    alone = [Binomial.drift(linear(4, 0.1, 0.5), float(m)) for m in means]
    for i in range(6):
        for j, single in enumerate(alone):
            pick = (slice(i, i + 1), slice(None), slice(j, j + 1))
            step = int(t[i])
            for whole, part in (
                (process.q_marginal(x0, t), single.q_marginal(x0[pick], step)),
                (process.q_step(x0, t), single.q_step(x0[pick], step)),
                (process.q_posterior(x0, xt, t), single.q_posterior(x0[pick], xt[pick], step)),
                (process.p_reverse(out, xt, t), single.p_reverse(out[pick], xt[pick], step)),
                (process.q_marginal(x0, step), single.q_marginal(x0[pick], step)),
            ):
                assert torch.allclose(whole.probs[pick], part.probs, atol=1e-7)
    assert torch.allclose(process.prior((6, 2, 3)).probs[0, 0], means)


@pytest.mark.parametrize(("chain", "name"), everywhere)
def test_the_reverse_step_mixes_posteriors_over_the_predicted_x0(chain: str, name: str) -> None:
    process = build(chain, SCHEDULES[name])
    logits, xt = column(-3, -0.5, 0, 2, 30), column(0, 1, 0, 1, 0)
    for t in range(1, 6):
        one, zero = (process.q_posterior(torch.full_like(xt, x0), xt, t).probs for x0 in (1.0, 0.0))
        expected = torch.sigmoid(logits) * one + torch.sigmoid(-logits) * zero
        assert torch.allclose(process.p_reverse(logits, xt, t).probs, expected, atol=1e-12, rtol=0)


def test_thinning_reverses_by_rho_times_the_prediction_and_never_unmakes_a_one() -> None:
    a = [0.8, 0.5, 0.1]
    process = Binomial.thinning_from_survival(a)
    logits = column(-2, 0, 3)
    for t, (before, now) in enumerate(zip([1.0, *a[:2]], a, strict=True), start=1):
        rho = (before - now) / (1 - now)
        absent = process.p_reverse(logits, torch.zeros_like(logits), t).probs
        assert torch.allclose(absent, rho * torch.sigmoid(logits), atol=1e-12)
        present = process.p_reverse(logits, torch.ones_like(logits), t)
        assert (present.probs == 1).all()
        assert (present.log_prob(torch.ones_like(logits)).abs() < 1e-30).all()


def test_the_denoiser_may_predict_the_previous_step_itself() -> None:
    process = Binomial.thinning(linear(3), predicts="previous")
    logits = column(-2, 5)
    assert torch.equal(process.p_reverse(logits, column(1, 0), 2).probs, torch.sigmoid(logits))


def test_for_small_steps_the_kl_tends_to_that_of_a_poisson_rate() -> None:
    x0_hat = column(0.01, 0.3, 0.9)
    logits = torch.logit(x0_hat)
    for x0 in (0.0, 1.0):
        limit = -x0 * x0_hat.log() - x0 + x0_hat  # x0 log x0 = 0 for both values
        for rho, tolerance in ((1e-2, 2e-2), (1e-5, 2e-5), (1e-8, 1e-7)):
            now = 0.5
            process = Binomial.thinning_from_survival([now + rho * (1 - now), now])
            xt = torch.zeros_like(logits)
            divergence = kl(process.q_posterior(xt + x0, xt, 2), process.p_reverse(logits, xt, 2))
            assert torch.allclose(divergence / rho, limit, rtol=tolerance, atol=tolerance)


def test_saturated_logits_and_certain_posteriors_give_finite_values_and_gradients() -> None:
    logits = torch.tensor([[-300.0, 300.0, -40.0, 40.0]], requires_grad=True)  # float32
    process = Binomial.thinning_from_survival([0.9, 0.5, 0.0])
    for t in (1, 2, 3):
        for x0 in (torch.zeros(1, 4), torch.ones(1, 4)):
            for xt in (torch.zeros(1, 4), x0 if t < 3 else torch.zeros(1, 4)):
                reverse = process.p_reverse(logits, xt, t)
                value = kl(process.q_posterior(x0, xt, t), reverse) if t > 1 else -reverse.log_prob(x0)
                assert value.isfinite().all()
                (gradient,) = torch.autograd.grad(value.sum(), logits)
                assert gradient.isfinite().all()


def test_the_kl_of_bits_agrees_with_the_definition() -> None:
    q, p = torch.tensor([0.0, 1.0, 0.25, 1e-9]).double(), torch.tensor([0.5, 0.25, 0.5, 1e-8]).double()
    divergence = kl(Bits(torch.logit(q).clamp(-708, 708)), Bits(torch.logit(p)))
    expected = [math.log(2), math.log(4), 0.25 * math.log(0.5) + 0.75 * math.log(1.5)]
    assert divergence[:3].tolist() == pytest.approx(expected, abs=1e-12)
    assert divergence[3].item() == pytest.approx(1e-9 * math.log(0.1) + 9e-9, rel=1e-6)


def test_the_prior_is_where_the_chain_takes_the_data() -> None:
    schedule = linear(3, 0.1, 0.5)
    assert Binomial.paper_kernel(schedule).prior_probability.item() == 0.5
    assert Binomial.bit_flips(schedule).prior_probability.item() == 0.5
    assert Binomial.drift(schedule, 0.2).prior_probability.item() == pytest.approx(0.2)
    survive = math.prod(1 - beta / 2 for beta in (0.1, 0.3, 0.5))
    assert Binomial.thinning(schedule, 0.2).prior_probability.item() == pytest.approx(0.2 * survive)
    assert Binomial(torch.tensor([0.1, 0.2]), torch.tensor([0.3, 0.6])).prior_probability.item() == pytest.approx(0.25)
    per_item = Binomial.thinning_from_survival([0.5], torch.tensor([0.1, 0.2]))
    assert per_item.prior((4, 2)).probs[0].tolist() == pytest.approx([0.05, 0.1])
    assert Binomial.thinning_from_survival([0.5, 0.0]).prior((1, 2)).probs.max() < 1e-30


def test_a_prior_that_makes_the_bound_infinite_is_refused() -> None:
    zeros, half = torch.zeros(2), torch.full((2,), 0.5)
    for prior in (None, 0.0, -0.1, 1.0, 1.5):  # None: thinning's stationary state is all zeros
        with pytest.raises(InputError, match="smoothed means"):
            Binomial(zeros, half, prior)
    with pytest.raises(InputError, match="smoothed means"):
        Binomial.thinning(linear(3), torch.tensor([0.0, 0.5]))
    with pytest.raises(InputError, match=r"means in \[0, 1\]"):
        Binomial.drift(linear(3), 1.5)


@pytest.mark.parametrize("bad", [-0.1, 1.1, math.nan])
def test_rates_that_leave_their_limits_are_refused(bad: float) -> None:
    good = torch.full((2,), 0.5)
    with pytest.raises(InputError, match=r"rates u in \[0, 1\]"):
        Binomial(torch.tensor([0.5, bad]), good)
    with pytest.raises(InputError, match=r"rates d in \[0, 1\]"):
        Binomial(good, torch.tensor([bad, 0.5]))
    with pytest.raises(InputError, match="one shape"):
        Binomial(good, torch.full((3,), 0.5))
    with pytest.raises(InputError, match="T >= 1"):
        Binomial(torch.empty(0), torch.empty(0))


def test_data_that_are_not_binary_are_refused() -> None:
    process = Binomial.paper_kernel(constant(1, 0.5))
    process.check_data(torch.tensor([[0.0, 1.0]]))
    with pytest.raises(InputError, match=r"got 0\.5 among 2"):
        process.check_data(torch.tensor([[0.0, 0.5, 3.0]]))
    with pytest.raises(InputError, match=r"x\.float"):
        process.check_data(torch.tensor([[0, 1]]))


def test_an_unknown_prediction_lists_the_choices() -> None:
    with pytest.raises(InputError, match="x0, previous"):
        Binomial.paper_kernel(harmonic(2), predicts="noise")  # type: ignore[arg-type]


def test_what_is_impossible_is_never_drawn() -> None:
    process, rng = Binomial.thinning_from_survival([0.5, 0.0]), torch.Generator().manual_seed(0)
    assert process.prior((3000, 2000)).draw(rng).sum() == 0
    zeros = torch.zeros(3000, 2000)
    assert process.q_step(zeros, 1).draw(rng).sum() == 0
    assert process.q_posterior(zeros, zeros + 1, 1).draw(rng).min() == 1
