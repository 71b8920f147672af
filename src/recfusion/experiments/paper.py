"""The paper: its tables of results, of counts and of parameters as data, and its experiments from `specs/`."""

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from recfusion.core.errors import choices
from recfusion.data.catalog import CATALOG, data_set, how_to_get, locate
from recfusion.data.load import load
from recfusion.data.protocol import Protocol, split_counts
from recfusion.data.settings import Preparation, SplitPlan
from recfusion.data.split import split
from recfusion.experiments.result import append_result, read_results
from recfusion.experiments.run import stored_results
from recfusion.experiments.spec import Experiment, parse_experiment
from recfusion.models.registry import MODELS, entry, make_model
from recfusion.models.settings import setting_values

# "Recall" in the paper is calibrated: hits / min(K, held-out).
METRICS = ("calibrated_recall@20", "calibrated_recall@50", "ndcg@100")
EVERY_RATING = Preparation(min_rating=None)
COUNTED_SPLITS = 10
QUICK_SPLITS = 2
# The most that a quick version allows of each setting, in the models that have it.
QUICK_SETTINGS: Mapping[str, int] = {"max_epochs": 3, "tune_trials": 3}
# U-Nets, and mixtures, whose members train as long as they like.
_COSTLY = ("recfusion-unet1d", "recfusion-map", "recfusion-unet2d", "thinning", "thinning-fast", "mixture")
QUICK_NOTE = (
    f"This is the quick version: {QUICK_SPLITS} splits, at most {QUICK_SETTINGS['max_epochs']} epochs, at most "
    f"{QUICK_SETTINGS['tune_trials']} trials of a search, no U-Nets and no mixtures of models. "
    "Its numbers are not the models' best."
)


@dataclass(frozen=True)
class PaperTable:
    """One of the paper's tables of results, in percent; the values of a model follow METRICS."""

    name: str  # of the reproduction
    title: str
    data: str  # in the catalog
    values: Mapping[str, tuple[float, float, float]]


def _read(name: str) -> dict[str, Any]:
    text = resources.files("recfusion.experiments").joinpath("specs", f"{name}.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


_PAPER = _read("paper")
TABLES: Mapping[str, PaperTable] = {
    name: PaperTable(name, table["title"], table["data"], {model: tuple(v) for model, v in table["values"].items()})
    for name, table in _PAPER["tables"].items()
}
COUNTS: Mapping[str, Mapping[str, Mapping[str, int]]] = _PAPER["counts"]  # data -> part -> users, items, interactions
PARAMETERS: Mapping[str, int] = _PAPER["parameters"]
_ML1M_ITEMS = COUNTS["ml-1m"]["train"]["items"]


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


def packaged_experiment(name: str, *, quick: bool = False) -> Experiment:
    """Return one of the paper's experiments, or its quick version."""
    if name not in TABLES:
        raise choices("experiment", name, TABLES)
    document = _read(name)
    return parse_experiment(_quick(document) if quick else document, f"{name}.toml", Path())


def missing_data(name: str) -> str | None:
    """Return the sentence that says how to get a data set which is not on this machine; None where it is."""
    if locate(name) is not None:
        return None
    return f"The data set '{name}' is not on this machine: {how_to_get(data_set(name))}"


def adopt_results(experiment: Experiment, store: Path, others: Iterable[Path]) -> int:
    """Add to `store` the results of this very experiment that other stores hold, and return how many there were.

    Tables share models: a fit that another one has paid for need not be run again.
    """
    known = [result for other in others for result in read_results(other)]
    if not known:
        return 0
    own = {result.key for result in read_results(store)}
    adopted = [result for result in stored_results(experiment, known) if result.key not in own]
    for result in adopted:
        append_result(store, result)
    return len(adopted)


@dataclass(frozen=True)
class CountRow:
    """A number of the paper's table of counts beside ours, of the split of seed 0 and of ten splits."""

    data: str
    part: str
    what: str
    paper: int
    ours: int
    lowest: int
    highest: int


def count_rows(name: str, *, splits: int = COUNTED_SPLITS) -> list[CountRow]:
    """Return the counts of a data set with every rating, part by part, as the paper counts them."""
    data = load(name, EVERY_RATING)
    found = [split_counts(split(data, seed=seed)) for seed in range(splits)]
    rows = []
    for part, counts in COUNTS[name].items():
        for what, paper in counts.items():
            ours = [one[part][what] for one in found]
            rows.append(CountRow(name, part, what, paper, ours[0], min(ours), max(ours)))
    return rows


def parameter_counts() -> tuple[int, dict[str, int]]:
    """Return the items of ML-1M with every rating, and the parameters of each network that is built for so many.

    A model that has the paper's preset is built with it. Where ML-1M is not on this machine, the items are those of the
    paper's table of counts, which are the same.
    """
    from recfusion.models.neural import NeuralRecommender

    here = locate("ml-1m") is not None
    n_items = load("ml-1m", EVERY_RATING).n_items if here else _ML1M_ITEMS
    found = {}
    for name in MODELS:
        model = make_model(name, {"preset": "paper"} if "paper" in entry(name).presets else None)
        if isinstance(model, NeuralRecommender):
            net = model.make_net(n_items)
            found[name] = sum(parameter.numel() for parameter in net.parameters())
    return n_items, found


def _quick(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the quick version of an experiment's document, without its costly models."""
    models: dict[str, Any] = {}
    seen: list[tuple[str, dict[str, Any]]] = []
    for label, table in document["models"].items():
        model = table.get("model", label)
        if model in _COSTLY:
            continue
        settings = {key: value for key, value in table.items() if key not in ("model", "seeds")}
        usual = setting_values(make_model(model, settings))
        lowered = {key: min(most, usual[key]) for key, most in QUICK_SETTINGS.items() if key in usual}
        left = (model, setting_values(make_model(model, {**settings, **lowered})))
        if left not in seen:  # tables may differ in their epochs alone
            seen.append(left)
            fewer = {"seeds": min(QUICK_SPLITS, table["seeds"])} if "seeds" in table else {}
            models[label] = {**table, **lowered, **fewer}
    return {
        **document,
        "name": f"{document['name']}-quick",
        "title": f"{document['title']} (quick version)",
        "run": {**document["run"], "seeds": min(QUICK_SPLITS, document["run"]["seeds"])},
        "models": models,
    }
