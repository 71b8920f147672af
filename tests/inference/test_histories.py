"""Which models hold rows of training users, that their cards say so, and how to train without."""

from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

from recfusion.core.errors import InputError
from recfusion.data.interactions import Interactions
from recfusion.experiments.train import train
from recfusion.inference.model_card import model_card
from recfusion.models.abilities import keeps_histories
from recfusion.models.base import Recommender
from recfusion.models.registry import MODELS
from recfusion.models.settings import learned_names
from recfusion.models.thinning.mixture import Thinning

SMALL: dict[str, dict[str, Any]] = {
    "thinning": {"members": "thinning-linear,infinite-ae", "tune_trials": 0},
    "mixture": {"members": "ease,infinite-ae", "tune_trials": 0},
    "recfusion-unet1d": {"max_epochs": 1, "channels": 1, "levels": 2},
    "recfusion-unet2d": {"max_epochs": 1, "channels": 1, "levels": 2},
}
HOLDS = "It holds rows of the training data"


def holds_rows(model: Recommender, data: Interactions) -> bool:
    """Return whether the items of at least ten users stand in some array, row by row."""
    if isinstance(model, Thinning):
        return any(holds_rows(part, data) for part in model.parts_.values())
    users = {tuple(row.indices.tolist()) for row in data.matrix}
    for name in learned_names(type(model)):
        array = getattr(model, name)
        if isinstance(array, csr_array) and array.shape[1] == data.n_items:
            found = {tuple(np.sort(row.indices).tolist()) for row in array}
            if len(found & users) >= 10:
                return True
    return False


@pytest.mark.parametrize("name", MODELS)
def test_a_model_says_so_if_and_only_if_it_holds_rows(name: str, groups: Interactions) -> None:
    settings = SMALL.get(name) or ({"max_epochs": 1} if "max_epochs" in vars(MODELS[name].make()) else {})
    bundle = train(name, groups, settings)
    assert keeps_histories(bundle.model) == holds_rows(bundle.model, groups)
    assert (HOLDS in model_card(bundle)) == keeps_histories(bundle.model)


def test_without_histories_a_mixture_leaves_parts_out_and_a_kernel_is_refused(groups: Interactions) -> None:
    bundle = train("thinning", groups, SMALL["thinning"], histories=False, signals="binary")
    assert isinstance(bundle.model, Thinning)
    assert list(bundle.model.parts_) == ["thinning-linear"]
    assert HOLDS not in model_card(bundle)
    given: list[dict[str, Any]] = [{"members": "infinite-ae"}, {"parts": {"infinite-ae": {}}}]
    for settings in given:
        with pytest.raises(InputError, match="holds rows of training users: choose another model"):
            train("thinning", groups, settings, histories=False)
    with pytest.raises(InputError, match="A fitted InfiniteAE with these settings holds rows"):
        train("infinite-ae", groups, histories=False)


def test_a_bundle_knows_how_many_users_it_was_fitted_on(groups: Interactions) -> None:
    assert train("popularity", groups).train_users == 64
    assert train("popularity", groups, all_users=True).train_users == 80
