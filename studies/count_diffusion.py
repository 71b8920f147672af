"""Count data by diffusion: play counts are thinned binomially, and a network predicts how many plays were removed.

Each of the x^0 events of an entry survives to step t with probability a_t. The forward chain is that of JUMP (Chen and
Zhou, 2023) and, in continuous time, of Blackout Diffusion (Santos et al., 2023). Its reverse step adds events,
x^{t-1} = x^t + a Poisson number, as in JUMP. With zeros and ones it is option (c) of the paper.

recfusion run studies/results/counts-lastfm.toml --out studies/results/counts-lastfm.jsonl --workers 0
"""
# ruff: noqa: N802  (T is the paper's name for the number of steps)

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor, nn
from torch.distributions import Distribution
from torch.distributions.kl import register_kl

from recfusion.core.arrays import Csr
from recfusion.core.errors import InputError
from recfusion.data.interactions import Signal
from recfusion.data.signals import Extra
from recfusion.diffusion import elbo
from recfusion.diffusion.binomial import Mean
from recfusion.diffusion.process import Process, Rng, broadcast, safe_log
from recfusion.diffusion.schedule import Steps, at_step, from_survival
from recfusion.models.neural import training_settings as training
from recfusion.models.neural.network import NeuralRecommender
from recfusion.models.settings import setting
from recfusion.nets.mlp import MLP
from recfusion.training.batches import dense


class Survivors(Distribution):
    """base + Binomial(n, p) for each entry."""

    def __init__(self, base: Tensor, n: Tensor, p: Tensor) -> None:
        self.base, self.n, self.p = base, n, p.expand_as(n)
        super().__init__(n.shape, validate_args=False)

    @property
    def mean(self) -> Tensor:
        return self.base + self.n * self.p

    def log_prob(self, value: Tensor) -> Tensor:
        more = value - self.base
        found = _log_choose(self.n, more) + more * safe_log(self.p) + (self.n - more) * safe_log(1 - self.p)
        return torch.where((more >= 0) & (more <= self.n), found, -torch.inf)

    def draw(self, rng: Rng) -> Tensor:
        return self.base + torch.binomial(self.n, self.p, generator=rng)


class Arrivals(Distribution):
    """base + Poisson(exp(log_rate)) for each entry."""

    def __init__(self, base: Tensor, log_rate: Tensor) -> None:
        self.base, self.log_rate = base, log_rate
        super().__init__(log_rate.shape, validate_args=False)

    @property
    def mean(self) -> Tensor:
        return self.base + self.log_rate.exp()

    def log_prob(self, value: Tensor) -> Tensor:
        more = value - self.base
        found = more * self.log_rate - self.log_rate.exp() - torch.lgamma(more.clamp(min=0) + 1)
        return torch.where(more >= 0, found, -torch.inf)

    def draw(self, rng: Rng) -> Tensor:
        return self.base + torch.poisson(self.log_rate.exp(), generator=rng)


class CountThinning(Process):
    """q(x^t | x^0) = Binomial(x^0, a_t) for a curve a_1 > ... > a_T; the denoiser returns log r.

    r is the expected number of removed events, E[x^0 - x^t | x^t], for each entry. With rho_t = (a_{t-1} - a_t)/(1 -
    a_t), the share of them that the reverse step restores, p(x^{t-1} | x^t) = x^t + Poisson(rho_t r). The prior is
    Poisson(a_T mean), where `mean` is the mean count of an entry, smoothed to be above 0.
    """

    reparametrised = False  # counts have no gradient with respect to the curve

    def __init__(self, a: Sequence[float] | Tensor, mean: Mean = 1.0) -> None:
        self._a = torch.cat([torch.ones(1, dtype=torch.float64), torch.as_tensor(a, dtype=torch.float64)])
        self._beta = torch.cat([torch.zeros(1, dtype=torch.float64), from_survival(a).betas])  # checks the curve
        self._mean = torch.as_tensor(mean, dtype=torch.float64)
        if not bool((self._mean > 0).all()):
            raise InputError(f"Expected mean counts above 0, got {self._mean.min().item():g}: smooth them.")

    @property
    def T(self) -> int:
        return len(self._a) - 1

    def check_data(self, x0: Tensor) -> None:
        """Raise unless x^0 holds whole numbers from 0 on, as floats."""
        super().check_data(x0)
        wrong = (x0 < 0) | (x0 != x0.round())
        if bool(wrong.any()):
            raise InputError(f"Expected counts (0, 1, 2, ...), got {x0[wrong][0].item():g}: round or clip them.")

    def survival(self, t: Steps) -> Tensor:
        """a_t, the probability that an event survives to step t, float64."""
        return at_step(self._a, t)

    def q_marginal(self, x0: Tensor, t: Steps) -> Survivors:
        """q(x^t | x^0) = Binomial(x^0, a_t)."""
        return Survivors(torch.zeros_like(x0), x0, broadcast(self.survival(t), x0))

    def q_step(self, x_prev: Tensor, t: Steps) -> Survivors:
        """q(x^t | x^{t-1}) = Binomial(x^{t-1}, a_t / a_{t-1})."""
        return Survivors(torch.zeros_like(x_prev), x_prev, broadcast(1 - at_step(self._beta, t), x_prev))

    def q_posterior(self, x0: Tensor, xt: Tensor, t: Steps) -> Survivors:
        """q(x^{t-1} | x^t, x^0) = x^t + Binomial(x^0 - x^t, rho_t)."""
        return Survivors(xt, x0 - xt, broadcast(self._restored(t), xt))

    def p_reverse(self, out: Tensor, xt: Tensor, t: Steps) -> Arrivals:
        """p_theta(x^{t-1} | x^t) = x^t + Poisson(rho_t exp(out))."""
        return Arrivals(xt, out + broadcast(safe_log(self._restored(t)), xt))

    def prior(
        self, shape: Sequence[int], dtype: torch.dtype = torch.float32, device: torch.device | None = None
    ) -> Arrivals:
        """p(x^T) = Poisson(a_T mean) for each entry."""
        log_rate = safe_log(self._a[-1] * self._mean).to(dtype=dtype, device=device).expand(tuple(shape))
        return Arrivals(torch.zeros_like(log_rate), log_rate)

    def x0_error(self, out: Tensor, x0: Tensor) -> Tensor:
        raise InputError("Expected the bound as the objective for counts, got an error of x^0: use elbo.")

    def _restored(self, t: Steps) -> Tensor:
        before, now = self.survival(t - 1), self.survival(t)
        return (before - now) / (1 - now)


def _log_choose(n: Tensor, k: Tensor) -> Tensor:
    k = torch.minimum(k.clamp(min=0), n)
    return torch.lgamma(n + 1) - torch.lgamma(k + 1) - torch.lgamma(n - k + 1)


def _kl_counts(q: Survivors, p: Arrivals) -> Tensor:
    """KL(base + Binomial(n, s) || base + Poisson(r)), by a sum over 0..max n.

    log q - log p = log n!/(n - j)! + (n - j) log(1 - s) + j log(s/r) + r; only the first term needs the sum.
    """
    n, s = q.n, q.p
    most = int(n.max()) if n.numel() else 0
    falling = torch.zeros_like(n)  # E[log n!/(n - j)!]
    for j in range(1, most + 1):
        count = torch.full_like(n, float(j))
        weight = torch.where(count <= n, Survivors(torch.zeros_like(n), n, s).log_prob(count).exp(), 0)
        falling = falling + weight * (torch.lgamma(n + 1) - torch.lgamma((n - count).clamp(min=0) + 1))
    kept = n * (1 - s) * safe_log(1 - s) + n * s * (safe_log(s) - p.log_rate)
    return falling + kept + p.log_rate.exp()


register_kl(Survivors, Arrivals)(_kl_counts)  # type: ignore[no-untyped-call]


@dataclass
class CountDiffusion(NeuralRecommender):
    """Thinning of counts (`CountThinning`), trained on its bound; ranks by the expected removed count.

    A count c enters as 1 + floor(log2 c), at most `levels`: plays span five orders of magnitude. `levels` 1 makes every
    count 1, so that the process is option (c) of the paper with a Poisson reverse step.
    """

    reads: ClassVar[frozenset[Signal]] = frozenset({"grades"})
    maps: ClassVar[float] = 20.0
    weight_decay: float = training.weight_decay(0.5)
    batch_size: int = training.batch_size(50)
    T: int = setting(8, "diffusion steps", at_least=1, at_most=1000)
    high: float = setting(0.9, "share of events that survives step 1", at_least=0)
    low: float = setting(0.1, "share of events that survives to step T", at_least=0)
    levels: int = setting(20, "largest count", at_least=1)
    width: int = training.width(200, "width of the hidden layer", (100, 800))

    def encoded(self, history: Csr, extra: Extra | None) -> Csr:
        """Return the histories with the level of each count as its value."""
        grades = None if extra is None else extra.grades
        counts = np.ones(history.nnz) if grades is None else np.maximum(grades.data, 1)
        levels = np.minimum(1 + np.floor(np.log2(counts)), self.levels).astype(np.float32)
        return csr_array((levels, history.indices, history.indptr), shape=history.shape)

    def prepare(self, train: Csr) -> None:
        self.mean = torch.from_numpy((np.asarray(train.sum(0)) + 0.5) / (train.shape[0] + 1)).double()

    def make_net(self, n_items: int) -> nn.Module:
        return MLP(n_items, width=self.width, time="input", head="linear")

    def training_module(self) -> nn.Module:
        outer = self.net_.get_submodule("outer")
        assert isinstance(outer, nn.Linear)
        with torch.no_grad():
            outer.bias.copy_((self.mean / 2).log())  # about half of the events are removed
        return self.net_

    def loss(self, rows: Csr, trained: nn.Module, rng: torch.Generator) -> Tensor:
        curve = torch.linspace(self.high, self.low, self.T, dtype=torch.float64)
        return elbo(CountThinning(curve, self.mean), self._log_rate, dense(rows, self.device), rng, 1).total.mean()

    def scores(self, history: Csr) -> Tensor:
        x1 = dense(history, self.device)
        return self._log_rate(x1, torch.ones(len(x1), dtype=torch.int64))

    def _log_rate(self, xt: Tensor, t: Tensor) -> Tensor:
        out: Tensor = self.net_(torch.log1p(xt), t)
        return out
