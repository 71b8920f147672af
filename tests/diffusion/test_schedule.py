"""Schedules: their formulas, their limits, and the learned one."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from enumeration import SCHEDULES, constant, cosine, harmonic, linear, quadratic
from recfusion.core.errors import InputError
from recfusion.diffusion.schedule import LearnedSchedule, Schedule, from_survival, make_schedule


def test_the_published_schedule_is_quadratic_between_its_ends() -> None:
    middle = ((1e-2 + math.sqrt(0.1)) / 2) ** 2
    assert quadratic(3).betas.tolist() == pytest.approx([1e-4, middle, 0.1], abs=1e-15)


def test_each_named_schedule_has_its_rates() -> None:
    assert linear(3, 0.1, 0.5).betas.tolist() == pytest.approx([0.1, 0.3, 0.5])
    assert constant(2, 0.25).betas.tolist() == [0.25, 0.25]
    assert harmonic(4).betas.tolist() == pytest.approx([1 / 4, 1 / 3, 1 / 2, 1])
    assert harmonic(4).alpha_bar(torch.arange(5)).tolist() == pytest.approx([1, 0.75, 0.5, 0.25, 0])
    f = [math.cos((t / 2 + 0.008) / 1.008 * math.pi / 2) ** 2 for t in range(3)]
    assert cosine(2).alpha_bar(torch.arange(3)).tolist() == pytest.approx([1, f[1] / f[0], 0], abs=1e-15)
    assert make_schedule("constant", 2, 0.1, 0.4).betas.tolist() == [0.4, 0.4]


@pytest.mark.parametrize("name", SCHEDULES)
def test_steps_run_from_one_and_step_zero_is_the_data(name: str) -> None:
    schedule = SCHEDULES[name]
    t = torch.tensor([0, schedule.T, 1])
    assert schedule.beta(t).tolist() == [0, schedule.betas[-1].item(), schedule.betas[0].item()]
    assert schedule.alpha_bar(0).item() == 1
    assert schedule.alpha_bar(schedule.T).item() == pytest.approx(math.prod((1 - schedule.betas).tolist()))
    assert schedule.betas.dtype == torch.float64


def test_decreasing_reverses_the_rates() -> None:
    assert make_schedule("linear", 3, 0.1, 0.3, decreasing=True).betas.tolist() == pytest.approx([0.3, 0.2, 0.1])


@given(st.lists(st.floats(0.01, 0.99), min_size=1, max_size=8))
def test_a_survival_curve_comes_back(shares: list[float]) -> None:
    curve = torch.cumprod(torch.tensor(shares, dtype=torch.float64), 0)
    schedule = from_survival(curve)
    assert torch.allclose(schedule.alpha_bar(torch.arange(1, schedule.T + 1)), curve, rtol=1e-12, atol=0)


def test_a_survival_curve_may_stay_at_zero() -> None:
    assert from_survival([0.5, 0.0, 0.0]).betas.tolist() == [0.5, 1, 1]


@pytest.mark.parametrize("curve", [[0.5, 0.6], [1.2, 0.5], [0.5, -0.1], [0.5, 0.5], [1.0], [math.nan], []])
def test_a_curve_that_does_not_fall_within_its_limits_is_refused(curve: list[float]) -> None:
    with pytest.raises(InputError, match="survival curve"):
        from_survival(curve)


@pytest.mark.parametrize("n_steps", [0, -3])
def test_no_steps_are_refused(n_steps: int) -> None:
    for make in (quadratic, linear, cosine, harmonic):
        with pytest.raises(InputError, match="T >= 1"):
            make(n_steps)
    with pytest.raises(InputError, match="T >= 1"):
        Schedule(torch.empty(0))


@pytest.mark.parametrize(("low", "high"), [(0.0, 0.1), (-0.1, 0.1), (0.1, 1.1), (math.nan, 0.1)])
def test_rates_outside_their_limits_are_refused(low: float, high: float) -> None:
    for make in (linear, quadratic):
        with pytest.raises(InputError, match="noise rates beta in"):
            make(3, low, high)


def test_an_unknown_name_lists_the_choices() -> None:
    with pytest.raises(InputError, match="linear, quadratic, constant, cosine, harmonic"):
        make_schedule("sigmoid", 3)  # type: ignore[arg-type]


def test_steps_beyond_the_last_are_refused() -> None:
    for t in (-1, 4):
        with pytest.raises(InputError, match=r"t in 0\.\.3"):
            linear(3).alpha_bar(torch.tensor([1, t]))


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_learned_schedule_starts_at_a_fixed_one(name: str) -> None:
    learned = LearnedSchedule(SCHEDULES[name])
    assert torch.allclose(learned.betas, SCHEDULES[name].betas, atol=2e-6, rtol=0)
    t = torch.arange(learned.T + 1)
    assert torch.allclose(learned.alpha_bar(t), SCHEDULES[name].alpha_bar(t), atol=1e-5)


@given(st.lists(st.floats(-15, 15), min_size=1, max_size=6))
def test_any_parameters_give_a_falling_curve_in_closed_form(w: list[float]) -> None:
    learned = LearnedSchedule(constant(len(w), 0.5))
    with torch.no_grad():
        learned.w.copy_(torch.tensor(w))
    curve = learned.alpha_bar(torch.arange(len(w) + 1))
    assert (curve.diff() < 0).all()
    expected = torch.exp(-torch.nn.functional.softplus(learned.w).cumsum(0))
    assert torch.allclose(curve[1:], expected, rtol=1e-9)


def test_the_learned_curve_is_differentiable() -> None:
    learned = LearnedSchedule(linear(4, 0.1, 0.4))
    (gradient,) = torch.autograd.grad(learned.alpha_bar(torch.tensor([3])).sum(), learned.w)
    expected = -learned.alpha_bar(3) * learned.betas  # d log abar / dw = -sigmoid(w)
    assert torch.allclose(gradient[:3], expected[:3])
    assert gradient[3] == 0
