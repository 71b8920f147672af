"""Ways back in fewer steps and without draws, against enumeration of all paths and known answers."""

from itertools import product

import pytest
import torch
from torch import Tensor

from enumeration import CHAINS, TinyNet, all_bits, build, exact_log_likelihood, linear, paths, rates
from recfusion.core.errors import InputError
from recfusion.diffusion import Binomial, Gaussian, Process, ancestral, implicit, implicit_steps, make_schedule, strided

SCHEDULE = linear(5, 0.1, 0.6)
KEPT = [2, 3, 5]


def net(xt: Tensor, t: Tensor) -> Tensor:
    return TinyNet(3, 0).forward(xt.double(), t).to(xt.dtype)


def share_of_paths(u: list[float], d: list[float], x0: int, seen: dict[int, int]) -> float:
    """The probability that a path from x^0 has these values at these steps."""
    return sum(p for path, p in paths(u, d, x0) if all(path[t] == value for t, value in seen.items()))


@pytest.mark.parametrize("chain", CHAINS)
def test_a_strided_chain_has_the_posterior_of_all_paths_between_its_steps(chain: str) -> None:
    whole = build(chain, SCHEDULE)
    u, d = rates(chain, SCHEDULE)
    short = whole.at_steps(KEPT)
    assert short.T == 3
    for k, (x0, xt) in product((1, 2, 3), product((0, 1), repeat=2)):
        start, end = torch.tensor([[float(x0)]]), torch.tensor([[float(xt)]])
        now, before = KEPT[k - 1], ([0, *KEPT])[k - 1]
        total = share_of_paths(u, d, x0, {now: xt})
        assert short.q_marginal(start, k).log_prob(end).exp().item() == pytest.approx(total, abs=1e-6)
        if total > 0:
            exact = share_of_paths(u, d, x0, {now: xt, before: 1}) / total
            assert short.q_posterior(start, end, k).mean.item() == pytest.approx(exact, abs=1e-6)


def test_a_strided_gaussian_has_the_marginals_of_the_whole_chain() -> None:
    whole, x0 = Gaussian(SCHEDULE), torch.tensor([[1.0, -2.0]])
    short = whole.at_steps(KEPT)
    for k, t in enumerate(KEPT, start=1):
        for ours, theirs in zip(_moments(short, x0, k), _moments(whole, x0, t), strict=True):
            assert torch.allclose(ours, theirs, atol=1e-6)


def _moments(process: Gaussian, x0: Tensor, t: int) -> tuple[Tensor, Tensor]:
    found = process.q_marginal(x0, t)
    return found.mean, found.stddev


def test_samples_of_a_strided_chain_have_its_exact_distribution() -> None:
    whole = Binomial.paper_kernel(SCHEDULE)
    short, asked = strided(whole, net, 2)
    assert isinstance(short, Binomial)
    assert short.T == 2
    n = 20_000
    probability = exact_log_likelihood(short, asked, 3).detach().exp()
    sample = ancestral(short, asked, (n, 3), torch.Generator().manual_seed(0))
    share = torch.bincount((sample @ torch.tensor([4.0, 2.0, 1.0])).long(), minlength=8) / n
    assert ((share - probability).abs() < 4.5 * (probability * (1 - probability) / n).sqrt()).all()


def test_the_denoiser_of_a_strided_chain_is_asked_at_the_original_steps() -> None:
    seen = list[int]()

    def denoiser(xt: Tensor, t: Tensor) -> Tensor:
        seen.append(int(t[0]))
        return xt

    process, asked = strided(Gaussian(linear(10, 0.1, 0.3)), denoiser, 4)
    ancestral(process, asked, (2, 3), torch.Generator().manual_seed(0))
    assert seen == [10, 8, 5, 3]


@pytest.mark.parametrize("chain", CHAINS)
def test_implicit_steps_to_a_known_row_follow_the_forward_law_and_draw_nothing_after_the_first(chain: str) -> None:
    process, x0 = build(chain, SCHEDULE), all_bits(2).float().repeat(4000, 1)
    rng = torch.Generator().manual_seed(0)
    start = process.q_sample(x0, process.T, rng)
    way = implicit_steps(process, lambda xt, t: (2 * x0 - 1) * 50, start, rng)
    states = [next(way), next(way)]
    after_the_first = rng.get_state()
    states += list(way)
    assert torch.equal(rng.get_state(), after_the_first)
    assert torch.equal(states[-1].x, x0)
    for state in states[:-1]:
        for value in (0.0, 1.0):
            expected = process.q_marginal(torch.tensor([[value]]), state.t).mean.item()
            assert state.x[x0 == value].mean().item() == pytest.approx(expected, abs=0.02)


def test_implicit_gaussian_steps_are_the_known_flow_of_gaussian_data() -> None:
    """For data N(0, s^2) the way without draws ends at s times where it began, in units of the marginal's spread."""
    process, s = Gaussian(make_schedule("linear", 400, 1e-4, 0.05)), 0.5

    def denoiser(xt: Tensor, t: Tensor) -> Tensor:
        left = process.schedule.alpha_bar(t).float()[:, None]
        return left.sqrt() * s**2 / (left * s**2 + 1 - left) * xt

    start = torch.tensor([[-1.5], [0.3], [2.0]])
    left = float(process.schedule.alpha_bar(process.T))
    expected = s * start / (left * s**2 + 1 - left) ** 0.5
    assert torch.allclose(implicit(process, denoiser, start, None), expected, rtol=0.02)
    few, asked = strided(process, denoiser, 40)
    assert torch.allclose(implicit(few, asked, start, None), expected, rtol=0.1)


class Still:
    """A process that knows no jumps."""

    T = 3


def test_steps_that_make_no_way_are_refused() -> None:
    process = Binomial.paper_kernel(SCHEDULE)
    for steps in ([], [1, 3], [3, 2, 5], [0, 5], [2, 2, 5]):
        with pytest.raises(InputError, match=r"increasing steps in 1\.\.5 that end at 5"):
            strided(process, net, steps)
    for odd in ([1.5, 5], 2.5, "5", None):
        with pytest.raises(InputError, match=r"whole numbers as increasing steps in 1\.\.5, got"):
            strided(process, net, odd)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="1 to 5 steps, got 6"):
        strided(process, net, 6)
    previous = Binomial.paper_kernel(SCHEDULE, predicts="previous")
    with pytest.raises(InputError, match="predicts='x0'"):
        strided(previous, net, 2)
    with pytest.raises(InputError, match="predicts='x0'"):
        implicit(previous, net, torch.zeros(1, 3), None)
    still: Process = Still()  # type: ignore[assignment]
    with pytest.raises(InputError, match="at_steps and implicit, got Still"):
        strided(still, net, 2)
