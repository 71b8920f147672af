"""The contract's checks on every model of the registry; a new model is tested by its table in models.toml."""

from typing import Any

import pytest

from recfusion.core.errors import InputError
from recfusion.models.neural.network import NeuralRecommender
from recfusion.models.registry import MODELS, make_model
from recfusion.models.settings import search_space, settings_of
from recfusion.testing import Check, Subject, check_recommender, checks

ALL = pytest.mark.parametrize("name", MODELS)
FLOORS = ("random", "popularity", "recent-popularity", "content")
PERSONAL = pytest.mark.parametrize("name", [name for name in MODELS if name not in FLOORS])
IALS: dict[str, Any] = {"factors": 8, "iterations": 4}
DEEP: dict[str, Any] = {"max_epochs": 2, "width": 16, "latent": 8, "layers": 2}
UNET: dict[str, Any] = {"max_epochs": 1, "channels": 2, "levels": 2, "pixels": 2}
SMALL: dict[str, dict[str, Any]] = {
    "ials": IALS,
    "ease-pairs": {"tune_trials": 5},
    "thinning-pairs": {"tune_trials": 5},
    "thinning": {"parts": {"thinning-pairs": {}, "infinite-ae": {}, "ials": IALS, "thinning-deep": DEEP}},
    "mixture": {"members": "ease,infinite-ae"},
    "recvae": {**DEEP, "encoder_passes": 1},
    "recfusion-unet1d": UNET,
    "recfusion-unet2d": {**UNET, "neighbours": 3},
    "recfusion-map": UNET,
}


def small(name: str) -> dict[str, Any]:
    """Return settings for data this small; networks get just enough epochs to be trained at all."""
    kind = MODELS[name].load()
    nets = {key: DEEP[key] for key in DEEP if key in settings_of(kind)} if issubclass(kind, NeuralRecommender) else {}
    return SMALL.get(name, nets)


@pytest.fixture(scope="module")
def subject(request: pytest.FixtureRequest) -> Subject:
    """A model whose first fit serves all checks."""
    return Subject(make_model(request.param, small(request.param)))


@pytest.mark.parametrize("subject", MODELS, indirect=True)
@pytest.mark.parametrize("check", checks(), ids=str)
def test_every_model_keeps_the_contract(subject: Subject, check: Check) -> None:
    check(subject)


@PERSONAL
def test_the_item_withheld_from_a_checkerboard_ranks_first(name: str) -> None:
    known = settings_of(MODELS[name].load())
    more = {key: value for key, value in {"max_epochs": 20, "width": 100}.items() if key in known}
    settings = {**small(name), **more} if small(name).keys() & DEEP else SMALL.get(name, {})
    check_recommender(make_model(name, settings), only="learns_tastes")


@ALL
def test_every_setting_is_documented_and_its_default_lies_where_it_is_searched(name: str) -> None:
    model = make_model(name)
    space = search_space(type(model))
    for setting, declared in settings_of(type(model)).items():
        assert declared.doc
        if setting in space:
            assert space[setting].holds(getattr(model, setting) if declared.start is None else declared.start)
    assert MODELS[name].title


@ALL
def test_an_unknown_setting_is_refused(name: str) -> None:
    with pytest.raises(InputError, match=f"Unknown setting of {name} 'speed'"):
        make_model(name, {"speed": "11"})


def test_an_unknown_model_lists_the_known_ones() -> None:
    with pytest.raises(InputError, match=r"Unknown model 'eease': choose one of .*ease"):
        make_model("eease")
