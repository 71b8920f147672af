"""Optional abilities: what callers are told of a model that has one, and of a model that has only fit and score."""

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import pytest

from conftest import csr
from recfusion.core.arrays import Csr, FloatArray
from recfusion.core.errors import InputError
from recfusion.core.rng import RngLike
from recfusion.data.split import Fold
from recfusion.models import abilities
from recfusion.models.base import Forecast, Recommender, Shape
from recfusion.models.baselines.user_knn import UserKNN
from recfusion.models.registry import MODELS, make_model
from recfusion.models.settings import setting
from recfusion.models.thinning.local import ThinningLocal
from recfusion.models.thinning.mixture import Thinning
from recfusion.models.thinning.parts import beside, economical, name_part, part_message

SHAPE = Shape(50, 20, 300)
TRAIN = csr([[0, 1], [1, 2], [0, 2, 3]], 4)
PROTOCOLS = [kind for kind in vars(abilities).values() if getattr(kind, "_is_runtime_protocol", False)]
MEMBERS = ("without_histories", "check_grades", "idle", "needs_validation", "settled", "use_device")


@dataclass
class Plain(Recommender):
    """A model with fit and score alone, as in the README."""

    power: float = setting(1.0, "power of popularity")

    def fit(self, train: Csr, valid: Fold | None = None, *, rng: RngLike = None) -> Self:
        self.counts = train.sum(axis=0) ** self.power
        return self

    def score(self, history: Csr) -> FloatArray:
        return np.tile(self.counts.astype(np.float32), (history.shape[0], 1))


def test_a_model_with_fit_and_score_has_an_answer_for_every_caller() -> None:
    model = Plain()
    assert list(abilities.fit_in_epochs(model, TRAIN)) == []
    assert not any(isinstance(model, kind) for kind in PROTOCOLS)
    assert abilities.find_lists(model, TRAIN[[0]], 2)[0].tolist() == [[2, 3]]
    assert abilities.find_lists(model, TRAIN[[0]], 2, np.array([True, True, False, True]))[0].tolist() == [[3, -1]]
    assert not abilities.finds_lists(model)
    assert not abilities.keeps_histories(model)
    assert abilities.without_histories(model) is model
    assert abilities.skipped_settings(model) == ()
    assert abilities.signals_read(model) == frozenset()
    assert abilities.lowest_rating(model) == 0.0
    abilities.check_rating_values(model, np.array([9.5], np.float32), "the data")
    abilities.use_device(model, "cuda")
    assert not abilities.needs_validation(model, SHAPE)
    assert abilities.settled(model) == model
    assert model.forecast(SHAPE) == Forecast(None, None)
    assert economical(model, SHAPE) is beside(model, UserKNN()) is model


def test_the_contract_has_few_members() -> None:
    members = {name for name in vars(Recommender) if not name.startswith("_")}
    assert members == {
        *("fit", "score", "reasons", "forecast", "chosen", "state", "load_state", "n_parameters", "trials_")
    }


@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        ("ease", {"needs_validation"}),
        ("thinning-local", {"FindsLists", "needs_validation"}),
        ("thinning-features", {"ReadsSignals", "AddsItems", "idle", "needs_validation"}),
        ("thinning-signals", {"ReadsSignals", "idle", "needs_validation"}),
        ("user-knn", {"KeepsHistories"}),
        ("multvae", {"TrainsInEpochs", "idle", "needs_validation", "settled", "use_device"}),
    ],
)
def test_a_model_has_the_abilities_of_its_members(name: str, kinds: set[str]) -> None:
    model = make_model(name)
    found = {kind.__name__ for kind in PROTOCOLS if isinstance(model, kind)}
    assert found | {member for member in MEMBERS if hasattr(model, member)} == kinds


def test_only_some_models_are_asked_to_be_economical() -> None:
    assert economical(ThinningLocal(), SHAPE) == ThinningLocal(cells=0)
    assert not hasattr(Plain(), "economical")


def test_histories_are_refused_where_a_model_cannot_do_without() -> None:
    with pytest.raises(InputError, match="UserKNN with these settings holds rows of training users: choose another"):
        abilities.without_histories(UserKNN())
    mixed = Thinning(members="user-knn,ease")
    assert abilities.without_histories(mixed) == replace(mixed, members="ease")
    with pytest.raises(InputError, match="Thinning with these settings holds rows"):
        abilities.without_histories(Thinning(members="user-knn"))


def test_messages_of_a_part_begin_with_its_name() -> None:
    model = Plain()
    assert part_message(model, "too few users") == "too few users"
    name_part(model, "second")
    assert part_message(model, "too few users") == "second: too few users"
    assert part_message(replace(model), "too few users") == "too few users"


def test_models_with_open_settings_need_validation_users_unless_training_users_score_them() -> None:
    needed = {name for name in MODELS if abilities.needs_validation(make_model(name), SHAPE)}
    assert needed >= {"ials", "thinning", "thinning-features", "multvae", "recfusion"}
    assert not needed & {"popularity", "ease", "edlae", "thinning-linear", "thinning-local"}
    assert not abilities.needs_validation(make_model("ials", {"l2": 1.0, "alpha0": 0.1, "nu": 1.0}), SHAPE)
