"""The models of studies/ keep the contract as plug-ins, and their old names say where they are."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conftest import raw
from recfusion.core.errors import InputError
from recfusion.data.options import Preparation
from recfusion.data.prepare import prepare
from recfusion.experiments.train import train
from recfusion.inference.bundle import Bundle
from recfusion.models.registry import MODELS, MOVED, find
from recfusion.models.settings import search_space, settings_of
from recfusion.testing import Check, Subject, check_recommender, checks

ROOT = Path(__file__).parents[2]
NETWORK: dict[str, Any] = {"max_epochs": 2, "width": 16}
SMALL: dict[str, dict[str, Any]] = {
    "category-popularity": {},
    "cease": {},
    "hvamp": {**NETWORK, "latent": 8},
    "ials-dislikes": {"factors": 8, "iterations": 4},
    "multvae-dislikes": {**NETWORK, "latent": 8},
    "recfusion-dislikes": NETWORK,
    "recfusion-grades": {**NETWORK, "layers": 2},
    "recfusion-guided": NETWORK,
    "recfusion-latent": {"factors": 8, "iterations": 4, **NETWORK},
    "tale": {},
    "thinning-kernel": {"tune_trials": 3},
}


@pytest.fixture(scope="module")
def subject(request: pytest.FixtureRequest) -> Subject:
    return Subject(find(MOVED[request.param], ROOT).make(SMALL[request.param]))


@pytest.mark.parametrize("subject", MOVED, indirect=True)
@pytest.mark.parametrize("check", checks(), ids=str)
def test_every_moved_model_keeps_the_contract(subject: Subject, check: Check) -> None:
    check(subject)


@pytest.mark.parametrize(("name", "place"), MOVED.items())
def test_an_old_name_says_where_the_model_is(name: str, place: str) -> None:
    assert name not in MODELS
    with pytest.raises(InputError, match=rf"^{name} moved to {place.partition(':')[0]}: use {place}\.$"):
        find(name)


def test_an_old_folder_of_a_moved_model_needs_its_class_to_load(tmp_path: Path) -> None:
    kind = find(MOVED["multvae-dislikes"], ROOT).load()
    data = prepare(
        raw({"user": [u for u in range(30) for _ in range(5)], "item": [i % 12 for i in range(150)]}), Preparation()
    )
    model = find(MOVED["multvae-dislikes"], ROOT).make({"max_epochs": 1, "width": 8, "latent": 4})
    saved = train(model, data)
    saved.save(tmp_path / "model")
    config = tmp_path / "model" / "config.json"
    written = json.loads(config.read_text())
    written |= {"model": "multvae-dislikes", "place": "recfusion.models.dislikes:MultVAEDislikes"}
    del written["digest"]
    config.write_text(json.dumps(written))
    with pytest.raises(InputError, match=r"add --trust studies/dislikes\.py:MultVAEDislikes to load it"):
        Bundle.load(tmp_path / "model")
    loaded = Bundle.load(tmp_path / "model", trust=[kind])
    np.testing.assert_array_equal(loaded.model.score(data.matrix), saved.model.score(data.matrix))


@pytest.mark.parametrize("name", [name for name in MOVED if name != "category-popularity"])
def test_the_item_withheld_from_a_checkerboard_ranks_first(name: str) -> None:
    found = find(MOVED[name], ROOT)
    longer = {key: value for key, value in {"max_epochs": 20, "width": 100}.items() if key in settings_of(found.load())}
    check_recommender(found.make({**SMALL[name], **longer}), only="learns_tastes")


@pytest.mark.parametrize("place", MOVED.values())
def test_every_setting_is_documented_and_its_default_lies_where_it_is_searched(place: str) -> None:
    model = find(place, ROOT).make()
    space = search_space(type(model))
    for setting, declared in settings_of(type(model)).items():
        assert declared.doc
        assert setting not in space or space[setting].holds(
            getattr(model, setting) if declared.start is None else declared.start
        )
