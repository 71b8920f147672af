"""U-Nets that know their items: what they see, what they leave out, and what they learn."""

from typing import Any

import numpy as np
import pytest
import torch

from conftest import csr, random_csr
from recfusion.core.arrays import Csr
from recfusion.core.errors import InputError
from recfusion.data.interactions import Interactions
from recfusion.data.split import split
from recfusion.evaluation.evaluate import evaluate
from recfusion.models.baselines.popularity import Popularity
from recfusion.models.recfusion.unet import RecFusionUNet
from recfusion.models.registry import MODELS, make_model
from recfusion.nets.unet import ItemUNet

SMALL: dict[str, Any] = {"process": "thinning", "objective": "ranking", "channels": 4, "levels": 2, "pixels": 2, "T": 4}
LAYOUTS = [("unet1d", "row"), ("unet2d", "map"), ("unet1d", "random-row"), ("unet2d", "random-map")]


def small(net: str = "unet2d", layout: str = "map", **others: Any) -> RecFusionUNet:
    return RecFusionUNet(**{**SMALL, "net": net, "layout": layout, "max_epochs": 1, **others})


@pytest.mark.parametrize(("net", "layout"), LAYOUTS)
@pytest.mark.parametrize("neighbours", [0, 3])
def test_every_layout_is_trained_saved_and_loaded(net: str, layout: str, neighbours: int) -> None:
    train, asked = random_csr(20, 13, 0.3, 0), random_csr(5, 13, 0.3, 1)
    model = small(net, layout, neighbours=neighbours).fit(train, rng=0)
    again = small(net, layout, neighbours=neighbours)
    again.load_state(model.state(), model.chosen(), 13)
    assert (again.score(asked) == model.score(asked)).all()
    assert model.keeps_histories == (neighbours > 0)
    assert model.score(asked[:1])[0] == pytest.approx(model.score(asked)[0], abs=1e-5)


def test_the_bias_of_an_item_begins_at_the_logarithm_of_its_popularity() -> None:
    train = csr([[0, 1], [0, 1], [0, 2], [0]], 4)
    model = small(lr=0.0).fit(train, rng=0)
    assert isinstance(model.net_, ItemUNet)
    bias = model.net_.bias.detach().numpy()
    assert np.diff(bias) == pytest.approx(np.diff(np.log([4.5, 2.5, 1.5, 0.5])), abs=1e-5)


def test_weight_decay_leaves_popularity_alone() -> None:
    train = random_csr(40, 12, 0.3, 0)
    model = small(weight_decay=1.0).fit(train, rng=0)
    assert isinstance(model.net_, ItemUNet)
    assert list(model.undecayed_parameters()) == [model.net_.bias]


def test_the_process_thins_evenly_between_high_and_low() -> None:
    model = small(T=5, low=0.4, high=0.9).fit(random_csr(9, 6, 0.4, 0), rng=0)
    process = model.make_process(model.means)
    assert process.survival(torch.arange(1, 6)).tolist() == pytest.approx([0.9, 0.775, 0.65, 0.525, 0.4])  # type: ignore[attr-defined]


def test_drift_draws_the_entries_anew_that_do_not_survive() -> None:
    model = small(T=5, process="drift", objective="elbo").fit(random_csr(9, 6, 0.4, 0), rng=0)
    process = model.make_process(model.means)
    left = torch.tensor([[0.9], [0.775], [0.65], [0.525], [0.4]], dtype=torch.float64)
    expected = left + (1 - left) * model.means
    assert torch.allclose(process.survival(torch.arange(1, 6)), expected)  # type: ignore[attr-defined]


class Watched(RecFusionUNet):
    """Remembers for whom neighbours were looked for, and whom they were to leave out."""

    def prepare(self, train: Csr) -> None:
        super().prepare(train)
        self.seen = list[tuple[Csr, Csr | None]]()
        average = self._nearest.average  # type: ignore[union-attr]

        def watched(history: Csr, k: int, without: Csr | None = None) -> Any:
            self.seen.append((history, without))
            return average(history, k, without)

        self._nearest.average = watched  # type: ignore[union-attr, method-assign]


def test_neighbours_are_chosen_by_what_is_left_of_a_row_and_never_are_the_row_itself() -> None:
    train = random_csr(30, 40, 0.5, 0)
    model = Watched(**{**SMALL, "net": "unet2d", "layout": "map", "neighbours": 2, "max_epochs": 1, "high": 0.5})
    model.fit(train, rng=0)
    rows = {tuple(row.nonzero()[0]) for row in train.toarray()}
    for history, without in model.seen:
        assert without is not None
        assert (history.toarray() <= without.toarray()).all()
        assert history.sum() < 0.6 * without.sum()  # x^t, not x^0
        assert {tuple(row.nonzero()[0]) for row in without.toarray()} <= rows
    model.seen.clear()
    model.score(train[:3])
    assert model.seen[0][1] is None  # somebody who is asked for may be anybody


@pytest.mark.parametrize("name", ["recfusion-unet1d", "recfusion-map", "recfusion-unet2d"])
def test_they_learn_more_than_popularity(groups: Interactions, name: str) -> None:
    parts = split(groups)
    model = make_model(name, {"channels": 8, "levels": 2, "pixels": 4, "max_epochs": 15})
    model.fit(parts.train, parts.valid, rng=0)
    found, least = (
        evaluate(each, parts.test, parts.train, ("ndcg@10",)).mean()["ndcg@10"]
        for each in (model, Popularity().fit(parts.train))
    )
    assert found > 1.3 * least


@pytest.mark.parametrize("name", ["recfusion-unet1d", "recfusion-unet2d"])
def test_the_published_form_is_a_preset(name: str) -> None:
    model = make_model(name, {"preset": "paper"})
    assert isinstance(model, RecFusionUNet)
    assert (model.layout, model.process, model.objective) == ("none", "gaussian", "published")
    assert (model.channels, model.levels, model.picture_users) == (1, 2, 200)
    assert model.net == name.removeprefix("recfusion-")
    assert "paper" not in MODELS["recfusion-map"].presets  # which the paper does not have


def test_a_saved_place_that_is_none_is_refused() -> None:
    model = small().fit(random_csr(9, 6, 0.4, 0), rng=0)
    for wrong in ([0, 1, 2, 3, 4, 999], [0, 0, 1, 2, 3, 4], [0, 1, 2], [-1, 0, 1, 2, 3, 4]):
        state = model.state() | {"slots_": np.array(wrong, np.int64)}
        with pytest.raises(ValueError, match="slots_ are not 6 different positions"):
            small().load_state(state, {}, 6)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"net": "mlp"}, "A layout of items needs a U-Net"),
        ({"process": "gaussian", "objective": "simple"}, "a process other than gaussian"),
        ({"process": "gaussian"}, "objective simple or elbo. A layout of items needs"),  # both at once
        ({"objective": "published"}, "other than 'published'"),
        ({"low": 0.9, "high": 0.5}, "0 < low < high < 1"),
        ({"pixels": 0}, "pixel"),
        ({"layout": "circle"}, "layout"),
    ],
)
def test_settings_that_do_not_fit_together_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        small(**settings)
