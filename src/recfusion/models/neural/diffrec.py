"""DiffRec (Wang et al., 2023): Gaussian diffusion of a user's row with little noise; the network predicts x^0."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from recfusion.core.arrays import Csr
from recfusion.core.errors import InputError
from recfusion.diffusion import Gaussian, NoiseSchedule, Schedule, denoise, from_survival
from recfusion.models.neural import training_settings as training
from recfusion.models.neural.network import NeuralRecommender
from recfusion.models.settings import setting
from recfusion.nets.mlp import dropout, time_embedding
from recfusion.training.batches import dense

_KEPT = 10  # recent losses per step, for importance sampling
_UNIFORM = 0.001  # share of steps drawn uniformly, so that every step stays possible


class DiffRecNet(nn.Module):
    """f(x, t) = W_2 tanh(W_1 [x, z_t] + b_1) + b_2 with z_t a linear map of the time embedding; (batch, D)."""

    def __init__(self, n_items: int, width: int, time_width: int, normalised: bool, dropout: float) -> None:
        super().__init__()
        self.time_width, self.normalised, self.dropout = time_width, normalised, dropout
        self.time = nn.Linear(time_width, time_width)
        self.inner = nn.Linear(n_items + time_width, width)
        self.outer = nn.Linear(width, n_items)

    def forward(self, x: Tensor, t: Tensor, rng: torch.Generator | None = None) -> Tensor:
        """Return xhat^0; with an `rng`, as in training, with dropout on the input."""
        if self.normalised:
            x = normalize(x)
        x = dropout(x, self.dropout, rng)
        z = self.time(time_embedding(t, self.time_width))
        out: Tensor = self.outer(torch.tanh(self.inner(torch.cat([x, z], dim=1))))
        return out


class StepSampler(nn.Module):
    """Importance sampling of t by the recent losses of each step (Nichol and Dhariwal, 2021, eq. 18).

    The losses are buffers, so checkpoints contain them and a resumed training draws the same steps.
    """

    losses: Tensor
    seen: Tensor

    def __init__(self, n_steps: int) -> None:
        super().__init__()
        self.register_buffer("losses", torch.zeros(n_steps, _KEPT))  # newest last
        self.register_buffer("seen", torch.zeros(n_steps, dtype=torch.int64))  # losses kept, at most _KEPT

    def probabilities(self) -> Tensor:
        """p_t in proportion to sqrt(mean of squared losses), mixed with the uniform distribution; (T,)."""
        n_steps = len(self.seen)
        root = self.losses.square().mean(1).sqrt()
        if bool((self.seen < _KEPT).any()) or not float(root.sum()) > 0:
            return torch.full_like(root, 1 / n_steps)
        return (1 - _UNIFORM) * root / root.sum() + _UNIFORM / n_steps

    def draw(self, n: int, rng: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return n steps t and T p_t, (n,) each; losses divided by T p_t have the mean of uniform t."""
        p = self.probabilities().cpu()
        index = torch.multinomial(p, n, replacement=True, generator=rng)
        device = self.losses.device
        return (index + 1).to(device), (len(p) * p[index]).to(device)

    def remember(self, t: Tensor, losses: Tensor) -> None:
        """Store the losses (n,) of the steps t (n,)."""
        for row in range(len(self.seen)):
            new = losses.detach()[t == row + 1][-_KEPT:]
            self.losses[row] = torch.cat([self.losses[row], new])[-_KEPT:]
            self.seen[row] = (self.seen[row] + len(new)).clamp(max=_KEPT)


def linear_variance(n_steps: int, scale: float, low: float, high: float) -> Schedule:
    """The schedule with 1 - alpha_bar_t = scale (low + (t - 1)/(T - 1) (high - low)) (Wang et al., eq. 4)."""
    return from_survival(1 - scale * torch.linspace(low, high, n_steps, dtype=torch.float64))


def step_weights(schedule: NoiseSchedule, t: Tensor) -> Tensor:
    """The weight of ||xhat^0 - x^0||^2 in the bound: (SNR(t-1) - SNR(t))/2 for t > 1, and 1 at t = 1; (batch,)."""
    before, now = schedule.alpha_bar((t - 1).clamp(min=1)), schedule.alpha_bar(t)
    weight = (before / (1 - before) - now / (1 - now)) / 2
    return torch.where(t == 1, 1.0, weight)


@dataclass
class DiffRec(NeuralRecommender):
    """Gaussian diffusion with little noise, so that a row keeps its personal entries; x^0 is predicted at every step.

    Scoring takes the mean of x^t after `noised_steps` forward steps and follows the means of all T reverse steps to
    x^0. Both directions are deterministic, so a user's scores are always the same.
    """

    lr: float = training.lr(1.1e-3, (1e-5, 1e-2))
    weight_decay: float = training.weight_decay(6.0)
    batch_size: int = training.batch_size(500)
    patience: int = training.patience(5)
    T: int = setting(22, "diffusion steps", at_least=1, at_most=10_000, search=(2, 40))
    noise_scale: float = setting(6.5e-5, "factor of all noise variances", at_least=0, search=(1e-5, 1.0), log=True)
    noise_min: float = setting(0.001, "variance of the noise at step 1, before the factor", at_least=0)
    noise_max: float = setting(0.02, "variance of the noise at step T, before the factor", at_least=0)
    noised_steps: int = setting(0, "forward steps applied to a history before denoising, at most T", at_least=0)
    reweighted: bool = setting(True, "whether steps are weighted as in the variational bound instead of equally")
    importance: bool = setting(True, "whether steps with larger losses are drawn more often")
    width: int = training.width(520, "width of the hidden layer", (200, 1000))
    time_width: int = setting(10, "width of the time embedding", at_least=1, at_most=100_000)
    normalised: bool = setting(False, "whether the network scales its input to length 1")
    dropout: float = setting(0.02, "dropout on the network's input in training", at_least=0, search=(0.0, 0.8))

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.noised_steps > self.T:
            got = self.noised_steps
            raise InputError(f"Expected noised_steps up to {self.T}, got {got}: lower it.", "noised_steps")
        if self.dropout >= 1:
            raise InputError(f"Expected dropout to be below 1, got {self.dropout:g}: lower it.", "dropout")
        low, high = self.noise_scale * self.noise_min, self.noise_scale * self.noise_max
        if not 0 < low < high < 1:
            change = "change noise_scale, noise_min or noise_max"
            raise InputError(f"Expected increasing noise variances in (0, 1), got {low:g} to {high:g}: {change}.")

    def make_net(self, n_items: int) -> nn.Module:
        return DiffRecNet(n_items, self.width, self.time_width, self.normalised, self.dropout)

    def training_module(self) -> nn.Module:
        return nn.ModuleDict({"net": self.net_, "sampler": StepSampler(self.T).to(self.device)})

    def loss(self, rows: Csr, trained: nn.Module, rng: torch.Generator) -> Tensor:
        """Return an estimate of the mean over t of the weighted squared errors."""
        sampler, process, x0 = trained.sampler, self._process(), dense(rows, self.device)
        assert isinstance(sampler, StepSampler)
        t, relative = sampler.draw(len(x0), rng)
        xt = process.q_sample(x0, t, rng)
        losses = process.x0_error(self.net_(xt, t, rng), x0).sum(1) / x0.shape[1]
        if self.reweighted:
            losses = losses * step_weights(process.schedule, t).to(losses.dtype)
        if self.importance:
            sampler.remember(t, losses)
        return (losses / relative).mean()

    def scores(self, history: Csr) -> Tensor:
        process = self._process()
        x = process.q_marginal(dense(history, self.device), self.noised_steps).mean
        return denoise(process, self.net_, x, None, draw=False)

    def _process(self) -> Gaussian:
        return Gaussian(linear_variance(self.T, self.noise_scale, self.noise_min, self.noise_max))
