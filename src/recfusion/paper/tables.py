"""The paper's tables of results, counts and parameters as data, from `specs/paper.toml`."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any

from recfusion.core.errors import choices
from recfusion.data.catalog import CATALOG, data_set
from recfusion.data.options import Preparation, SplitPlan
from recfusion.data.protocol import Protocol
from recfusion.evaluation.metrics import DEFAULT_METRICS

# "Recall" in the paper is calibrated: hits / min(K, held-out).
METRICS = DEFAULT_METRICS


@dataclass(frozen=True)
class PaperTable:
    """One of the paper's tables of results, in percent; the values of a model follow METRICS."""

    name: str  # of the reproduction
    title: str
    data: str  # in the catalog
    values: Mapping[str, tuple[float, float, float]]


def read_spec(name: str) -> dict[str, Any]:
    text = resources.files("recfusion.paper").joinpath("specs", f"{name}.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


_PAPER = read_spec("paper")

TABLES: Mapping[str, PaperTable] = {
    name: PaperTable(name, table["title"], table["data"], {model: tuple(v) for model, v in table["values"].items()})
    for name, table in _PAPER["tables"].items()
}

COUNTS: Mapping[str, Mapping[str, Mapping[str, int]]] = _PAPER["counts"]  # data -> part -> users, items, interactions

PARAMETERS: Mapping[str, int] = _PAPER["parameters"]


@dataclass(frozen=True)
class PaperValues:
    """The paper's values of a comparison's models, as shares of 1."""

    title: str
    models: dict[str, dict[str, float]]  # label -> metric -> value


def paper_values(protocol: Protocol, names: Mapping[str, str], table: str | None = None) -> PaperValues | None:
    """Return the paper's values of some models, which `names` takes from their labels to their names.

    They come from `table`, one of TABLES, and for models that it lacks from the other tables of the same data. Under
    another protocol than the paper's, or for other data of the same name, there are none: these are not compared.
    """
    if table is not None and table not in TABLES:
        raise choices("table of the paper", table, TABLES)
    tables = [found for found in TABLES.values() if found.data == protocol.name]
    tables.sort(key=lambda found: found.name != table)
    if not _is_the_paper_s(protocol) or other_rows(protocol) is not None:
        return None
    models, used = {}, []
    for label, name in names.items():
        found = next((found for found in tables if name in found.values), None)
        if found is not None:
            models[label] = dict(zip(METRICS, (value / 100 for value in found.values[name]), strict=True))
            used.append(found.title)
    return PaperValues("; ".join(dict.fromkeys(used)), models) if models else None


def _is_the_paper_s(protocol: Protocol) -> bool:
    """Return whether data was prepared, split and read as in the paper: for stars, auto is the threshold of 4."""
    preparation = protocol.preparation
    if preparation.min_rating == 4:
        preparation = preparation.model_copy(update={"min_rating": "auto"})
    alike = preparation == Preparation() and protocol.plan == SplitPlan() and not protocol.signals.used
    return alike and set(METRICS) <= set(protocol.metrics)


def other_rows(protocol: Protocol) -> str | None:
    """Return the sentence that says that data of a published name is not the published data; None where it is."""
    published = data_set(protocol.name).ratings if protocol.name in CATALOG else protocol.read.rows
    if protocol.read.rows == published:
        return None
    return (
        f"This is not the published data: '{protocol.name}' has {protocol.read.rows:,} rows here and {published:,} as "
        "published. The paper's values are left out."
    )
