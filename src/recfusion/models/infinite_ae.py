"""The autoencoder of infinite width: ridge regression with its neural tangent kernel (Sachdeva et al., 2022)."""

from dataclasses import dataclass
from typing import Self

from recfusion.core.arrays import Csr, FloatArray
from recfusion.core.rng import RngLike, make_rng
from recfusion.data.split import Fold
from recfusion.models.base import Recommender
from recfusion.models.settings import learned, setting
from recfusion.models.tangent_kernel import KernelRidge, fit_kernel_ridge, input_weights, predict, weighted


@dataclass
class InfiniteAE(Recommender):
    """Scores k(history, X) (K + ridge tr(K)/N I)^-1 X, where K is the kernel of training users with each other.

    It is what gradient descent on one hidden ReLU layer of infinite width comes to. Deviations: items enter with the
    weight count^-input_power, so that sharing a rare item says more than sharing a popular one, and rows are divided
    by norm^norm_power, so that long histories count less. 0 turns either off.
    """

    ridge: float = setting(3.0, "ridge, in mean diagonals of the kernel", at_least=1e-4, search=(0.01, 100.0), log=True)
    input_power: float = setting(
        0.25, "items enter with their count to minus this power", at_least=0, search=(0.0, 0.5)
    )
    norm_power: float = setting(
        0.5, "rows are divided by their norm to this power: 1 makes them unit vectors", at_least=0, search=(0.0, 1.0)
    )
    bias: float = setting(0.01, "variance of the hidden layer's bias", at_least=0)
    max_users: int = setting(10_000, "users of the exact solution; beyond, landmarks that stand for all", at_least=1)
    weights_: FloatArray = learned()  # (items,)
    inputs_: Csr = learned()  # (users, items)
    solution_: FloatArray = learned()  # (users, users)
    targets_: Csr | FloatArray = learned()  # (users, items)

    def fit(self, train: Csr, valid: Fold | None = None, *, rng: RngLike = None) -> Self:
        self.weights_ = input_weights(train, self.input_power)
        fitted = fit_kernel_ridge(
            train,
            train,
            self.weights_,
            norm_power=self.norm_power,
            ridge=self.ridge,
            bias=self.bias,
            max_users=self.max_users,
            rng=make_rng(rng),
            model="InfiniteAE",
        )
        self.inputs_, self.solution_, self.targets_ = fitted.inputs, fitted.solution, fitted.targets
        return self

    @property
    def keeps_histories(self) -> bool:
        return True

    def score(self, history: Csr) -> FloatArray:
        inputs = weighted(history, self.weights_, self.norm_power)
        return predict(KernelRidge(self.inputs_, self.solution_, self.targets_), inputs, self.bias)
