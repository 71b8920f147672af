"""Comparisons and bundles in an MLflow tracking store: one run per model, with intervals, protocol and code digest."""

import json
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recfusion.core.errors import InputError
from recfusion.core.extras import require
from recfusion.data.protocol import Protocol
from recfusion.experiments.comparison import Comparison
from recfusion.inference.bundle import Bundle
from recfusion.models.code_digest import code_digest
from recfusion.models.settings import setting_values

if TYPE_CHECKING:
    from mlflow import MlflowClient

_LONGEST = 6000  # characters of a parameter


def log_to_mlflow(found: Comparison | Bundle, experiment: str = "recfusion", *, tracking_uri: str | None = None) -> str:
    """Log a comparison or a bundle to an MLflow experiment and return the id of its run (extra `mlflow`).

    A comparison has a nested run for each model. A bundle is saved as the artifact `model`, without rows of training
    users. The metric ndcg@100 becomes ndcg_100, with ndcg_100.low and ndcg_100.high as its 95 % interval.
    """
    require("mlflow", "log_to_mlflow")
    from mlflow import MlflowClient
    from mlflow.exceptions import MlflowException

    try:
        client = MlflowClient(tracking_uri)
        known = client.get_experiment_by_name(experiment)
        place = known.experiment_id if known else client.create_experiment(experiment)
        return _log_bundle(client, place, found) if isinstance(found, Bundle) else _log_all(client, place, found)
    except MlflowException as error:
        reason = str(error).splitlines()[0][:300]
        raise InputError(f"Cannot log to MLflow ({reason}): check tracking_uri or MLFLOW_TRACKING_URI.") from None


def _log_all(client: "MlflowClient", place: str, found: Comparison) -> str:
    common = _tags(found.protocol)
    with _run(client, place, found.title or f"comparison on {found.protocol.name}", common) as whole:
        client.log_dict(whole, found.document(), "comparison.json")
        client.set_tag(whole, "recfusion.advice", found.advice())
        for label, model in found.models.items():
            tags = common | {"mlflow.parentRunId": whole, "recfusion.code": ", ".join(model.code_versions)}
            with _run(client, place, label, tags) as run:
                _log_params(client, run, model.settings | model.chosen | {"model": model.model, "splits": model.seeds})
                for metric, one in model.metrics.items():
                    _log_metric(client, run, metric, one.mean, one.ci95)
                client.log_metric(run, "fit_seconds", model.fit_seconds)
    return whole


def _log_bundle(client: "MlflowClient", place: str, found: Bundle) -> str:
    settings = setting_values(found.model)
    tags = _tags(found.protocol) | {"recfusion.code": code_digest(found.entry, settings)}
    with tempfile.TemporaryDirectory(prefix="recfusion-mlflow-") as folder:
        saved = found.without_rows().save(Path(folder) / "model")
        with _run(client, place, f"{found.name} on {found.protocol.name}", tags) as run:
            _log_params(client, run, settings | found.model.chosen() | {"model": found.name, "seed": found.seed})
            for group, metrics in found.metrics.items():
                for metric, one in metrics.items():
                    _log_metric(client, run, f"{group}.{metric}", one["mean"], one.get("ci95"))
            client.log_artifacts(run, str(saved), "model")
    return run


@contextmanager
def _run(client: "MlflowClient", place: str, name: str, tags: Mapping[str, str]) -> Iterator[str]:
    """Make a run and yield its id; it is marked as failed if the block raises."""
    run = str(client.create_run(place, run_name=name, tags=dict(tags)).info.run_id)
    status = "FAILED"
    try:
        yield run
        status = "FINISHED"
    finally:
        client.set_terminated(run, status)


def _tags(protocol: Protocol) -> dict[str, str]:
    return {"recfusion.protocol": protocol.hash, "recfusion.data": protocol.name}


def _log_params(client: "MlflowClient", run: str, values: Mapping[str, Any]) -> None:
    for name, value in values.items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        client.log_param(run, name, text[:_LONGEST])


def _log_metric(client: "MlflowClient", run: str, metric: str, mean: float, ends: Any) -> None:
    name = metric.replace("@", "_")  # which MLflow refuses
    low, high = ends or (None, None)
    for key, value in ((name, mean), (f"{name}.low", low), (f"{name}.high", high)):
        if value is not None:
            client.log_metric(run, key, value)
