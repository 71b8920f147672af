"""Latent diffusion: Gaussian noise on the codes that a factor model gives to users, and a small network against it."""

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array
from torch import Tensor, nn

import recfusion.diffusion as diffusion
from recfusion.core.arrays import Csr, FloatArray
from recfusion.core.errors import InputError
from recfusion.core.rng import RngLike, make_rng
from recfusion.data.signals import Extra
from recfusion.data.split import Fold
from recfusion.diffusion.process import beside
from recfusion.evaluation.evaluate import evaluate
from recfusion.evaluation.metrics import MAIN_METRIC
from recfusion.models.base import Shape
from recfusion.models.factors.ials import IALS
from recfusion.models.neural.diffrec import DiffRecNet
from recfusion.models.neural.network import NeuralRecommender
from recfusion.models.self_tuning import trials_setting
from recfusion.models.settings import learned, self_tuned, setting
from recfusion.training.batches import dense
from recfusion.training.epoch import Checkpoint, Epoch

_TRIED = (0.003, 0.01, 0.03, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9)  # shares of noise that validation users choose from
_FLOPS = 1.5e10  # multiply-adds in a second on one core, about
_IALS = ("factors", "iterations", "alpha0", "l2", "nu", "tune_trials")


@dataclass
class LatentDiffusion(NeuralRecommender):
    """Diffusion of users' codes z: the factors that iALS folds a history into, centred, with a mean square of 1.

    The process is Gaussian, x^t = sqrt(abar_t) z + sqrt(1 - abar_t) noise, and the denoiser

        zhat(x^t, t) = sqrt(abar_t) x^t + net(x^t, t),

    whose first term is the best one for codes that are standard normal: the net learns what else there is. The code y
    of a history is taken for z with noise of the share `noise`, so that x^t = sqrt(abar_t) y at the step whose
    1 - abar_t is nearest to it; one call gives zhat, and the items' factors its scores. With `noise` 0 nothing is
    denoised, and lists are those of iALS.
    """

    lr: float = setting(1e-3, "learning rate of AdamW", at_least=0, search=(1e-4, 1e-2), log=True)
    weight_decay: float = setting(0.1, "weight decay of AdamW", at_least=0, search=(0.0, 3.0))
    factors: int = setting(128, "length of a code", at_least=1, at_most=10_000, search=(32, 512), log=True)
    iterations: int = setting(16, "passes of iALS over users and items", at_least=1, at_most=10_000)
    alpha0: float | None = self_tuned(
        0.1, "weight of an entry of iALS whatever its value", at_least=1e-6, search=(0.01, 1.0), log=True
    )
    l2: float | None = self_tuned(
        *(0.01, "weight of the squared penalty of iALS"),
        at_least=1e-9,
        search=(1e-7, 0.1),
        log=True,
        rule="4 / (mean items of a user + alpha0 * items)",
    )
    nu: float | None = self_tuned(
        1.0, "how that penalty grows with how often a user or item occurs", at_least=0, search=(0.0, 1.0)
    )
    noise: float | None = self_tuned(
        0.1, "share of noise that the code of a history is taken to have", at_least=0, search=(0.0, 0.99)
    )
    objective: Literal["simple", "elbo"] = setting("simple", "what is minimised")
    T: int = setting(50, "diffusion steps", at_least=1, at_most=10_000)
    schedule: diffusion.ScheduleName = setting("cosine", "course of the noise rates", search="all")
    beta_low: float = setting(1e-4, "smallest noise rate, where the schedule has one", at_least=0)
    beta_high: float = setting(0.1, "largest noise rate, where the schedule has one", at_least=0)
    width: int = setting(512, "width of the hidden layer", at_least=1, at_most=100_000, search=(128, 2048), log=True)
    tune_trials: int = trials_setting(6)
    alpha0_: float = learned()
    l2_: float = learned()
    nu_: float = learned()
    noise_: float = learned()
    items_: FloatArray = learned()  # (items, factors)
    penalty_: FloatArray = learned()  # (1,): of iALS
    mean_: FloatArray = learned()  # (factors,): of the training users' codes
    scale_: FloatArray = learned()  # (1,): the root of their mean square around it
    _ials: IALS | None = field(init=False, default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.noise is not None and self.noise >= 1:
            raise InputError(f"Expected noise to be below 1, got {self.noise:g}: something of the code must be left.")

    def epochs(
        self,
        train: Csr,
        valid: Fold | None = None,
        *,
        rng: RngLike = None,
        checkpoint: Checkpoint | None = None,
        extra: Extra | None = None,
    ) -> Iterator[Epoch]:
        generator = make_rng(rng)
        self._learn_factors(train, valid, generator)
        self.noise_ = 0.1 if self.noise is None else self.noise
        yield from super().epochs(train, valid, rng=generator, checkpoint=checkpoint, extra=extra)
        if self.noise is None and valid is not None:
            self._choose_noise(train, valid)

    def _learn_factors(self, train: Csr, valid: Fold | None, rng: np.random.Generator) -> None:
        model = IALS(**{name: getattr(self, name) for name in _IALS}).fit(train, valid, rng=rng)
        self.trials_ = model.trials_
        for name in ("alpha0_", "l2_", "nu_", "items_", "penalty_"):
            setattr(self, name, getattr(model, name))
        self._ials = model
        codes = model.fold_in(train)
        self.mean_ = codes.mean(0)
        self.scale_ = np.sqrt(np.maximum(np.mean((codes - self.mean_) ** 2, keepdims=True)[0], np.float32(1e-12)))

    def _choose_noise(self, train: Csr, valid: Fold) -> None:
        """Choose the noise of a history's code on the validation users; of equal ones the smaller."""
        found = []
        for share in _TRIED:
            self.noise_ = share
            found.append(evaluate(self, valid, train, (MAIN_METRIC,), threads=1).mean()[MAIN_METRIC])
        self.noise_ = _TRIED[int(np.argmax(found))]

    def codes(self, history: Csr) -> FloatArray:
        """Return the codes of histories, (users, factors): those of iALS, centred and scaled."""
        if self._ials is None:
            self._ials = IALS(**{name: getattr(self, name) for name in _IALS})
            for name in ("alpha0_", "l2_", "nu_", "items_", "penalty_"):
                setattr(self._ials, name, getattr(self, name))
        return np.asarray((self._ials.fold_in(history) - self.mean_) / self.scale_)

    def encoded(self, history: Csr, extra: Extra | None) -> Csr:
        """Return the codes as rows: they are what the loss and `scores` get."""
        return csr_array(self.codes(history))

    def make_net(self, n_items: int) -> nn.Module:
        return DiffRecNet(self.factors, self.width, min(64, self.factors), normalised=False, dropout=0.0)

    def trainee(self) -> nn.Module:
        assert isinstance(self.net_, DiffRecNet)
        with torch.no_grad():  # training begins at the denoiser of standard normal codes
            self.net_.outer.weight.zero_()
            self.net_.outer.bias.zero_()
        return self.net_

    def process(self) -> diffusion.Gaussian:
        """Return the process on codes; reverse steps have the variance that is right for data without sharp values."""
        schedule = diffusion.make_schedule(self.schedule, self.T, self.beta_low, self.beta_high)
        return diffusion.Gaussian(schedule, variance="beta")

    def denoiser(self, xt: Tensor, t: Tensor) -> Tensor:
        """Return zhat(x^t, t), (batch, factors), as `diffusion.elbo` and the samplers take it."""
        kept = beside(self.process().schedule.alpha_bar(t).sqrt(), xt)
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
        """Return the scores of codes: (users, factors) -> (users, items)."""
        scale, mean, items = (torch.from_numpy(array).to(codes) for array in (self.scale_, self.mean_, self.items_))
        return (codes * scale + mean) @ items.T

    def settled(self) -> Self:
        return dataclasses.replace(super().settled(), **self.chosen())

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
