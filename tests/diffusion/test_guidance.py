"""Guidance: a product of densities whose mean is known by hand, and samples of the conditional alone at strength 1."""

import pytest
import torch
from torch import Tensor

from recfusion.diffusion import Binomial, Gaussian, ancestral, guided, make_schedule
from recfusion.diffusion.process import Denoiser


def normal_denoiser(process: Gaussian, mean: float, variance: float) -> Denoiser:
    """E[x^0 | x^t] where x^0 ~ N(mean, variance)."""

    def best(xt: Tensor, t: Tensor) -> Tensor:
        abar = process.schedule.alpha_bar(t).float()[:, None]
        gain = abar.sqrt() * variance / (abar * variance + 1 - abar)
        return mean + gain * (xt - abar.sqrt() * mean)

    return best


@pytest.mark.parametrize("strength", [0.0, 1.0, 2.5])
def test_guided_means_follow_the_score_of_the_product_of_both_densities(strength: float) -> None:
    """With x^0 ~ N(0, 2) or, given c, N(3, 1), the product p^(1-w) p_c^w of the x^t is normal: its score by hand."""
    process = Gaussian(make_schedule("cosine", 20))
    both = normal_denoiser(process, 3.0, 1.0), normal_denoiser(process, 0.0, 2.0)
    xt, t = torch.linspace(-2, 4, 7)[:, None], torch.full((7,), 9)
    abar = float(process.schedule.alpha_bar(9))
    found = guided(*both, strength)(xt, t)
    score = (abar**0.5 * found - xt) / (1 - abar)  # Tweedie: the score of x^t that this x^0 means
    plain, given = (2 * abar + 1 - abar), (1 * abar + 1 - abar)  # variances of x^t
    expected = -(1 - strength) * xt / plain - strength * (xt - abar**0.5 * 3) / given
    assert torch.allclose(score, expected, atol=1e-4)


def test_samples_at_strength_1_are_those_of_the_condition_and_more_go_beyond_it() -> None:
    process = Gaussian(make_schedule("cosine", 60), variance="beta")
    both = normal_denoiser(process, 2.0, 0.25), normal_denoiser(process, 0.0, 1.0)
    drawn = {
        strength: ancestral(process, guided(*both, strength), (4000, 1), torch.Generator().manual_seed(0))
        for strength in (0.0, 1.0, 2.0)
    }
    assert float(drawn[0.0].mean()) == pytest.approx(0, abs=0.06)
    assert float(drawn[1.0].mean()) == pytest.approx(2, abs=0.05)
    assert float(drawn[1.0].std()) == pytest.approx(0.5, abs=0.05)
    assert float(drawn[2.0].mean()) > 2.2


def test_logits_of_zeros_and_ones_combine_to_those_of_the_product() -> None:
    """p = .2, given c .5: p^-1 p_c^2 is in proportion to .25 / .2 for a one and .25 / .8 for a zero."""
    both = (lambda xt, t: torch.zeros_like(xt)), (lambda xt, t: torch.full_like(xt, 0.25).log())
    process = Binomial.thinning_from_survival(torch.tensor([1e-9]), torch.tensor([0.5]))
    drawn = ancestral(process, guided(*both, 2.0), (20_000, 1), torch.Generator().manual_seed(0))
    assert float(drawn.mean()) == pytest.approx(1.25 / (1.25 + 0.3125), abs=0.01)
