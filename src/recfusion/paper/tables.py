"""The published results, counts and parameters of the paper, from specs/paper.toml."""

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
    """One of the paper's tables of results."""

    name: str  # of the reproduction
    title: str
    data: str  # a name in the catalog
    values: Mapping[str, tuple[float, float, float]]  # model -> METRICS in percent


def read_spec(name: str) -> dict[str, Any]:
    """Return the document of specs/NAME.toml."""
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
    """The published values of the models of a comparison, between 0 and 1."""

    title: str
    models: dict[str, dict[str, float]]  # label -> metric -> value


def paper_values(protocol: Protocol, names: Mapping[str, str], table: str | None = None) -> PaperValues | None:
    """Return the published values of some models; `names` maps their labels to model names.

    They come from `table`, one of TABLES; models that it lacks are looked up in the other tables of the same data.
    Return None if the protocol is not the paper's, or if other data has the same name.
    """
    if table is not None and table not in TABLES:
        raise choices("table of the paper", table, TABLES)
    if not _follows_paper(protocol) or other_data_note(protocol) is not None:
        return None
    tables = [found for found in TABLES.values() if found.data == protocol.name]
    tables.sort(key=lambda found: found.name != table)
    models, used = {}, []
    for label, name in names.items():
        found = next((found for found in tables if name in found.values), None)
        if found is not None:
            models[label] = dict(zip(METRICS, (value / 100 for value in found.values[name]), strict=True))
            used.append(found.title)
    return PaperValues("; ".join(dict.fromkeys(used)), models) if models else None


def _follows_paper(protocol: Protocol) -> bool:
    """Return whether data was prepared, split and read as in the paper; for star ratings "auto" means 4."""
    preparation = protocol.preparation
    if preparation.min_rating == 4:
        preparation = preparation.model_copy(update={"min_rating": "auto"})
    alike = (
        preparation == Preparation() and protocol.plan == SplitPlan() and not (protocol.signals.used or protocol.rules)
    )
    return alike and set(METRICS) <= set(protocol.metrics)


def other_data_note(protocol: Protocol) -> str | None:
    """Return a warning if data with the name of a published data set has another number of rows, else None."""
    published = data_set(protocol.name).ratings if protocol.name in CATALOG else protocol.read.rows
    if protocol.read.rows == published:
        return None
    return (
        f"This is not the published data: '{protocol.name}' has {protocol.read.rows:,} rows here and {published:,} as "
        "published. The paper's values are left out."
    )
