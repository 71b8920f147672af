"""Comparisons and bundles in a local MLflow store."""

import json
from pathlib import Path
from typing import Any

import pytest

from recfusion.core.errors import InputError
from recfusion.core.extras import is_installed
from recfusion.data.interactions import Interactions
from recfusion.experiments.comparison import compare
from recfusion.experiments.train import train
from recfusion.inference.bundle import Bundle
from recfusion.inference.recommending import recommend
from recfusion.integrations.mlflow_log import log_to_mlflow
from recfusion.models.linear.ease import EASE

pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # of mlflow itself
    pytest.mark.skipif(not is_installed("mlflow"), reason="the extra mlflow is not installed"),
]


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # else only servers and databases
    return (tmp_path / "store").as_uri()


def client(store: str) -> Any:
    from mlflow import MlflowClient

    return MlflowClient(store)


def test_a_comparison_has_a_run_for_each_model_with_intervals_protocol_and_code(
    groups: Interactions, store: str
) -> None:
    found = compare(groups, {"few": "popularity", "linear": EASE(l2=20.0)}, splits=2)
    whole = log_to_mlflow(found, "shop", tracking_uri=store)
    place = client(store).get_experiment_by_name("shop").experiment_id
    runs = {run.info.run_name: run for run in client(store).search_runs([place])}
    assert len(runs) == 3
    assert all(run.info.status == "FINISHED" for run in runs.values())
    for label, model in found.models.items():
        run = runs[label]
        summary = model.metrics["ndcg@100"]
        assert run.data.metrics["ndcg_100"] == summary.mean
        assert (run.data.metrics["ndcg_100.low"], run.data.metrics["ndcg_100.high"]) == summary.ci95
        assert run.data.tags["mlflow.parentRunId"] == whole
        assert run.data.tags["recfusion.protocol"] == found.protocol.hash
        assert run.data.tags["recfusion.code"] == ", ".join(model.code_versions)
        assert run.data.params["model"] == model.model
    assert runs["linear"].data.params["l2"] == "20.0"
    assert json.loads(runs["linear"].data.params["splits"]) == [0, 1]
    path = client(store).download_artifacts(whole, "comparison.json")
    assert json.loads(Path(path).read_text()) == found.document()


def test_a_bundle_is_an_artifact_that_loads_without_rows_of_users(groups: Interactions, store: str) -> None:
    bundle = train("thinning-linear", groups, {"tune_trials": 0}, signals="binary", updatable=True)
    run = client(store).get_run(log_to_mlflow(bundle, tracking_uri=store))
    assert run.data.params["model"] == "thinning-linear"
    group, metrics = next(iter(bundle.metrics.items()))
    assert run.data.metrics[f"{group}.ndcg_100"] == metrics["ndcg@100"]["mean"]
    loaded = Bundle.load(client(store).download_artifacts(run.info.run_id, "model"))
    assert loaded.training is None
    assert recommend(loaded, ["i01"]).to_frame().equals(recommend(bundle, ["i01"]).to_frame())


def test_what_cannot_be_logged_is_one_sentence_and_leaves_no_run(
    groups: Interactions, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = train("user-knn", groups)
    with pytest.raises(InputError, match="rows of training users"):
        log_to_mlflow(bundle, tracking_uri=store)
    assert not client(store).search_runs([client(store).get_experiment_by_name("recfusion").experiment_id])
    with pytest.raises(InputError, match="tracking_uri"):
        log_to_mlflow(bundle, tracking_uri="nonsense://here")
    monkeypatch.setattr("recfusion.core.extras.find_spec", lambda _: None)
    with pytest.raises(InputError, match=r"recfusion\[mlflow\]"):
        log_to_mlflow(bundle)
