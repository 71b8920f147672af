"""The denoiser of infinite width against its definition, solved densely, and against the model that it extends."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from conftest import csr, random_csr
from recfusion.core.arrays import Csr
from recfusion.core.errors import InputError
from recfusion.models.base import Shape
from recfusion.models.neural.infinite_ae import InfiniteAE
from thinning_kernel import ThinningKernel

Dense = NDArray[np.float64]
EXACT_OR_NOT = pytest.mark.parametrize("max_users", [10_000, 2], ids=["exact", "nystroem"])


def ntk(a: Dense, b: Dense, bias: float) -> float:
    """Return the tangent kernel of two rows, K1 + S K0, by its formula."""
    s = a @ b + bias
    length = np.sqrt((a @ a + bias) * (b @ b + bias))
    angle = np.arccos(np.clip(s / length, -1, 1))
    k1 = length * (np.sin(angle) + (np.pi - angle) * np.cos(angle)) / (2 * np.pi)
    return float(k1 + s * (np.pi - angle) / (2 * np.pi))


def test_it_is_the_dense_solution_with_a_ridge_for_each_user() -> None:
    train, history = random_csr(25, 8, 0.3, 0), random_csr(4, 8, 0.3, 1)
    model = ThinningKernel(ridge=1.5, ridge_power=0.7, input_power=0.3, norm_power=0.6, c=0.2, bias=0.05).fit(train)
    x, asked = train.toarray().astype(np.float64), history.toarray().astype(np.float64)
    n, lengths = x.sum(axis=0), x.sum(axis=1)
    weights = (n / n.mean()) ** -0.3
    weights /= np.sqrt(((x * weights) ** 2).sum(axis=1).mean())  # users have mean squared norm 1

    def inputs(rows: Dense) -> Dense:
        entering = rows * weights
        return entering / np.linalg.norm(entering, axis=1, keepdims=True) ** 0.6

    a, b = inputs(x), inputs(asked)
    k = np.array([[ntk(one, other, 0.05) for other in a] for one in a])
    ridge = 1.5 * np.trace(k) / 25 * (lengths / lengths.mean()) ** 0.7
    across = np.array([[ntk(one, other, 0.05) for other in a] for one in b])
    expected = across @ np.linalg.solve(k + np.diag(ridge), x) * (n / n.mean()) ** -0.2
    assert model.score(history) == pytest.approx(expected, abs=1e-4)


def test_with_equal_ridges_and_no_prior_it_is_the_infinite_autoencoder() -> None:
    train, history = random_csr(40, 15, 0.3, 0), random_csr(6, 15, 0.3, 1)
    same: dict[str, Any] = {"ridge": 2.0, "input_power": 0.3, "norm_power": 0.4, "bias": 0.02}
    ours = ThinningKernel(**same, ridge_power=0, c=0).fit(train)
    assert ours.score(history) == pytest.approx(InfiniteAE(**same).fit(train).score(history), abs=1e-6)
    other = ThinningKernel(**same, ridge_power=0.5, c=0).fit(train)
    assert np.abs(other.score(history) - ours.score(history)).max() > 1e-3


def test_a_larger_ridge_for_longer_users_trusts_them_less() -> None:
    """Two users alike but for their length ask for what the other has: a high power takes the long one's weight."""
    train = csr([[0, 1], [2, 3, 4, 5, 6, 7]], 8)
    history = csr([[0, 2]], 8)
    given: dict[str, Any] = {"ridge": 1.0, "input_power": 0, "norm_power": 1, "c": 0}
    even, uneven = (ThinningKernel(**given, ridge_power=power).fit(train).score(history)[0] for power in (0, 1))
    assert uneven[3] / uneven[1] < even[3] / even[1]


@EXACT_OR_NOT
@pytest.mark.parametrize(
    "train",
    [
        csr([[0, 1, 2]] * 20, 5),
        csr([[0], [1], [2]] * 5, 5),
        csr([[0, 1], [], [3]] * 3, 5),
        csr([[0, 1], [0]], 2),
        csr([[0, 1, 2]], 5),
    ],
    ids=["all alike", "one item each", "empty users", "two items", "one user"],
)
def test_odd_data_has_finite_scores(train: Csr, max_users: int) -> None:
    n_items = train.shape[1]
    model = ThinningKernel(max_users=max_users).fit(train, rng=0)
    scores = model.score(csr([[], [0], list(range(n_items))], n_items))
    assert np.isfinite(scores).all()
    assert scores.dtype == np.float32


@EXACT_OR_NOT
def test_a_fit_that_does_not_fit_into_memory_is_refused_and_says_what_to_do(
    max_users: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("recfusion.core.memory.available_bytes", lambda: 100)
    with pytest.raises(
        InputError, match=r"A thinning kernel (on 30|with 2 landmark) users .*needs .*: lower max_users"
    ):
        ThinningKernel(max_users=max_users).fit(random_csr(30, 8, 0.3, 0), rng=0)


@pytest.mark.parametrize("setting", [{"ridge": 0.0}, {"input_power": -0.1}, {"norm_power": -1.0}], ids=str)
def test_a_setting_below_its_bound_is_refused(setting: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=f"Expected {next(iter(setting))} of ThinningKernel to be at least"):
        ThinningKernel(**setting)


def test_in_a_mixture_many_users_are_represented_by_landmarks() -> None:
    few, many = Shape(10_000, 12_000, 10**6), Shape(10_001, 12_001, 10**6)
    kernel = ThinningKernel()
    assert kernel.economical(few) == replace(kernel, tune_trials=1)
    assert kernel.economical(many).max_users == 5000
