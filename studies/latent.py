"""Latent diffusion: Gaussian diffusion of the user factors of iALS, with a small network as denoiser.

Load it as `studies/latent.py:LatentDiffusion`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array
from torch import Tensor, nn

import recfusion.diffusion as diffusion
from recfusion.core.arrays import Csr, FloatArray
from recfusion.core.errors import InputError
from recfusion.data.signals import Extra
from recfusion.data.split import Fold
from recfusion.diffusion.process import broadcast
from recfusion.models.base import Shape
from recfusion.models.factors.ials import IALS, FactorRecommender
from recfusion.models.neural import training_settings as training
from recfusion.models.neural.diffrec import DiffRecNet
from recfusion.models.neural.network import NeuralRecommender
from recfusion.models.settings import learned, self_tuned, setting
from recfusion.training.batches import dense

_TRIED = (0.003, 0.01, 0.03, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9)  # candidate shares of noise
_FLOPS = 1.5e10  # multiply-adds per second on one core, roughly
_IALS = ("factors", "iterations", "alpha0", "l2", "nu", "tune_trials")  # settings of iALS
_LEARNED = ("alpha0_", "l2_", "nu_", "items_", "penalty_")  # learned by iALS


@dataclass
class LatentDiffusion(FactorRecommender, NeuralRecommender):
    """Diffusion of user codes z: the iALS factors of a history, centred and scaled to a mean square of 1.

    The process is Gaussian, x^t = sqrt(abar_t) z + sqrt(1 - abar_t) noise. The denoiser is

        zhat(x^t, t) = sqrt(abar_t) x^t + net(x^t, t).

    Its first term is optimal for standard normal codes; the network learns the rest. Scoring treats the code y of a
    history as z with a share `noise` of noise: x^t = sqrt(abar_t) y at the step with 1 - abar_t nearest to `noise`. One
    call gives zhat, and the item factors give its scores. With `noise` 0 scores are those of iALS.
    """

    lr: float = training.lr(1e-3)
    weight_decay: float = training.weight_decay(0.1, 3.0)
    noise: float | None = self_tuned(0.1, "assumed share of noise in a history's code", at_least=0, search=(0.0, 0.99))
    objective: Literal["simple", "elbo"] = setting("simple", "training loss")
    T: int = setting(50, "diffusion steps", at_least=1, at_most=10_000)
    schedule: diffusion.ScheduleName = setting("cosine", "schedule of the noise rates", search="all")
    beta_low: float = setting(1e-4, "smallest noise rate, if the schedule has one", at_least=0)
    beta_high: float = setting(0.1, "largest noise rate, if the schedule has one", at_least=0)
    width: int = training.width(512, "width of the hidden layer", (128, 2048))
    noise_: float = learned()
    mean_: FloatArray = learned()  # (factors,): mean of the training users' codes
    scale_: FloatArray = learned()  # (1,): standard deviation of all their entries
    _ials: IALS | None = field(init=False, default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.noise is not None and self.noise >= 1:
            raise InputError(f"Expected noise to be below 1, got {self.noise:g}: lower it.", "noise")

    def before_training(self, train: Csr, valid: Fold | None, extra: Extra | None, rng: np.random.Generator) -> None:
        model = IALS(**{name: getattr(self, name) for name in _IALS}).fit(train, valid, rng=rng)
        self.trials_ = model.trials_
        for name in _LEARNED:
            setattr(self, name, getattr(model, name))
        self._ials = model
        codes = model.fold_in(train)
        self.mean_ = codes.mean(0)
        self.scale_ = np.sqrt(np.maximum(np.mean((codes - self.mean_) ** 2, keepdims=True)[0], np.float32(1e-12)))
        self.noise_ = 0.1 if self.noise is None else self.noise

    def after_training(self, train: Csr, valid: Fold | None) -> None:
        if self.noise is None and valid is not None:
            self.choose("noise_", _TRIED, train, valid)

    def codes(self, history: Csr) -> FloatArray:
        """Return the codes of histories, (users, factors): iALS factors, centred and scaled."""
        if self._ials is None:
            self._ials = IALS(**{name: getattr(self, name) for name in _IALS})
            for name in _LEARNED:
                setattr(self._ials, name, getattr(self, name))
        return np.asarray((self._ials.fold_in(history) - self.mean_) / self.scale_)

    def encoded(self, history: Csr, extra: Extra | None) -> Csr:
        """Return the codes as rows, for the loss and `scores`."""
        return csr_array(self.codes(history))

    def make_net(self, n_items: int) -> nn.Module:
        return DiffRecNet(self.factors, self.width, min(64, self.factors), normalised=False, dropout=0.0)

    def training_module(self) -> nn.Module:
        assert isinstance(self.net_, DiffRecNet)
        with torch.no_grad():  # training starts at the optimal denoiser of standard normal codes
            self.net_.outer.weight.zero_()
            self.net_.outer.bias.zero_()
        return self.net_

    def process(self) -> diffusion.Gaussian:
        """Return the process of codes; the reverse variance beta suits data with a smooth density."""
        schedule = diffusion.make_schedule(self.schedule, self.T, self.beta_low, self.beta_high)
        return diffusion.Gaussian(schedule, variance="beta")

    def denoiser(self, xt: Tensor, t: Tensor) -> Tensor:
        """Return zhat(x^t, t), (batch, factors), for `diffusion.elbo` and the samplers."""
        kept = broadcast(self.process().schedule.alpha_bar(t).sqrt(), xt)
        out: Tensor = kept * xt + self.net_(xt, t)
        return out

    def loss(self, rows: Csr, trained: nn.Module, rng: torch.Generator) -> Tensor:
        codes = dense(rows, self.device)
        if self.objective == "elbo":
            return diffusion.elbo(self.process(), self.denoiser, codes, rng, 1).total.mean()
        return diffusion.simple(self.process(), self.denoiser, codes, rng).mean()

    def scores(self, history: Csr) -> Tensor:
        codes = dense(history, self.device)
        if self.noise_ > 0:
            schedule = self.process().schedule
            t = int(torch.argmin((1 - schedule.alpha_bar(torch.arange(self.T + 1))[1:] - self.noise_).abs())) + 1
            xt = float(schedule.alpha_bar(t)) ** 0.5 * codes
            codes = self.denoiser(xt, torch.full((len(xt),), t, device=xt.device))
        return self.decode(codes)

    def decode(self, codes: Tensor) -> Tensor:
        """Return the scores (users, items) of codes (users, factors)."""
        scale, mean, items = (torch.from_numpy(array).to(codes) for array in (self.scale_, self.mean_, self.items_))
        return (codes * scale + mean) @ items.T

    def seconds(self, shape: Shape) -> float:
        weights = self.width * (2 * self.factors + 64)
        ials = IALS(factors=self.factors, iterations=self.iterations, tune_trials=0).seconds(shape)
        return ials + self.max_epochs * shape.users * 6 * weights / _FLOPS

    def load_state(self, state: Mapping[str, NDArray[Any]], chosen: Mapping[str, Any], n_items: int) -> None:
        self._ials = None
        shapes = {"items_": (n_items, self.factors), "penalty_": (1,), "mean_": (self.factors,), "scale_": (1,)}
        wrong = next((name for name, shape in shapes.items() if state[name].shape != shape), None)
        if wrong is not None:
            raise ValueError(f"{wrong} has the shape {state[wrong].shape} instead of {shapes[wrong]}")
        super().load_state(state, chosen, n_items)

    @property
    def n_parameters(self) -> int:
        return super().n_parameters + self.items_.size
