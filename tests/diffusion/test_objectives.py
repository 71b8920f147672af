"""Objectives against hand numbers and against the bound they are part of."""

import math

import pytest
import torch
from torch import Tensor

from enumeration import all_bits, constant, exact_bound, linear
from recfusion.core.errors import InputError
from recfusion.diffusion.binomial import Binomial
from recfusion.diffusion.gaussian import Gaussian
from recfusion.diffusion.objectives import (
    bce_elbo,
    multinomial_removed,
    removal_weight,
    removed,
    simple,
)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def constantly(*values: float) -> "Constant":
    return Constant(torch.tensor([values], dtype=torch.float64))


class Constant:
    """A denoiser that has made up its mind; it remembers the steps it was asked for."""

    def __init__(self, out: Tensor) -> None:
        self.out, self.steps = out, list[int]()

    def __call__(self, xt: Tensor, t: Tensor) -> Tensor:
        self.steps += t.tolist()
        return self.out.expand(len(xt), -1)


def test_simple_is_the_squared_error_or_the_cross_entropy_of_x0() -> None:
    x0 = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    assert simple(Gaussian(linear(3)), constantly(0.5, 2), x0, generator()).tolist() == pytest.approx([0.25 + 4])
    predicted = constantly(0.5, 2, 9, 9)  # the second half is the variance
    assert simple(Gaussian(linear(3), "predicted"), predicted, x0, generator()).tolist() == pytest.approx([4.25])
    binary = simple(Binomial.thinning(linear(3)), constantly(0, math.log(3)), x0, generator())
    assert binary.tolist() == pytest.approx([math.log(2) + math.log(4)])


def test_simple_draws_every_step_and_calls_the_denoiser_once() -> None:
    denoiser = constantly(0, 0)
    simple(Gaussian(linear(5)), denoiser, torch.zeros(300, 2, dtype=torch.float64), generator())
    assert len(denoiser.steps) == 300
    assert set(denoiser.steps) == {1, 2, 3, 4, 5}


def test_the_bce_elbo_ends_in_the_binary_cross_entropy_of_x0() -> None:
    process = Binomial.thinning(linear(3), predicts="previous")
    x0 = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    bound = bce_elbo(process, constantly(0, math.log(3)), x0, generator())
    assert bound.L_0.tolist() == pytest.approx([math.log(2) + math.log(4)])
    with pytest.raises(InputError, match="predicts='previous'"):
        bce_elbo(Binomial.thinning(linear(3)), constantly(0, 0), x0, generator())
    with pytest.raises(InputError, match="got None"):
        bce_elbo(Gaussian(linear(3)), constantly(0, 0), x0, generator())
    with pytest.raises(InputError, match="predicts='x0', got"):
        simple(process, constantly(0, 0), x0, generator())


def test_removed_entries_are_ranked_among_those_that_are_absent() -> None:
    logits = torch.tensor([[1.0, 2.0, 3.0, 4.0]], dtype=torch.float64).log()
    x0, xt = torch.tensor([[1.0, 1.0, 0.0, 1.0]]).double(), torch.tensor([[0.0, 0.0, 0.0, 1.0]]).double()
    expected = -math.log(1 / 6) - math.log(2 / 6)  # the fourth was kept, and is no candidate
    assert multinomial_removed(logits, x0, xt).tolist() == pytest.approx([expected])
    assert multinomial_removed(logits, x0, xt, torch.tensor([4.0])).tolist() == pytest.approx([4 * expected])


def test_nothing_removed_costs_nothing_and_gives_no_nan() -> None:
    logits = torch.randn(2, 3, requires_grad=True)
    ones = torch.ones(2, 3)
    loss = multinomial_removed(logits, ones, ones).sum()
    (gradient,) = torch.autograd.grad(loss, logits)
    assert loss.item() == 0
    assert (gradient == 0).all()


def test_the_weight_of_removed_entries_is_one_over_the_share_removed() -> None:
    a = [1 - t / 10 for t in range(1, 11)]
    process = Binomial.thinning_from_survival(a)
    weight = removal_weight(process, torch.arange(1, 11))
    assert weight.tolist() == pytest.approx([1 / (1 - value) for value in a])
    assert removed(process, constantly(0, 0), all_bits(2), generator(), weighted=False).isfinite().all()


def test_removed_entries_ask_for_a_process_that_only_removes_and_for_its_survival() -> None:
    with pytest.raises(InputError, match="only removes ones"):
        removed(Binomial.bit_flips(constant(3, 0.5)), constantly(0, 0), all_bits(2).repeat(9, 1), generator())
    with pytest.raises(InputError, match=r"survival\(t\) = .*, got Gaussian without it"):
        removal_weight(Gaussian(linear(3)), torch.tensor([1]))


def test_the_ranking_gradient_of_the_thinning_bound_is_that_of_the_removed_entries() -> None:
    # With xhat_0 = s softmax(logits) the bound differs from the weighted cross-entropy by terms that do not depend on
    # the softmax, up to the step size: compare their differences between two rankings.
    n_steps, s = 200, 0.02
    process = Binomial.thinning_from_survival([1 - t / n_steps for t in range(1, n_steps)] + [0.0])
    x0 = torch.tensor([[1.0, 0.0, 0.0]], dtype=torch.float64)

    def bound(share: Tensor) -> float:
        def denoiser(xt: Tensor, t: Tensor) -> Tensor:
            absent = share * (1 - xt) + 1e-12
            return torch.logit(s * absent / absent.sum(1, keepdim=True))

        return exact_bound(process, denoiser, x0).item()

    def cross_entropy(share: Tensor) -> float:
        steps = torch.arange(1, n_steps + 1)
        rows, empty = share.log().expand(n_steps, -1), torch.zeros(n_steps, 3, dtype=torch.float64)
        loss = multinomial_removed(rows, x0.expand(n_steps, -1), empty, removal_weight(process, steps))
        return float((loss * (1 - process.survival(steps))).mean())  # x^t is empty with probability 1 - a_t

    first, second = torch.tensor([0.6, 0.3, 0.1]).double(), torch.tensor([0.2, 0.7, 0.1]).double()
    difference = bound(second) - bound(first)
    assert difference == pytest.approx(cross_entropy(second) - cross_entropy(first), rel=1e-3)
