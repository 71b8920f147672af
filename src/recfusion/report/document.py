"""Result documents as the report reads them: from a results store or a JSON file, and what can be asked of them."""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from recfusion.core.errors import InputError
from recfusion.data.protocol import check_same_protocol
from recfusion.experiments.paper import TABLES, with_paper
from recfusion.experiments.results import result_document
from recfusion.experiments.store import Row, is_store, read_rows

Document: TypeAlias = Mapping[str, Any]
Models: TypeAlias = Mapping[str, Mapping[str, Any]]

REFERENCE = "ease"  # the model that the others are tested against, where it is among them
DESCRIPTIVE = ("popularity", "coverage")  # say what the lists are like; a higher value is not a better one


def read_document(path: str | Path) -> dict[str, Any]:
    """Return the result document of a file: a results store (JSON lines), or the JSON that `compare --out` wrote."""
    path = Path(path)
    if is_store(path):
        return store_document(read_rows(path), str(path), path.stem)
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"Cannot read the results '{path}': {error.strerror or error}; check the name.") from None
    except (ValueError, RecursionError):
        raise InputError(
            f"Expected results in '{path}', a store of `recfusion run` or the JSON of `recfusion compare --out`, got "
            "something else: name another file."
        ) from None
    check_document(document, str(path))
    return with_paper(document)


def store_document(rows: list[Row], where: str, name: str = "") -> dict[str, Any]:
    """Return the document of stored rows, with the tests against EASE, the versions, and the paper's table of `name`.

    Without a table of that name it is the paper's table for the same data, if there is one.
    """
    if not rows:
        raise InputError(f"There are no results in '{where}' yet: run the experiment first.")
    counts: dict[str, int] = {}
    for row in rows:
        counts[row.protocol.hash] = counts.get(row.protocol.hash, 0) + 1
    check_same_protocol({f"{count} rows of '{where}'": digest for digest, count in counts.items()})
    labels = {row.label for row in rows}
    for label in labels:
        kinds = {(row.model, json.dumps(row.settings, sort_keys=True)) for row in rows if row.label == label}
        if len(kinds) > 1:
            raise InputError(
                f"The store '{where}' holds {label} with {len(kinds)} different settings, which one table cannot show: "
                "name the experiment to show with --experiment, or give each a label of its own."
            )
    document = result_document([row.run() for row in rows], reference=REFERENCE if REFERENCE in labels else None)
    document["versions"] = _versions(rows)
    return with_paper(document, name if name in TABLES else None)


def _versions(rows: list[Row]) -> dict[str, str]:
    """Return the versions of the packages; several of one package are all named."""
    packages = dict.fromkeys(package for row in rows for package in row.versions)
    return {
        package: ", ".join(dict.fromkeys(row.versions[package] for row in rows if package in row.versions))
        for package in packages
    }


class _Summary(BaseModel):
    """A metric of a model."""

    mean: float
    ci95: tuple[float, float] | None = None
    median: float | None = None
    iqr: tuple[float, float] | None = None
    splits: list[float] = Field(default_factory=list)


class _Test(BaseModel):
    metric: str
    a: str
    b: str
    difference: float
    ci95: tuple[float, float]
    p_holm: float


class _Place(BaseModel):
    title: str | None
    hit: bool


class _Example(BaseModel):
    user: str
    history: list[str | None]
    more: int = 0
    lists: dict[str, list[_Place]]


class _Document(BaseModel):
    model_config = ConfigDict(extra="allow")

    protocol: dict[str, Any] = Field(default_factory=dict)
    seeds: list[int] = Field(default_factory=list)
    models: dict[str, dict[str, Any]]
    tests: list[_Test] = Field(default_factory=list)
    reference_tests: list[_Test] = Field(default_factory=list)
    examples: list[_Example] = Field(default_factory=list)


def check_document(document: object, where: str) -> None:
    """Raise unless `document` (from JSON) has the parts of a result document that every page shows."""
    try:
        found = _Document.model_validate(document)
        for name, entry in found.models.items():
            for key, value in entry.items():
                if isinstance(value, dict) and "mean" in value:
                    _check_summary(value, name, key)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"]) or "document"
        raise InputError(f"Expected a result document in '{where}': {place}: {first['msg'].lower()}.") from None
    except ValueError as error:
        raise InputError(f"Expected a result document in '{where}': {error}.") from None
    if not metric_names(found.models):
        raise InputError(f"There are no results in '{where}': compare models first.")


def _check_summary(value: object, name: str, key: str) -> None:
    try:
        _Summary.model_validate(value)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(["models", name, key, *(str(part) for part in first["loc"])])
        raise ValueError(f"{place}: {first['msg'].lower()}") from None


def metric_names(models: Models) -> list[str]:
    """Return the metrics in the order of the document: what has a mean in any model."""
    names = [key for entry in models.values() for key, value in entry.items() if mean_of(value) is not None]
    return list(dict.fromkeys(names))


def main_metric(models: Models) -> str:
    """Return the metric that models are ranked by: the last one that says how good the lists are."""
    metrics = metric_names(models)
    return next((metric for metric in reversed(metrics) if not is_descriptive(metric)), metrics[-1])


def ranked(models: Models, metric: str | None = None) -> list[str]:
    """Return the models, the best by `metric` (by default the main one) first; those without it last."""
    by = metric or main_metric(models)
    means = {name: mean_of(entry.get(by)) for name, entry in models.items()}
    return sorted(means, key=lambda name: math.inf if (mean := means[name]) is None else -mean)


def mean_of(summary: object) -> float | None:
    """Return the mean of a metric's entry; None for anything else, and for a mean that is no finite number."""
    mean = summary.get("mean") if isinstance(summary, Mapping) else None
    return float(mean) if isinstance(mean, int | float) and math.isfinite(mean) else None


def is_descriptive(metric: str) -> bool:
    """Return whether a metric says what the lists are like, and not how good they are."""
    return metric.partition("@")[0] in DESCRIPTIVE


def n_splits(entry: Mapping[str, Any]) -> int | None:
    """Return the number of splits that a model has."""
    if entry.get("n_splits") is not None:
        return int(entry["n_splits"])
    known = [value["splits"] for value in entry.values() if isinstance(value, Mapping) and value.get("splits")]
    return len(known[0]) if known else None


def chosen_text(entry: Mapping[str, Any]) -> str:
    """Return what the fits of a model chose, each setting as its range over the splits; nested records are left out."""
    texts = []
    for key, values in (entry.get("chosen") or {}).items():
        if all(isinstance(value, dict) for value in values):
            texts += _parts_text(values)
        else:
            texts.append(f"{key} = {_range_text(values)}")
    return "; ".join(texts)


def _parts_text(records: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the range of each numeric entry of several records; where one is missing it counts as 0."""
    names = list(dict.fromkeys(name for record in records for name in record))
    columns = {name: [record.get(name, 0) for record in records] for name in names}
    return [f"{name} {_range_text(column)}" for name, column in columns.items() if _numeric(column)]


def _range_text(values: Sequence[Any]) -> str:
    if not _numeric(values):
        return ", ".join(dict.fromkeys(str(value) for value in values))
    low, high = f"{min(values):.4g}", f"{max(values):.4g}"
    return low if low == high else f"{low} to {high}"


def _numeric(values: Sequence[Any]) -> bool:
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
