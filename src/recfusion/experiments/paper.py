"""The paper's numbers as data: its tables of results, of counts and of parameters, by the registry's names."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources

from recfusion.core.errors import choices
from recfusion.data.protocol import Protocol
from recfusion.data.settings import Preparation, SplitPlan

# "Recall" in the paper is calibrated: hits / min(K, held-out).
METRICS = ("calibrated_recall@20", "calibrated_recall@50", "ndcg@100")


@dataclass(frozen=True)
class PaperTable:
    """One of the paper's tables of results, in percent; the values of a model follow METRICS."""

    name: str  # of the reproduction
    title: str
    data: str  # in the catalog
    values: Mapping[str, tuple[float, float, float]]


@dataclass(frozen=True)
class Counts:
    """Active users, active items and interactions of one part of a data set."""

    users: int
    items: int
    interactions: int


_PAPER = tomllib.loads(
    resources.files("recfusion.experiments").joinpath("specs/paper.toml").read_text(encoding="utf-8")
)
TABLES: Mapping[str, PaperTable] = {
    name: PaperTable(name, table["title"], table["data"], {model: tuple(v) for model, v in table["values"].items()})
    for name, table in _PAPER["tables"].items()
}
COUNTS: Mapping[str, Mapping[str, Counts]] = {
    name: {part: Counts(**numbers) for part, numbers in parts.items()} for name, parts in _PAPER["counts"].items()
}
PARAMETERS: Mapping[str, int] = _PAPER["parameters"]


@dataclass(frozen=True)
class PaperValues:
    """The paper's values of a comparison's models, as shares of 1."""

    title: str
    models: dict[str, dict[str, float]]  # label -> metric -> value


def paper_values(protocol: Protocol, names: Mapping[str, str], table: str | None = None) -> PaperValues | None:
    """Return the paper's values of some models, which `names` takes from their labels to their names.

    They come from `table`, one of TABLES, and for models that it lacks from the other tables of the same data. Under
    another protocol than the paper's there are none: numbers under different protocols are not compared.
    """
    if table is not None and table not in TABLES:
        raise choices("table of the paper", table, TABLES)
    tables = [found for found in TABLES.values() if found.data == protocol.name]
    tables.sort(key=lambda found: found.name != table)
    if not _is_the_paper_s(protocol):
        return None
    models, used = {}, []
    for label, name in names.items():
        found = next((found for found in tables if name in found.values), None)
        if found is not None:
            models[label] = dict(zip(METRICS, (value / 100 for value in found.values[name]), strict=True))
            used.append(found.title)
    return PaperValues("; ".join(dict.fromkeys(used)), models) if models else None


def _is_the_paper_s(protocol: Protocol) -> bool:
    """Return whether data was prepared and split as in the paper: for star ratings, auto is the threshold of 4."""
    preparation = protocol.preparation
    if preparation.min_rating == 4:
        preparation = preparation.model_copy(update={"min_rating": "auto"})
    return preparation == Preparation() and protocol.plan == SplitPlan() and set(METRICS) <= set(protocol.metrics)
