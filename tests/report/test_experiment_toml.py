"""A comparison turned back into the experiment that made it."""

import tomllib
from pathlib import Path
from typing import Any

import pytest
from stored import protocol, real, real_results, result

from recfusion.data.options import Preparation, Source, SplitPlan
from recfusion.experiments.comparison import Comparison
from recfusion.experiments.experiment_file import parse_experiment
from recfusion.report.experiment_toml import experiment_toml


def test_the_experiment_of_a_comparison_plans_the_very_fits_that_made_it() -> None:
    text = experiment_toml(real())
    assert text is not None
    experiment = parse_experiment(tomllib.loads(text), "again", Path())
    planned = {(one.label, one.entry.name, seed) for one, seeds in experiment.models for seed in seeds}
    assert planned == {(one.label, one.model, one.seed) for one in real_results()}
    for candidate, _ in experiment.models:
        assert candidate.values == real().models[candidate.label].settings
    card = real().protocol
    assert (experiment.preparation, experiment.split, experiment.metrics) == (card.preparation, card.plan, card.metrics)
    assert experiment.data.data == card.source.data


def test_labels_texts_and_no_threshold_survive_toml() -> None:
    card = protocol(
        source=Source(data='a "b" \\ ü.csv', separator="\t"),
        preparation=Preparation(min_rating=None),
        plan=SplitPlan(kind="weak"),
        metrics=("ndcg@100",),
    )
    weights = {"weights": {"ease": 0.5, "ü b": 1.0}, "parts": {"ease": {"l2": 3.0, "tune_trials": None}}}
    found = Comparison.of(
        [
            result("ease (l2=5)", 0.3, seed=3, protocol=card, model="ease", settings={"l2": 5.0}),
            *(result("popularity", 0.3, seed=seed, protocol=card, settings={}) for seed in (3, 9)),
            *(result("thinning", 0.3, seed=seed, protocol=card, settings=weights) for seed in (3, 9)),
        ]
    )
    text = experiment_toml(found)
    assert text is not None
    written = tomllib.loads(text)
    assert written["data"] == {"data": 'a "b" \\ ü.csv', "separator": "\t"}
    assert written["preparation"] == {"min_rating": "none"}
    assert written["split"] == {"kind": "weak"}
    assert written["run"] == {"seeds": [3, 9], "metrics": ["ndcg@100"]}
    assert written["models"] == {
        "ease (l2=5)": {"model": "ease", "seeds": [3], "l2": 5.0},
        "popularity": {},
        "thinning": {"weights": {"ease": 0.5, "ü b": 1.0}, "parts": {"ease": {"l2": 3.0}}},
    }
    assert parse_experiment(written, "again", Path()).preparation.min_rating is None


def test_a_model_that_is_not_ours_is_written_with_its_place_and_found_again(tmp_path: Path) -> None:
    code = "from dataclasses import dataclass\nfrom recfusion import EASE\n@dataclass\nclass Mine(EASE): ...\n"
    (tmp_path / "own_model.py").write_text(code)
    found = Comparison.of([result("mine", 0.3, model="Mine", place="own_model.py:Mine", settings={"l2": 7.0})])
    text = experiment_toml(found)
    assert text is not None
    assert 'model = "own_model.py:Mine"' in text
    ((candidate, _),) = parse_experiment(tomllib.loads(text), "again", tmp_path).models
    assert (candidate.label, candidate.entry.name, candidate.values["l2"]) == ("mine", "Mine", 7.0)


@pytest.mark.parametrize(
    "others",
    [
        {"model": "gone"},
        {"model": "ease", "settings": {"gone": 1}},
        {"model": "Mine", "place": "__main__:Mine"},
        {"model": "f.<locals>.Mine", "place": "a.py:f.<locals>.Mine"},
    ],
)
def test_a_model_that_no_file_can_name_has_no_experiment(others: dict[str, Any]) -> None:
    assert experiment_toml(Comparison.of([result("ease", 0.3)])) is not None
    assert experiment_toml(Comparison.of([result("a", 0.3, **others)])) is None
