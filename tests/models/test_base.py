"""Declaring settings: which values and types are allowed, and what a model says that has learned nothing."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from conftest import csr
from recfusion.core.errors import InputError
from recfusion.models.base import NotFitted, Shape
from recfusion.models.baselines.popularity import Popularity
from recfusion.models.factors.ials import IALS
from recfusion.models.linear.ease import EASE
from recfusion.models.neural.infinite_ae import InfiniteAE
from recfusion.models.settings import setting


def test_a_setting_of_a_type_that_cannot_be_checked_is_refused() -> None:
    @dataclass
    class Odd(Popularity):
        shape: Shape = setting(Shape(1, 1, 1), "a record, which has rules of its own")

    with pytest.raises(InputError, match="The setting shape of Odd has a type that cannot be checked: use numbers"):
        Odd()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"l2": 0.0}, "Expected l2 of EASE to be at least 1e-06, got 0.0"),
        ({"l2": "5"}, "Setting l2 of EASE: input should be a valid number; got '5'"),
        ({"l2": float("nan")}, "Setting l2 of EASE: input should be a finite number; got nan"),
        ({"tune_trials": 2.0}, "Setting tune_trials of EASE: input should be a valid integer; got 2.0"),
        ({"tune_trials": True}, "Setting tune_trials of EASE: input should be a valid integer; got True"),
    ],
)
def test_a_constructor_refuses_wrong_settings(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        EASE(**settings)


def test_numbers_of_numpy_and_whole_numbers_are_taken_as_plain_ones() -> None:
    model = EASE(l2=np.float32(0.5), tune_trials=np.int64(3))  # type: ignore[arg-type]
    assert (type(model.l2), type(model.tune_trials)) == (float, int)
    assert replace(model, l2=7) == EASE(l2=7.0, tune_trials=3)


def test_a_model_that_is_not_fitted_says_so_and_a_misspelt_name_is_told_apart() -> None:
    for ask in (lambda: EASE().score(csr([[0]], 3)), EASE().state, IALS().state, EASE().chosen):
        with pytest.raises(NotFitted, match=r"This \w+ is not fitted yet: call fit before you use it\."):
            ask()
    with pytest.raises(AttributeError, match="'EASE' object has no attribute 'wieghts_'"):
        EASE().wieghts_  # type: ignore[attr-defined]  # noqa: B018


def test_a_saved_sparse_matrix_with_entries_outside_of_it_is_refused() -> None:
    model = InfiniteAE().fit(csr([[0, 1], [1, 2], [0, 2]], 3), rng=0)
    good = model.state()
    InfiniteAE().load_state(good, {}, 3)
    for part, wrong in {"indices": 3, "indptr": 9, "shape": 1}.items():
        bad = {**good, f"inputs_.{part}": good[f"inputs_.{part}"].copy()}
        bad[f"inputs_.{part}"][-1] = wrong
        with pytest.raises(ValueError, match="inputs_ "):
            InfiniteAE().load_state(bad, {}, 3)
