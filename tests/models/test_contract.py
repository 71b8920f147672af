"""What every model of the registry must do; a new model is tested by being registered."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conftest import csr, random_csr
from recfusion.core.errors import InputError
from recfusion.data.interactions import Interactions
from recfusion.data.split import split
from recfusion.evaluation.topk import top_k
from recfusion.experiments.train import train
from recfusion.models.base import settings_of
from recfusion.models.bundle import Bundle
from recfusion.models.neural import NeuralRecommender
from recfusion.models.registry import MODELS, make_model

ALL = pytest.mark.parametrize("name", MODELS)
PERSONAL = pytest.mark.parametrize("name", [name for name in MODELS if name not in ("random", "popularity")])


def small(name: str) -> dict[str, Any]:
    """Return settings for tables this small: networks need 20 epochs of ten steps, and mixtures none of them."""
    if name == "mixture":
        return {"members": "ease,infinite-ae"}
    return {"max_epochs": 20} if issubclass(MODELS[name].load(), NeuralRecommender) else {}


@pytest.fixture(scope="module")
def fitted(request: pytest.FixtureRequest, groups: Interactions) -> Bundle:
    """A model that is fitted once for all tests that only ask it."""
    return train(request.param, groups, small(request.param), seed=5)


FITTED = pytest.mark.parametrize("fitted", MODELS, indirect=True)


@PERSONAL
def test_the_withheld_item_of_a_checkerboard_ranks_first(name: str) -> None:
    """Even users have the even items and odd users the odd ones; one item is taken from a new user."""
    n = 20
    board = csr([list(range(user % 2, n, 2)) for user in range(60)], n)
    model = make_model(name, small(name)).fit(board, rng=0)
    for withheld in (4, 7):
        history = csr([[item for item in range(withheld % 2, n, 2) if item != withheld]], n)
        items, _ = top_k(model.score(history), history, 1)
        assert items.tolist() == [[withheld]]


@FITTED
def test_scores_have_the_right_shape_and_type(fitted: Bundle, groups: Interactions) -> None:
    history = split(groups).test.history
    scores = fitted.model.score(history)
    assert scores.shape == history.shape
    assert scores.dtype == np.float32
    assert scores.flags.writeable
    assert not np.isnan(scores).any()


@FITTED
def test_a_user_s_scores_do_not_depend_on_who_else_is_asked_for(fitted: Bundle, groups: Interactions) -> None:
    history = split(groups).test.history
    together = fitted.model.score(history)
    for row in range(3):
        assert fitted.model.score(history[[row]])[0] == pytest.approx(together[row], abs=1e-6)


@FITTED
def test_the_same_seed_gives_the_same_scores(fitted: Bundle, groups: Interactions) -> None:
    history = split(groups).test.history
    again = train(fitted.name, groups, small(fitted.name), seed=5)
    assert (fitted.model.score(history) == again.model.score(history)).all()


@FITTED
def test_overwriting_scores_does_not_change_the_model(fitted: Bundle, groups: Interactions) -> None:
    history = split(groups).test.history
    first = fitted.model.score(history)
    kept = first.copy()
    first[:] = -1
    assert (fitted.model.score(history) == kept).all()


@FITTED
def test_an_empty_history_has_scores(fitted: Bundle, groups: Interactions) -> None:
    assert fitted.model.score(csr([[]], groups.n_items)).shape == (1, groups.n_items)


@ALL
def test_an_item_that_nobody_has_breaks_nothing(name: str) -> None:
    table = random_csr(30, 12, 0.3, 0)[:, list(range(11))]
    table = csr([row.indices.tolist() for row in table], 12)  # item 11 has no user
    scores = make_model(name, small(name)).fit(table, rng=0).score(table)
    assert not np.isnan(scores).any()


@FITTED
def test_a_saved_model_scores_as_before(fitted: Bundle, groups: Interactions, tmp_path: Path) -> None:
    fitted.save(tmp_path / "model [1]")
    loaded = Bundle.load(tmp_path / "model [1]")
    history = split(groups).test.history
    assert (loaded.model.score(history) == fitted.model.score(history)).all()
    assert loaded.model == fitted.model
    assert loaded.protocol == fitted.protocol
    assert loaded.items.equals(fitted.items)


@ALL
def test_every_setting_is_documented_and_its_default_is_allowed(name: str) -> None:
    model = make_model(name)
    for setting, declared in settings_of(MODELS[name].load()).items():
        assert declared.doc
        if declared.search is not None:
            value = getattr(model, setting) if declared.start is None else declared.start
            assert declared.search[0] <= value <= declared.search[1]
    assert MODELS[name].title


@ALL
def test_an_unknown_setting_is_refused(name: str) -> None:
    with pytest.raises(InputError, match=f"Unknown setting of {name} 'speed'"):
        make_model(name, {"speed": "11"})


def test_an_unknown_model_lists_the_known_ones() -> None:
    with pytest.raises(InputError, match=r"Unknown model 'eease': choose one of .*ease"):
        make_model("eease")
