"""Particles against the exact conditional distribution of a small model, where replacement is far off."""

import pytest
import torch
from torch import Tensor

from enumeration import TinyNet, all_bits, exact_log_likelihood, linear
from inpainting import condition
from recfusion.core.errors import InputError
from recfusion.diffusion import Binomial, Gaussian, inpaint

CHAINS = {
    "paper kernel": Binomial.paper_kernel(linear(3, 0.2, 0.7)),
    "thinning": Binomial.thinning_from_survival([0.7, 0.4, 0.1]),
    "drift": Binomial.drift(linear(3, 0.2, 0.7), 0.3),
}
MASK = torch.tensor([True, True, False])


class Single(TinyNet):
    def __init__(self) -> None:
        super().__init__(3, 4, 2.0)

    def forward(self, xt: Tensor, t: Tensor) -> Tensor:
        return super().forward(xt.double(), t).float()


@pytest.mark.parametrize("name", CHAINS)
def test_particles_find_the_exact_conditional_distribution_and_replacement_does_not(name: str) -> None:
    process, known, n = CHAINS[name], torch.tensor([[1.0, 0.0, 0.0]]), 3000
    probability = exact_log_likelihood(process, TinyNet(3, 4, 2.0), 3).detach().exp()
    given = (all_bits(3)[:, :2] == known[0, :2]).all(1)
    exact = (probability[given][1] / probability[given].sum()).item()
    many, mask = known.expand(n, 3), MASK.expand(n, 3)
    sample = condition(process, Single(), many, mask, torch.Generator().manual_seed(0), 64)
    assert torch.equal(sample[:, :2], many[:, :2])
    assert sample[:, 2].mean().item() == pytest.approx(exact, abs=0.035)
    replaced = inpaint(process, Single(), many, mask, torch.Generator().manual_seed(0))
    assert abs(replaced[:, 2].mean().item() - exact) > 0.3


def test_more_particles_are_nearer_to_the_truth() -> None:
    process, known = CHAINS["thinning"], torch.tensor([[1.0, 0.0, 0.0]]).expand(4000, 3)
    exact = 0.444
    shares = [
        condition(process, Single(), known, MASK.expand(4000, 3), torch.Generator().manual_seed(0), k)[:, 2].mean()
        for k in (1, 4, 64)
    ]
    errors = [abs(float(share) - exact) for share in shares]
    assert errors[0] > 2 * errors[1] > 4 * errors[2]


def test_gaussian_particles_find_the_conditional_of_correlated_pairs() -> None:
    """x^0 is a pair with correlation .9; the second is known to be 1, so the first has mean .9."""
    process = Gaussian(linear(20, 0.02, 0.4), "beta")
    spread = torch.tensor([[1.0, 0.9], [0.9, 1.0]])

    def denoiser(xt: Tensor, t: Tensor) -> Tensor:
        left = float(process.schedule.alpha_bar(int(t[0])))
        return xt @ (left**0.5 * spread @ torch.linalg.inv(left * spread + (1 - left) * torch.eye(2))).T

    known = torch.tensor([[0.0, 1.0]]).expand(1500, 2)
    mask = torch.tensor([False, True]).expand(1500, 2)
    sample = condition(process, denoiser, known, mask, torch.Generator().manual_seed(0), 32)
    assert (sample[:, 1] == 1).all()
    assert sample[:, 0].mean().item() == pytest.approx(0.9, abs=0.06)


def test_masks_and_numbers_that_do_not_fit_are_refused() -> None:
    known = torch.zeros(2, 3)
    for mask in (torch.zeros(2, 3), torch.zeros(2, 2, dtype=torch.bool)):
        with pytest.raises(InputError, match="boolean mask"):
            condition(CHAINS["thinning"], Single(), known, mask, None, 4)
    with pytest.raises(InputError, match="at least one particle, got 0"):
        condition(CHAINS["thinning"], Single(), known, known.bool(), None, 0)
