"""Forecasts of a fit's memory: from counts alone, and not below what the fit's arrays come to."""

import tracemalloc
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pytest

from conftest import random_csr
from recfusion.core.arrays import Csr, FloatArray
from recfusion.core.errors import InputError
from recfusion.core.rng import RngLike
from recfusion.data.interactions import Features
from recfusion.data.signals import Extra
from recfusion.data.split import Fold
from recfusion.models.abilities import fit_in_epochs
from recfusion.models.base import Forecast, Recommender, Shape
from recfusion.models.linear.gram import gram, gram_bytes
from recfusion.models.registry import MODELS, make_model
from recfusion.models.thinning.parts import economical

SETTINGS: dict[str, dict[str, Any]] = {
    "ease": {"l2": 10.0},
    "thinning-linear": {"tune_trials": 0},
    "thinning-local": {"tune_trials": 0, "neighbours": 40},
    "ials": {"tune_trials": 0, "iterations": 1},
}


@dataclass
class Silent(Recommender):
    """A model that says nothing about its costs."""

    def fit(self, train: Csr, valid: Fold | None = None, *, rng: RngLike = None) -> Self:
        return self

    def score(self, history: Csr) -> FloatArray:
        return np.zeros(history.shape, np.float32)


def peak(model: Recommender, train: Any, extra: Extra | None = None) -> int:
    """Return the most bytes that numpy's arrays had at once during a fit."""
    tracemalloc.start()
    try:
        for _ in fit_in_epochs(model, train, None, extra, rng=0):
            pass
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def memory(model: Recommender, shape: Shape) -> int:
    """Return the bytes that a model forecasts."""
    found = model.forecast(shape).bytes
    assert found is not None
    return found


@pytest.mark.parametrize("name", SETTINGS)
def test_a_fit_holds_no_more_than_its_forecast(name: str) -> None:
    train = random_csr(1_500, 1_200, 0.01, seed=0)
    model = make_model(name, SETTINGS[name])
    forecast = memory(model, Shape.of(train))
    used = peak(model, train)
    assert used <= 1.1 * forecast
    assert memory(model, Shape(15, 12, 30)) < forecast


def test_a_model_that_knows_nothing_of_its_costs_says_so() -> None:
    assert Silent().forecast(Shape(10, 10, 20)) == Forecast(None, None)


@pytest.mark.parametrize("name", MODELS)
def test_every_model_forecasts_its_memory_and_more_for_more_data(name: str) -> None:
    model = make_model(name, {})
    small, large = (memory(model, shape) for shape in (Shape(90, 500, 900), Shape(40_000, 9_000, 400_000)))
    assert small < large or (name, small) == ("user-knn", 0)


def test_a_network_that_would_not_fit_is_refused_before_it_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recfusion.core.memory.available_bytes", lambda: 50_000_000)
    with pytest.raises(InputError, match=r"lower batch_size.*thinning-local"):
        make_model("multvae", {}).fit(random_csr(400, 3_000, 0.01, seed=0))


def test_the_mixture_takes_what_its_largest_part_does_and_plans_for_many_items() -> None:
    small, large = Shape(5_000, 3_000, 500_000), Shape(400_000, 200_000, 5_000_000)
    parts = [economical(make_model(name, {}), small) for name in ("thinning-pairs", "ials")]
    assert memory(make_model("thinning", {}), small) == max(memory(part, small) for part in parts)
    whole, planned = (memory(make_model(name, {}), large) for name in ("thinning-linear", "thinning"))
    assert whole > 160e9
    assert planned < 4e9


def test_a_refusal_names_the_model_that_would_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recfusion.core.memory.available_bytes", lambda: 1000)
    with pytest.raises(InputError, match="train thinning-local"):
        make_model("ease", {}).fit(random_csr(40, 30, 0.2, seed=0))


def test_the_sparse_gram_matrix_is_filled_block_by_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recfusion.models.linear.gram._SPARSE_PENALTY", 0.0)
    monkeypatch.setattr("recfusion.models.linear.gram._PRODUCTS_PER_BLOCK", 50)
    train = random_csr(50, 20, 0.2, seed=3)
    dense = train.toarray()
    assert np.array_equal(gram(train), dense.T @ dense)


def test_the_compiled_gram_matrix_is_the_dense_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recfusion.models.linear.gram.COMPILE_SECONDS", -1.0)  # so that it is always worth it
    monkeypatch.setattr("recfusion.models.linear.gram.ssyrk", None)  # and no other way is gone
    train = random_csr(300, 40, 0.2, seed=3)
    train.data[:] = np.random.default_rng(0).random(train.nnz)
    train = train[:, ::-1]  # columns in no order
    dense = train.toarray().astype(np.float64)
    assert gram(train) == pytest.approx(dense.T @ dense, rel=1e-5)


def test_dislikes_double_the_features_and_cost_what_the_cube_of_that_says() -> None:
    plain, both = Shape(6_000, 30_000, 500_000), Shape(6_000, 30_000, 500_000, dislikes=400_000)
    model = make_model("thinning-signals", {"tune_trials": 0})
    assert model.forecast(both).seconds == pytest.approx(8 * (model.forecast(plain).seconds or 0))
    ignored = make_model("thinning-signals", {"tune_trials": 0, "dislikes": "ignored"})
    assert ignored.forecast(both).seconds == model.forecast(plain).seconds
    # four times the matrix of features, and twice the weights of the items
    assert 2 < memory(model, both) / memory(model, plain) < 4


def test_a_fit_with_signals_holds_no_more_than_its_forecast() -> None:
    train, disliked = random_csr(900, 800, 0.02, seed=0), random_csr(900, 800, 0.02, seed=1)
    described = Features(random_csr(800, 200, 0.02, seed=2), tuple(str(n) for n in range(200)))
    slack = gram_bytes(0, 0, 0)  # of a block of the Gram matrix, which small data does not need
    for name, extra in (
        ("thinning-signals", Extra(disliked=disliked)),
        ("thinning-features", Extra(item_features=described)),
    ):
        model = make_model(name, {"tune_trials": 0})
        forecast = model.forecast(Shape.of(train, extra)).bytes
        assert forecast is not None
        assert peak(model, train, extra) <= 1.2 * (forecast - slack)
