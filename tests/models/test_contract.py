"""What every model of the registry must do; a new model is tested by being registered."""

from pathlib import Path

import numpy as np
import pytest

from conftest import csr, random_csr
from recfusion.core.errors import InputError
from recfusion.data.interactions import Interactions
from recfusion.data.split import split
from recfusion.evaluation.topk import top_k
from recfusion.experiments.train import train
from recfusion.models.base import Recommender, settings_of
from recfusion.models.bundle import Bundle
from recfusion.models.neural import NeuralRecommender
from recfusion.models.registry import MODELS, make_model

ALL = pytest.mark.parametrize("name", MODELS)
PERSONAL = pytest.mark.parametrize("name", [name for name in MODELS if name not in ("random", "popularity")])


def small_model(name: str) -> Recommender:
    """Return a model that takes as many epochs as tables this small need: 20, of ten steps each."""
    return make_model(name, {"max_epochs": 20} if issubclass(MODELS[name].load(), NeuralRecommender) else {})


@PERSONAL
def test_the_withheld_item_of_a_checkerboard_ranks_first(name: str) -> None:
    """Even users have the even items and odd users the odd ones; one item is taken from a new user."""
    n = 20
    board = csr([list(range(user % 2, n, 2)) for user in range(60)], n)
    model = small_model(name).fit(board, rng=0)
    for withheld in (4, 7):
        history = csr([[item for item in range(withheld % 2, n, 2) if item != withheld]], n)
        items, _ = top_k(model.score(history), history, 1)
        assert items.tolist() == [[withheld]]


@ALL
def test_scores_have_the_right_shape_and_type(name: str, groups: Interactions) -> None:
    parts = split(groups)
    scores = small_model(name).fit(parts.train, parts.valid, rng=0).score(parts.test.history)
    assert scores.shape == parts.test.history.shape
    assert scores.dtype == np.float32
    assert scores.flags.writeable
    assert not np.isnan(scores).any()


@ALL
def test_a_user_s_scores_do_not_depend_on_who_else_is_asked_for(name: str, groups: Interactions) -> None:
    parts = split(groups)
    model = small_model(name).fit(parts.train, parts.valid, rng=0)
    together = model.score(parts.test.history)
    for row in range(3):
        assert model.score(parts.test.history[[row]])[0] == pytest.approx(together[row], abs=1e-6)


@ALL
def test_the_same_seed_gives_the_same_scores(name: str, groups: Interactions) -> None:
    parts = split(groups)
    one, two = (small_model(name).fit(parts.train, parts.valid, rng=5).score(parts.test.history) for _ in range(2))
    assert (one == two).all()


@ALL
def test_overwriting_scores_does_not_change_the_model(name: str, groups: Interactions) -> None:
    parts = split(groups)
    model = small_model(name).fit(parts.train, parts.valid, rng=0)
    first = model.score(parts.test.history)
    kept = first.copy()
    first[:] = -1
    assert (model.score(parts.test.history) == kept).all()


@ALL
def test_an_empty_history_has_scores(name: str, groups: Interactions) -> None:
    parts = split(groups)
    model = small_model(name).fit(parts.train, parts.valid, rng=0)
    assert model.score(csr([[]], groups.n_items)).shape == (1, groups.n_items)


@ALL
def test_an_item_that_nobody_has_breaks_nothing(name: str) -> None:
    train = random_csr(30, 12, 0.3, 0)[:, list(range(11))]
    train = csr([row.indices.tolist() for row in train], 12)  # item 11 has no user
    scores = small_model(name).fit(train, rng=0).score(train)
    assert not np.isnan(scores).any()


@ALL
def test_a_saved_model_scores_as_before(name: str, groups: Interactions, tmp_path: Path) -> None:
    bundle = train(name, groups)
    bundle.save(tmp_path / "model")
    loaded = Bundle.load(tmp_path / "model")
    history = split(groups).test.history
    assert (loaded.model.score(history) == bundle.model.score(history)).all()
    assert loaded.model == bundle.model
    assert loaded.protocol == bundle.protocol
    assert loaded.items.equals(bundle.items)


@ALL
def test_every_setting_is_documented_and_its_default_is_allowed(name: str) -> None:
    model = small_model(name)
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
