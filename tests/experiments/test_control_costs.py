"""The cost of each re-ranking slider: measured as lists of held-out users, and kept out of the metrics."""

from pathlib import Path

import numpy as np
import pytest

import recfusion as rf
from recfusion.data.interactions import Interactions
from recfusion.data.split import split
from recfusion.evaluation.metrics import judge, per_user
from recfusion.experiments.control_costs import METRIC, control_costs
from recfusion.inference.model_card import model_card
from recfusion.server.loaded_models import LoadedModels, _load
from recfusion.server.model_info import describe


def test_the_point_at_the_default_is_the_plain_list(groups: Interactions) -> None:
    bundle, fold = rf.train("ease", groups), split(groups).valid.scorable()
    found = control_costs(bundle, fold)
    assert set(found) == {"control adventurousness", "control popularity", "control diversity"}
    plain = bundle.model.score(fold.history)
    plain[fold.history.toarray() > 0] = -np.inf
    items = np.argsort(-plain, axis=1, kind="stable")[:, :20]
    mean = float(per_user(judge(items, fold.held_out, np.zeros(40)), [METRIC])[METRIC].mean())
    for points in found.values():
        assert points["0"]["mean"] == pytest.approx(mean, abs=0.02)  # ties
        assert all(point["users"] == len(fold.users) for point in points.values())
    fame = found["control popularity"]
    assert fame["-1"]["popularity"] <= fame["0"]["popularity"] <= fame["1"]["popularity"]


def test_costs_are_in_the_folder_and_in_no_table_of_metrics(groups: Interactions, tmp_path: Path) -> None:
    folder = rf.train("ease", groups, costs=True).save(tmp_path / "model")
    bundle = rf.Bundle.load(folder)
    assert "control popularity" in bundle.metrics
    assert "control" not in model_card(bundle)
    (model,) = describe(LoadedModels((_load(folder, "model", mapped=False),)))["models"]
    assert [point["at"] for point in model["costs"]["popularity"]] == [-1, -0.5, 0, 0.5, 1]
    assert {one["judged_on"] for one in model["metrics"]} == {"validation"}
