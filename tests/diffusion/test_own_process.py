"""Processes that the package does not know: whoever has the methods of `Process` is trained and sampled like ours."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

import recfusion as rf
from enumeration import TinyNet, all_bits
from recfusion.core.errors import InputError
from recfusion.diffusion import Bits, Denoiser, Normal, Process, Steps

T = 6


def row(table: Tensor, t: Steps, x: Tensor) -> Tensor:
    """Return the entries of table (T + 1,) for t, beside the rows of x."""
    return table.to(x.dtype)[torch.as_tensor(t)].reshape(-1, 1)


class Spreading:
    """x^t = x^0 + sigma_t noise with sigma_t^2 = t/2: noise is only ever added. It inherits nothing of ours."""

    reparametrised, T = True, T
    variance = torch.arange(T + 1, dtype=torch.float64) / 2

    def check_data(self, x0: Tensor) -> None:
        """Any numbers will do."""

    def q_sample(self, x0: Tensor, t: Steps, rng: torch.Generator | None) -> Tensor:
        return self.q_marginal(x0, t).draw(rng)

    def q_marginal(self, x0: Tensor, t: Steps) -> Normal:
        return Normal(x0, row(self.variance, t, x0).sqrt().expand_as(x0))

    def q_step(self, x_prev: Tensor, t: Steps) -> Normal:
        return Normal(x_prev, torch.full_like(x_prev, 0.5**0.5))

    def q_posterior(self, x0: Tensor, xt: Tensor, t: Steps) -> Normal:
        share = row(self.variance, t - 1, xt) / row(self.variance, t, xt)  # of the way from x^0 to x^t
        return Normal(x0 + share * (xt - x0), (share / 2).sqrt().expand_as(xt))

    def p_reverse(self, out: Tensor, xt: Tensor, t: Steps) -> Normal:
        return Normal(self.q_posterior(out, xt, t).mean, torch.full_like(xt, 0.5**0.5))

    def prior(
        self, shape: Sequence[int], dtype: torch.dtype = torch.float32, device: torch.device | None = None
    ) -> Normal:
        zeros = torch.zeros(tuple(shape), dtype=dtype, device=device)
        return Normal(zeros, torch.full_like(zeros, (T / 2 + 1) ** 0.5))

    def x0_error(self, out: Tensor, x0: Tensor) -> Tensor:
        return (out - x0) ** 2


@dataclass(frozen=True)
class Fading(Process):
    """A one survives to step t with probability a_t = 1 - t/(T + 1); written without our tables."""

    reparametrised = False
    T: int = T

    def survival(self, t: Steps) -> Tensor:
        return 1 - torch.as_tensor(t).double() / (self.T + 1)

    def q_marginal(self, x0: Tensor, t: Steps) -> Bits:
        return bits(x0 * self._a(t, x0))

    def q_step(self, x_prev: Tensor, t: Steps) -> Bits:
        return bits(x_prev * self._a(t, x_prev) / self._a(t - 1, x_prev))

    def q_posterior(self, x0: Tensor, xt: Tensor, t: Steps) -> Bits:
        return bits(xt + (1 - xt) * x0 * self._returned(t, xt))

    def p_reverse(self, out: Tensor, xt: Tensor, t: Steps) -> Bits:
        absent = torch.logit(torch.sigmoid(out) * self._returned(t, xt))
        return Bits(torch.where(xt > 0.5, 700, absent))

    def prior(
        self, shape: Sequence[int], dtype: torch.dtype = torch.float32, device: torch.device | None = None
    ) -> Bits:
        return bits(torch.full(tuple(shape), 0.5 / (self.T + 1), dtype=dtype, device=device))

    def x0_error(self, out: Tensor, x0: Tensor) -> Tensor:
        return -Bits(out).log_prob(x0)

    def _a(self, t: Steps, x: Tensor) -> Tensor:
        return self.survival(t).to(x.dtype).reshape(-1, 1)

    def _returned(self, t: Steps, x: Tensor) -> Tensor:
        return (self._a(t - 1, x) - self._a(t, x)) / (1 - self._a(t, x))


def bits(probability: Tensor) -> Bits:
    return Bits(torch.logit(probability.double()).clamp(-700, 700).to(probability.dtype))


def ours() -> rf.diffusion.Binomial:
    return rf.diffusion.Binomial.thinning_from_survival([1 - t / (T + 1) for t in range(1, T + 1)])


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def bound(process: Process, net: Denoiser, x0: Tensor, rng: torch.Generator) -> Tensor:
    return rf.diffusion.elbo(process, net, x0, rng, 1).total


OBJECTIVES: dict[str, Callable[[Process, Denoiser, Tensor, torch.Generator], Tensor]] = {
    "elbo": bound,
    "simple": rf.diffusion.simple,
}


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("process", [Spreading(), Fading()], ids=["real", "binary"])
def test_a_foreign_process_is_trained_and_sampled(process: Process, objective: str) -> None:
    x0 = torch.tensor([[1.0, 1.0, 0.0], [0.0, 0.0, 1.0]], dtype=torch.float64).repeat(100, 1)
    net, rng = TinyNet(3, 0, 0.1), generator()
    optimizer, losses = torch.optim.Adam(net.parameters(), lr=0.03), []
    for _ in range(150):
        loss = OBJECTIVES[objective](process, net, x0, rng).mean()
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        losses.append(loss.item())
    assert sum(losses[-20:]) < 0.9 * sum(losses[:20])

    def single(xt: Tensor, t: Tensor) -> Tensor:
        return net(xt.double(), t).float()

    sample = rf.diffusion.ancestral(process, single, (4000, 3), rng)
    together = torch.corrcoef(sample.T)
    assert together[0, 1] > 0.1 > -0.1 > together[0, 2]  # as in the data, where they are 1 and -1
    mask = torch.tensor([True, False, True]).expand_as(x0)
    done = rf.diffusion.inpaint(process, single, x0.float(), mask, rng)
    assert torch.equal(done[mask], x0.float()[mask])
    agreeing, against = (done[:, 1][x0[:, 1] == value].mean() for value in (1, 0))
    assert agreeing > against + 0.3


def test_a_binary_chain_written_by_somebody_else_has_the_bound_of_the_same_chain_of_ours() -> None:
    net, x0 = TinyNet(3, 0), all_bits(3).repeat(50, 1)
    for estimate in (rf.diffusion.elbo, rf.diffusion.learned_elbo):
        theirs, known = (estimate(process, net, x0, generator()) for process in (Fading(), ours()))
        for part in ("L_T", "L_steps", "L_0"):
            torch.testing.assert_close(getattr(theirs, part), getattr(known, part), rtol=1e-9, atol=1e-9)
    removed = [rf.diffusion.removed(process, net, x0, generator()) for process in (Fading(), ours())]
    torch.testing.assert_close(*removed)


def test_what_a_foreign_process_lacks_for_an_objective_is_named() -> None:
    net, x0 = TinyNet(3, 0), torch.zeros(2, 3, dtype=torch.float64)
    with pytest.raises(InputError, match=r"survival\(t\) = .*, got Lowering without it"):
        rf.diffusion.removed(Lowering(), net, x0, generator())
    with pytest.raises(InputError, match=r"predicts='previous' .* got None"):
        rf.diffusion.bce_elbo(Fading(), net, x0, generator())


class Lowering(Spreading):
    """No entry ever rises, so `removed` has nothing against it, except that nothing is said of survival."""

    def q_sample(self, x0: Tensor, t: Steps, rng: torch.Generator | None) -> Tensor:
        return torch.zeros_like(x0)
