"""The denoiser of infinite width: ridge regression in user space with the neural tangent kernel.

Load it as `studies/thinning_kernel.py:ThinningKernel`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

from recfusion.core.arrays import Csr, FloatArray
from recfusion.core.rng import RngLike, make_rng
from recfusion.data.split import Fold
from recfusion.models import self_tuning as selftune
from recfusion.models.base import Recommender, Shape
from recfusion.models.neural.infinite_ae import (
    KernelRidge,
    fit_kernel_ridge,
    folded,
    input_weights,
    kernel_bytes,
    predict,
    weighted,
)
from recfusion.models.settings import learned, self_tuned, setting

_SEARCHED = ("ridge", "ridge_power", "input_power", "norm_power")
_PROBES = (
    {"ridge": 1.5, "input_power": 0.1},
    {"ridge": 10.0, "ridge_power": 0.2},
)  # tried first, to see whether a search is worth its time
_LANDMARKS = 5000  # users of the approximation in a mixture


@dataclass
class ThinningKernel(Recommender):
    """Scores k(x, X) (K + diag(ridge_u))^-1 X, divided by popularity^c: a network of infinite width, in closed form.

    It is the denoiser at the noise-free end of the schedule: inputs and targets are x_0. Sampled thinning of the
    inputs did not help. Items enter with the weight count^-input_power, and rows are divided by their norm^norm_power;
    user u's ridge is ridge tr(K)/N (|u| / mean)^ridge_power. With more than `max_users` users it is a Nystroem
    approximation.
    """

    ridge: float | None = self_tuned(
        4.0, "ridge, in units of the kernel's mean diagonal", at_least=1e-4, search=(0.1, 100.0), log=True
    )
    ridge_power: float | None = self_tuned(0.4, "power of a user's number of items in the ridge", search=(0.0, 1.0))
    input_power: float | None = self_tuned(
        0.25, "items are weighted by their count to minus this power", at_least=0, search=(0.0, 0.5)
    )
    norm_power: float | None = self_tuned(
        0.5, "rows are divided by their norm to this power", at_least=0, search=(0.0, 1.0)
    )
    c: float | None = self_tuned(0.1, "scores are divided by popularity^c", search=(0.0, 0.5))
    bias: float = setting(0.01, "variance of the hidden layer's bias", at_least=0)
    max_users: int = setting(
        10_000, "most users of the exact solution; more are approximated by so many landmark users", at_least=1
    )
    tune_trials: int = selftune.trials_setting(10)
    ridge_: float = learned()
    ridge_power_: float = learned()
    input_power_: float = learned()
    norm_power_: float = learned()
    c_: float = learned()
    item_weights_: FloatArray = learned()  # (items,)
    scaling_: FloatArray = learned()  # (items,)
    inputs_: Csr = learned()  # (basis, items)
    solution_: FloatArray = learned()  # (basis, basis), or (basis, items) where that is less
    targets_: Csr | FloatArray = learned()  # (basis, items), or none

    def fit(self, train: Csr, valid: Fold | None = None, *, rng: RngLike = None) -> Self:
        generator = make_rng(rng)
        seed = int(generator.integers(2**31))  # every trial has the same landmarks
        exact = train.shape[0] <= self.max_users
        kept: dict[tuple[Any, ...], tuple[FloatArray, KernelRidge]] = {}  # the last trial

        def fitted(values: Mapping[str, Any]) -> tuple[FloatArray, KernelRidge]:
            now = dict(values)
            weights = input_weights(train, now.pop("input_power"))
            now |= {"bias": self.bias, "max_users": self.max_users, "model": "A thinning kernel"}
            return weights, fit_kernel_ridge(train, weights, **now, rng=make_rng(seed))

        def objective(values: Mapping[str, Any], jury: selftune.Jury) -> list[selftune.Judged]:
            kept.clear()
            kept[_values(values)] = weights, ridge = fitted(values)

            def inputs(history: Csr) -> Csr:
                return weighted(history, weights, values["norm_power"])

            def left_out(places: slice) -> FloatArray:
                users, shown = jury.left_out.users[places], jury.left_out.history[places]
                return predict(ridge, inputs(shown), self.bias, without=users)

            return selftune.by_scaling(
                jury, train, self.c, lambda history: predict(ridge, inputs(history), self.bias), left_out
            )

        self.trials_ = 0
        judging = None
        if selftune.searches(self) and (exact or valid is not None):  # landmarks have no left-out scores
            judging = selftune.jury(train, valid, generator, selftune.MOST_USERS if exact else 0)
        selftune.settle(
            *(self, objective, judging, generator),
            searched=_SEARCHED,
            free=("c",),
            first=_PROBES,
            trials=self.tune_trials,
            probes=len(_PROBES) + 1,
        )
        values = {name: getattr(self, f"{name}_") for name in _SEARCHED}
        self.item_weights_, ridge = kept.get(_values(values)) or fitted(values)
        self.inputs_, self.solution_, self.targets_ = folded(ridge)
        self.scaling_ = selftune.scalings(train, (self.c_,))[0]
        return self

    def needs_validation(self, shape: Shape) -> bool:
        """Return whether users are approximated by landmarks, which have no left-out scores."""
        return shape.users > self.max_users and bool(selftune.open_settings(self))

    def fit_bytes(self, shape: Shape) -> int:
        searched = 4 * min(shape.users, self.max_users) ** 2 if selftune.searches(self) else 0  # a copy for each trial
        return kernel_bytes(shape, self.max_users) + searched

    def economical(self, shape: Shape) -> Self:
        """Return the model with its defaults, which were good on every data set, and landmarks for many users."""
        basis = _LANDMARKS if shape.users > self.max_users else self.max_users
        return replace(self, max_users=basis, tune_trials=min(self.tune_trials, 1))

    @property
    def keeps_histories(self) -> bool:
        return True

    def score(self, history: Csr) -> FloatArray:
        inputs = weighted(history, self.item_weights_, self.norm_power_)
        scores = predict(KernelRidge(self.inputs_, self.solution_, self.targets_), inputs, self.bias)
        scores *= self.scaling_
        return scores


def _values(values: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the settings of a trial as a key."""
    return tuple(values[name] for name in _SEARCHED)
