"""The denoiser of infinite width: ridge regression in user space with the neural tangent kernel."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

from recfusion.core.arrays import Csr, FloatArray
from recfusion.core.rng import RngLike, make_rng
from recfusion.data.split import Fold
from recfusion.models.base import Recommender, Shape
from recfusion.models.infinite_ae import KernelRidge, fit_kernel_ridge, input_weights, predict, weighted
from recfusion.models.selftune import Judged, by_scaling, judged_users, scalings, settle, trials_setting
from recfusion.models.settings import learned, self_tuned, setting

_SEARCHED = ("ridge", "ridge_power", "input_power", "norm_power")
_LANDMARKS = 5000  # users that stand for all others where time is shared


@dataclass
class ThinningKernel(Recommender):
    """Scores k(x, X) (K + diag(ridge_u))^-1 X, divided by popularity^c: a network of infinite width, in closed form.

    It is the denoiser at the noise-free end of the schedule: inputs and targets are x_0. Sampled thinning of the
    inputs did not help it. Items enter with the weight count^-input_power, rows divided by their norm^norm_power;
    user u's ridge is ridge tr(K)/N (|u| / mean)^ridge_power. Beyond `max_users` users it is a Nystroem approximation.
    """

    ridge: float | None = self_tuned(
        4.0, "ridge in mean diagonals of the kernel", at_least=1e-4, search=(0.1, 100.0), log=True
    )
    ridge_power: float | None = self_tuned(0.4, "power of a user's number of items in the ridge", search=(0.0, 1.0))
    input_power: float | None = self_tuned(
        0.25, "items enter with their count to minus this power", at_least=0, search=(0.0, 0.5)
    )
    norm_power: float | None = self_tuned(
        0.5, "rows are divided by their norm to this power", at_least=0, search=(0.0, 1.0)
    )
    c: float | None = self_tuned(0.1, "scores are divided by popularity^c", search=(0.0, 0.5))
    bias: float = setting(0.01, "variance of the hidden layer's bias", at_least=0)
    max_users: int = setting(10_000, "users of the exact solution; beyond, landmarks that stand for all", at_least=1)
    tune_trials: int = trials_setting(10)
    ridge_: float = learned()
    ridge_power_: float = learned()
    input_power_: float = learned()
    norm_power_: float = learned()
    c_: float = learned()
    item_weights_: FloatArray = learned()  # (items,)
    scaling_: FloatArray = learned()  # (items,)
    inputs_: Csr = learned()  # (basis, items)
    solution_: FloatArray = learned()  # (basis, basis)
    targets_: Csr | FloatArray = learned()  # (basis, items)

    def fit(self, train: Csr, valid: Fold | None = None, *, rng: RngLike = None) -> Self:
        generator = make_rng(rng)
        judged = None if valid is None else judged_users(valid)
        seed = int(generator.integers(2**31))  # the same landmarks in every trial

        def fitted(values: Mapping[str, Any]) -> tuple[FloatArray, KernelRidge]:
            now = dict(values)
            weights = input_weights(train, now.pop("input_power"))
            now |= {"bias": self.bias, "max_users": self.max_users, "model": "A thinning kernel"}
            return weights, fit_kernel_ridge(train, weights, **now, rng=make_rng(seed))

        def objective(values: Mapping[str, Any], judged: Fold) -> list[Judged]:
            weights, ridge = fitted(values)

            def score(history: Csr) -> FloatArray:
                return predict(ridge, weighted(history, weights, values["norm_power"]), self.bias)

            return by_scaling(score, judged, train, self.c)

        self.trials_ = 0
        settle(self, objective, judged, generator, searched=_SEARCHED, free=("c",), trials=self.tune_trials)
        self.item_weights_, ridge = fitted({name: getattr(self, f"{name}_") for name in _SEARCHED})
        self.inputs_, self.solution_, self.targets_ = ridge
        self.scaling_ = scalings(train, (self.c_,))[0]
        return self

    def economical(self, shape: Shape) -> Self:
        return replace(self, max_users=_LANDMARKS) if shape.users > self.max_users else self

    @property
    def keeps_histories(self) -> bool:
        return True

    def score(self, history: Csr) -> FloatArray:
        inputs = weighted(history, self.item_weights_, self.norm_power_)
        scores = predict(KernelRidge(self.inputs_, self.solution_, self.targets_), inputs, self.bias)
        scores *= self.scaling_
        return scores
