"""Samplers: their steps, their distribution on a tiny case, and what inpainting keeps."""

from itertools import pairwise

import pytest
import torch
from torch import Tensor

from enumeration import TinyNet, all_bits, exact_log_likelihood, harmonic, linear
from recfusion.core.errors import InputError
from recfusion.diffusion.binomial import Binomial
from recfusion.diffusion.gaussian import Gaussian
from recfusion.diffusion.process import Process
from recfusion.diffusion.sampling import (
    KnownAs,
    ancestral,
    denoise,
    forward_steps,
    inpaint,
    inpaint_steps,
    one_step,
    reverse_steps,
)

SCHEDULE = linear(3, 0.2, 0.7)
SURVIVAL = [0.7, 0.4, 0.1]
PROCESSES: dict[str, Process] = {
    "gaussian": Gaussian(SCHEDULE),
    "paper kernel": Binomial.paper_kernel(SCHEDULE),
    "thinning": Binomial.thinning_from_survival(SURVIVAL),
}


class Single(TinyNet):
    """TinyNet for float32 samples."""

    def forward(self, xt: Tensor, t: Tensor) -> Tensor:
        return super().forward(xt.double(), t).float()


def test_the_forward_chain_of_thinning_only_removes() -> None:
    steps = list(forward_steps(PROCESSES["thinning"], torch.ones(50, 3), torch.Generator().manual_seed(0)))
    assert len(steps) == 4
    assert all((after <= before).all() for before, after in pairwise(steps))


def test_one_step_is_the_prediction_where_nothing_was_seen() -> None:
    net, x1 = Single(3, 0), torch.tensor([[1.0, 0.0, 0.0]])
    prediction = torch.sigmoid(net(x1, torch.tensor([1])))
    mean = one_step(PROCESSES["thinning"], net, x1)
    assert torch.allclose(mean[0, 1:], prediction[0, 1:])
    assert mean[0, 0] == 1
    assert not mean.requires_grad
    assert torch.allclose(one_step(PROCESSES["gaussian"], net, x1), net(x1, torch.tensor([1])))


@pytest.mark.parametrize("name", ["paper kernel", "thinning"])
def test_ancestral_samples_have_the_models_exact_distribution(name: str) -> None:
    process, n = PROCESSES[name], 20_000
    assert isinstance(process, Binomial)
    probability = exact_log_likelihood(process, TinyNet(3, 0), 3).detach().exp()
    sample = ancestral(process, Single(3, 0), (n, 3), torch.Generator().manual_seed(0))
    share = torch.bincount((sample @ torch.tensor([4.0, 2.0, 1.0])).long(), minlength=8) / n
    assert ((share - probability).abs() < 4.5 * (probability * (1 - probability) / n).sqrt()).all()


def test_a_gaussian_with_the_right_denoiser_samples_the_data() -> None:
    process, s = Gaussian(linear(100, 1e-3, 0.15), "beta"), 0.5

    def denoiser(xt: Tensor, t: Tensor) -> Tensor:
        alpha_bar = process.schedule.alpha_bar(t).float()[:, None]
        return alpha_bar.sqrt() * s**2 / (alpha_bar * s**2 + 1 - alpha_bar) * xt

    sample = ancestral(process, denoiser, (5000, 1), torch.Generator().manual_seed(0))
    assert sample.mean().item() == pytest.approx(0, abs=0.03)
    assert sample.std().item() == pytest.approx(s, rel=0.05)


@pytest.mark.parametrize("name", PROCESSES)
def test_the_steps_run_down_to_0_and_end_in_the_sample(name: str) -> None:
    process, net = PROCESSES[name], Single(3, 0)
    steps = list(reverse_steps(process, net, (4, 3), torch.Generator().manual_seed(5)))
    assert [step.t for step in steps] == [3, 2, 1, 0]
    assert torch.equal(steps[-1].x, ancestral(process, net, (4, 3), torch.Generator().manual_seed(5)))
    assert steps[0].x.shape == steps[-1].mean.shape == (4, 3)


@pytest.mark.parametrize("name", PROCESSES)
def test_a_way_back_from_a_given_step_goes_on_as_the_whole_one(name: str) -> None:
    process, net, rng = PROCESSES[name], Single(3, 0), torch.Generator().manual_seed(5)
    whole = reverse_steps(process, net, (4, 3), rng)
    second = [next(whole), next(whole)][1]
    state = rng.get_state()
    end = list(whole)[-1].x
    assert torch.equal(denoise(process, net, second.x, rng.set_state(state), t=2), end)
    given, *_ = reverse_steps(process, net, second.x, rng, t=2)
    assert given.t == 2
    assert given.mean is given.x is second.x


@pytest.mark.parametrize("name", PROCESSES)
def test_without_draws_every_step_is_the_mean_of_the_last_and_no_randomness_is_used(name: str) -> None:
    process, net, rng = PROCESSES[name], Single(3, 0), torch.Generator().manual_seed(5)
    before = rng.get_state()
    states = list(reverse_steps(process, net, (4, 3), rng, draw=False))
    assert torch.equal(rng.get_state(), before)
    assert torch.equal(states[0].x, process.prior((4, 3)).mean)
    for last, state in pairwise(states):
        t = torch.full((4,), last.t)
        expected = process.p_reverse(net(last.x, t), last.x, t).mean
        assert torch.equal(state.x, expected)
    assert torch.equal(denoise(process, net, states[1].x, None, t=2, draw=False), states[-1].x)


def test_a_way_back_that_starts_nowhere_is_refused() -> None:
    process, net, x = PROCESSES["gaussian"], Single(3, 0), torch.zeros(4, 3)
    for start, t in ((x, 0), (x, 4), ((4, 3), 2)):
        with pytest.raises(InputError, match=rf"t in 1\.\.3, .* got {t}"):
            list(reverse_steps(process, net, start, None, t=t))


@pytest.mark.parametrize("known_as", ["noised", "clean"])
@pytest.mark.parametrize("repeats", [1, 3])
@pytest.mark.parametrize("name", PROCESSES)
def test_inpainting_keeps_what_is_known(name: str, repeats: int, known_as: KnownAs) -> None:
    process, net = PROCESSES[name], Single(3, 0)
    known = all_bits(3).float().repeat(20, 1)
    mask = torch.tensor([True, False, True]).expand_as(known)
    rng = torch.Generator().manual_seed(0)
    steps = list(inpaint_steps(process, net, known, mask, rng, repeats, known_as))
    assert [step.t for step in steps] == [3, 2, 1, 0]
    assert torch.equal(steps[-1].x[mask], known[mask])
    if known_as == "clean":
        assert all(torch.equal(step.x[mask], known[mask]) for step in steps)
    elif name == "thinning" and repeats == 1:
        path = torch.stack([step.x for step in steps])[:, mask]
        assert (path.diff(dim=0) >= 0).all()
        assert (path <= known[mask]).all()


@pytest.mark.parametrize("known_as", ["noised", "clean"])
def test_the_denoiser_sees_what_is_known_at_every_repeat(known_as: KnownAs) -> None:
    process, net, seen = PROCESSES["thinning"], Single(3, 0), list[tuple[int, Tensor]]()

    def denoiser(xt: Tensor, t: Tensor) -> Tensor:
        seen.append((int(t[0]), xt))
        return net(xt, t)

    known, mask = torch.ones(4000, 3), torch.tensor([True, False, True]).expand(4000, 3)
    inpaint(process, denoiser, known, mask, torch.Generator().manual_seed(0), 3, known_as)
    assert [t for t, _ in seen] == [3, 3, 3, 2, 2, 2, 1, 1, 1]
    for t, xt in seen:  # a one that is known is there, or as often as the chain lets it live that long
        share = 1 if known_as == "clean" else SURVIVAL[t - 1]
        assert xt[mask].mean().item() == pytest.approx(share, abs=0.03)


class Posterior:
    """The best x^0-prediction for uniform draws from a few known rows."""

    def __init__(self, process: Process, rows: Tensor) -> None:
        self.process, self.rows = process, rows

    def __call__(self, xt: Tensor, t: Tensor) -> Tensor:
        n = len(self.rows)
        start, noisy = self.rows.repeat(len(xt), 1), xt.repeat_interleave(n, 0)
        log_q = self.process.q_marginal(start, t.repeat_interleave(n)).log_prob(noisy).sum(1)
        return torch.logit(torch.softmax(log_q.reshape(-1, n), dim=1) @ self.rows, eps=1e-6)


@pytest.mark.parametrize("known_as", ["noised", "clean"])
def test_inpainting_completes_a_known_half_of_one_of_two_patterns(known_as: KnownAs) -> None:
    rows = torch.tensor([[1.0, 1.0, 0.0, 0.0] * 3, [0.0, 0.0, 1.0, 1.0] * 3])
    process = Binomial.paper_kernel(harmonic(30))
    mask = (torch.arange(12) < 8).expand(40, 12)
    known = rows[torch.arange(40) % 2]
    hidden = torch.where(mask, known, 0)
    done = inpaint(process, Posterior(process, rows), hidden, mask, torch.Generator().manual_seed(0), 2, known_as)
    assert (done == known).all(1).float().mean() > 0.9


def test_a_mask_that_does_not_fit_is_refused() -> None:
    known, net = torch.zeros(2, 3), Single(3, 0)
    for mask in (torch.zeros(2, 3), torch.zeros(2, 2, dtype=torch.bool)):
        with pytest.raises(InputError, match="boolean mask"):
            inpaint(PROCESSES["thinning"], net, known, mask, None, 1)
    with pytest.raises(InputError, match="repeats >= 1, got 0"):
        inpaint(PROCESSES["thinning"], net, known, known.bool(), None, 0)
    with pytest.raises(InputError, match="noised, clean"):
        inpaint(PROCESSES["thinning"], net, known, known.bool(), None, 1, "kept")  # type: ignore[arg-type]
