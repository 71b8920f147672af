"""The published losses and their gradients against values computed by hand, on a chain of three fixed states."""

import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from conftest import random_csr
from recfusion.diffusion import Binomial, Gaussian, Normal, Schedule
from recfusion.diffusion.process import Denoiser
from recfusion.diffusion.published import previous_step_loss, published_loss
from recfusion.models.recfusion.recfusion import RecFusion
from recfusion.models.registry import make_model

BETAS = (0.1, 0.2, 0.4)
SCHEDULE = Schedule(torch.tensor(BETAS, dtype=torch.float64))
STATES = ((1.0, 0.5), (0.5, -0.5), (0.0, 2.0))  # Z after one, two and three steps
X0 = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
W = 0.5  # the denoiser's only parameter: its output is W times its input
C = -math.log(2 * math.pi) / 2


class FixedChain(Gaussian):
    """A Gaussian chain whose states are given."""

    def q_step(self, x_prev: Tensor, t: Any) -> Normal:
        state = torch.tensor([STATES[t - 1]], dtype=x_prev.dtype).expand_as(x_prev)
        return Normal(state, torch.zeros_like(state))


def found(loss: Any, denoiser: Any, x0: Tensor = X0, **form: Any) -> tuple[float, float]:
    """Return the loss and its derivative by the denoiser's parameter."""
    w = torch.tensor(W, dtype=torch.float64, requires_grad=True)
    value = loss(FixedChain(SCHEDULE), denoiser(w), x0, None, schedule=SCHEDULE, **form).mean()
    return float(value.detach()), float(torch.autograd.grad(value, w)[0])


def scaled(w: Tensor) -> Denoiser:
    return lambda z, t: w * z


def log_normal(a: float, mean: float, variance: float) -> float:
    return C - math.log(variance) / 2 - (a - mean) ** 2 / (2 * variance)


def shrinks(o: float, beta: float) -> float:
    return log_normal(o, math.sqrt(1 - beta) * o, beta) - log_normal(o, 0, 1)


def shrinks_slope(o: float, beta: float) -> float:
    """d/do of `shrinks`: the first logarithm is -(1 - sqrt(1 - beta))^2 o^2 / (2 beta), the second -o^2 / 2."""
    return o - (1 - math.sqrt(1 - beta)) ** 2 * o / beta


def copies(z: float, o: float, beta: float) -> float:
    return log_normal(z, math.sqrt(1 - beta) * z, beta) - log_normal(z, o, math.exp(beta))


# The squared errors of the reconstruction, with outputs (.5, .25) at the first state: ((1 - .5)^2 + (0 - .25)^2) / 2.
RECONSTRUCTION = -2 * C + 0.3125 / 2
RECONSTRUCTION_SLOPE = -(1 - 0.5) * 1 - (0 - 0.25) * 0.5  # -(x - W z) z over the items


def test_the_mlp_pulls_every_output_to_its_own_input_and_shrinks_the_last_one() -> None:
    value, slope = found(published_loss, scaled, shrinks=False)
    wanted, wanted_slope = RECONSTRUCTION, RECONSTRUCTION_SLOPE
    wanted += shrinks(0, 0.1) + shrinks(1, 0.1)  # the last outputs, with the first rate
    wanted_slope += 2 * shrinks_slope(1, 0.1)
    for state, beta in zip(STATES, BETAS, strict=True):
        for z in state:
            wanted += copies(z, W * z, beta)
            wanted_slope -= (z - W * z) * z / math.exp(beta)
    assert value == pytest.approx(wanted)
    assert slope == pytest.approx(wanted_slope)
    assert (value, slope) == pytest.approx((10.555146, -0.538514), abs=1e-6)


def test_t_and_the_u_nets_only_shrink_their_outputs() -> None:
    value, slope = found(published_loss, scaled, shrinks=True)
    # Of three steps only the middle one has a term of its own, with outputs (.25, -.25).
    wanted = RECONSTRUCTION + shrinks(0, 0.1) + shrinks(1, 0.1) + 2 * shrinks(0.25, 0.2)
    wanted_slope = RECONSTRUCTION_SLOPE + 2 * shrinks_slope(1, 0.1) + 2 * 0.5 * shrinks_slope(0.25, 0.2)
    assert value == pytest.approx(wanted)
    assert slope == pytest.approx(wanted_slope)
    assert (value, slope) == pytest.approx((6.452000, 1.808400), abs=1e-6)


def test_a_picture_s_loss_is_the_mean_over_its_rows_of_sums_over_items() -> None:
    row, other = [1.0, 0.0], [1.0, 1.0]
    pictures = torch.tensor([[row, other, other], [row, row, row]], dtype=torch.float64)  # (pictures, rows, items)
    losses = published_loss(
        FixedChain(SCHEDULE), scaled(torch.tensor(W)), pictures, None, schedule=SCHEDULE, shrinks=True
    )
    # A row with both items differs in the reconstruction of the second: (1 - .25)^2 / 2 instead of .25^2 / 2.
    wanted = 6.452000 + 2 / 3 * (0.75**2 - 0.25**2) / 2
    assert losses.tolist() == pytest.approx([wanted, 6.452000], abs=1e-6)
    value, slope = found(published_loss, scaled, pictures[:1], shrinks=True)
    # Its slope there is -(1 - .25) .5 instead of -(0 - .25) .5.
    assert (value, slope) == pytest.approx((6.618667, 1.808400 - 2 / 3 * 0.5), abs=1e-6)


def test_a_predicted_variance_takes_the_place_of_the_noise_rate() -> None:
    def heads(w: Tensor) -> Denoiser:
        return lambda z, t: torch.cat([0.25 * z, w * torch.ones_like(z)], dim=-1)  # W is the log-variance

    value, slope = found(published_loss, heads, shrinks=False)
    wanted = -2 * C + ((1 - 0.25) ** 2 + 0.125**2) / 2
    wanted += shrinks(0, 0.1) + shrinks(2, 0.1)  # of the last state, which has no parameters
    wanted_slope = 0.0
    for state, beta in zip(STATES, BETAS, strict=True):
        for z in state:
            wanted += log_normal(z, math.sqrt(1 - beta) * z, beta) - log_normal(z, 0.25 * z, math.exp(W))
            wanted_slope += 0.5 - math.exp(-W) * (0.75 * z) ** 2 / 2
    assert value == pytest.approx(wanted)
    assert slope == pytest.approx(wanted_slope)
    assert (value, slope) == pytest.approx((13.401620, 2.019126), abs=1e-6)


def test_bin_adds_a_mean_of_the_swapped_cross_entropy_to_sums_over_items() -> None:
    def logits(w: Tensor) -> Denoiser:
        return lambda z, t: torch.log(w / (1 - w)) * torch.ones_like(z)  # every output is W after the sigmoid

    binary, slope = found(published_loss, logits, shrinks=False, binary=True)
    # -[o log x + (1 - o) log(1 - x)], with -100 for log 0 as torch computes it: 100 (1 - o) for x = 1, 100 o for x = 0.
    wanted, wanted_slope = (100 * (1 - W) + 100 * W) / 2, (-100 + 100) / 2
    wanted += 2 * shrinks(W, 0.1)
    wanted_slope += 2 * shrinks_slope(W, 0.1)
    for state, beta in zip(STATES, BETAS, strict=True):
        for z in state:
            wanted += copies(z, W, beta)
            wanted_slope -= (z - W) / math.exp(beta)
    assert binary == pytest.approx(wanted)
    assert slope == pytest.approx(wanted_slope)
    assert (binary, slope) == pytest.approx((59.150261, 0.669658), abs=1e-6)
    only_ones, slope = found(published_loss, logits, torch.ones(1, 2).double(), shrinks=False, binary=True)
    assert only_ones == pytest.approx(wanted)  # 100 (1 - W) for both items, in the mean
    assert slope == pytest.approx(wanted_slope - 100)


def test_the_gradient_of_bin_is_finite_on_zeros_and_ones() -> None:
    """With torch's own cross-entropy it is infinite, which ends the published training after one step."""
    net = nn.Linear(3, 3).double()
    x0 = torch.tensor([[1.0, 0.0, 1.0], [0.0, 0.0, 0.0]], dtype=torch.float64)
    process = Binomial.thinning(SCHEDULE)
    loss = published_loss(process, lambda z, t: net(z), x0, None, schedule=SCHEDULE, shrinks=False, binary=True)
    assert loss.shape == (2,)
    assert torch.autograd.grad(loss.sum(), net.weight)[0].isfinite().all()
    output = torch.sigmoid(net(x0))
    swapped = torch.nn.functional.binary_cross_entropy(x0, output)
    assert not torch.autograd.grad(swapped, net.weight)[0].isfinite().all()


def test_the_earlier_reading_pulls_every_output_to_the_state_before() -> None:
    value, slope = found(previous_step_loss, scaled)
    wanted, wanted_slope = RECONSTRUCTION, RECONSTRUCTION_SLOPE
    for step in (1, 2):
        for before, z in zip(STATES[step - 1], STATES[step], strict=True):
            beta, apart = BETAS[step], math.sqrt(1 - BETAS[step]) * before - W * z
            wanted += (beta - math.log(beta) + (beta + apart**2) / math.exp(beta) - 1) / 2
            wanted_slope -= apart * z / math.exp(beta)
    assert value == pytest.approx(wanted)
    assert slope == pytest.approx(wanted_slope)
    assert (value, slope) == pytest.approx((4.616051, 1.506477), abs=1e-6)


FORMS: Sequence[tuple[str, dict[str, bool]]] = [
    ("recfusion", {"shrinks": False}),
    ("recfusion-var", {"shrinks": False}),
    ("recfusion-t", {"shrinks": True}),
    ("recfusion-unet1d", {"shrinks": True}),
    ("recfusion-unet2d", {"shrinks": True}),
    ("recfusion-bin", {"shrinks": False, "binary": True}),
]


@pytest.mark.parametrize(("name", "form"), FORMS)
def test_every_variant_is_trained_with_its_own_published_loss(name: str, form: dict[str, bool]) -> None:
    train = random_csr(12, 10, 0.3, 0)
    model = make_model(name, {"preset": "paper", "max_epochs": 1, "picture_users": 12}).fit(train, rng=0)
    assert isinstance(model, RecFusion)
    schedule = model.fixed_schedule()
    assert schedule.betas.tolist() == pytest.approx([1e-4, ((1e-2 + 0.1**0.5) / 2) ** 2, 0.1])
    x0 = torch.from_numpy(train.toarray()).float()
    x0 = x0[None] if name == "recfusion-unet2d" else x0  # one picture
    process = model.make_process(model.means)
    wanted = published_loss(process, model.net_, x0, torch.Generator().manual_seed(3), schedule=schedule, **form)
    assert float(model.loss(train, model.net_, torch.Generator().manual_seed(3)).detach()) == pytest.approx(
        float(wanted.detach().mean())
    )
