"""A document turned back into the experiment that made it."""

import tomllib
from pathlib import Path

import pytest
from stored import stored_rows

from recfusion.experiments.results import result_document
from recfusion.experiments.spec import parse_experiment
from recfusion.report.again import experiment_toml


def test_the_experiment_of_a_document_plans_the_very_fits_that_made_it() -> None:
    rows = stored_rows()
    text = experiment_toml(result_document([row.run() for row in rows]))
    assert text is not None
    experiment = parse_experiment(tomllib.loads(text), "again", Path())
    planned = {(plan.label, plan.model, seed) for plan in experiment.models for seed in plan.seeds}
    assert planned == {(row.label, row.model, row.seed) for row in rows}
    for row in rows:
        assert experiment.plan(row.label).values == row.settings
    card = rows[0].protocol
    assert (experiment.preparation, experiment.split, experiment.metrics) == (card.preparation, card.plan, card.metrics)
    assert experiment.data.data == card.source.data


def test_labels_texts_and_no_threshold_survive_toml() -> None:
    protocol = {
        "source": {"data": 'a "b" \\ ü.csv', "separator": "\t"},
        "preparation": {"min_rating": None, "min_items_per_user": 5},
        "plan": {"kind": "weak"},
        "metrics": ["ndcg@7"],
    }
    weights = {"settings": {"weights": {"ease": 0.5, "ü b": 1.0}, "parts": {"ease": {"l2": 3.0, "tune_trials": None}}}}
    models = {
        "ease (l2=5)": {"model": "ease", "settings": {"l2": 5.0}, "seeds": [3]},
        "popularity": {"seeds": [3, 9]},
        "thinning": {"seeds": [3, 9], **weights},
    }
    text = experiment_toml({"protocol": protocol, "seeds": [3, 9], "models": models})
    assert text is not None
    found = tomllib.loads(text)
    assert found["data"] == {"data": 'a "b" \\ ü.csv', "separator": "\t"}
    assert found["preparation"] == {"min_rating": "none"}
    assert found["split"] == {"kind": "weak"}
    assert found["run"] == {"seeds": [3, 9], "metrics": ["ndcg@7"]}
    assert found["models"] == {
        "ease (l2=5)": {"model": "ease", "seeds": [3], "l2": 5.0},
        "popularity": {},
        "thinning": {"weights": {"ease": 0.5, "ü b": 1.0}, "parts": {"ease": {"l2": 3.0}}},
    }
    assert parse_experiment(found, "again", Path()).preparation.min_rating is None


CARD = {"source": {"data": "x"}, "preparation": {}, "plan": {}, "metrics": ["ndcg@5"]}


@pytest.mark.parametrize(
    "document",
    [
        {"models": {"ease": {}}, "seeds": [0]},
        {"models": {"ease": {}}, "protocol": CARD},
        {"models": {"mine": {}}, "seeds": [0], "protocol": CARD},
        {"models": {"ease": {"settings": {"gone": 1}}}, "seeds": [0], "protocol": CARD},
    ],
)
def test_a_document_that_does_not_say_enough_has_none(document: dict[str, object]) -> None:
    assert experiment_toml({"models": {"ease": {}}, "seeds": [0], "protocol": CARD}) is not None
    assert experiment_toml(document) is None
