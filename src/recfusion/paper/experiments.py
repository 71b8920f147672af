"""The paper's experiments from `specs/`, their quick versions, and its counts beside ours."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recfusion.core.errors import choices
from recfusion.data.catalog import data_set, how_to_get, locate
from recfusion.data.load import load
from recfusion.data.options import Preparation
from recfusion.data.protocol import split_counts
from recfusion.data.split import split
from recfusion.experiments.experiment_file import Experiment, parse_experiment
from recfusion.experiments.result import append_result, read_results
from recfusion.experiments.run import stored_results
from recfusion.models.registry import MODELS, entry, make_model
from recfusion.models.settings import setting_values
from recfusion.paper import tables

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

_ML1M_ITEMS = tables.COUNTS["ml-1m"]["train"]["items"]


def packaged_experiment(name: str, *, quick: bool = False) -> Experiment:
    """Return one of the paper's experiments, or its quick version."""
    if name not in tables.TABLES:
        raise choices("experiment", name, tables.TABLES)
    document = tables.read_spec(name)
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
    own = {result.key for result in read_results(store) if result.code_state != "stale"}
    fresh = [result for result in stored_results(experiment, known) if result.code_state != "stale"]
    adopted = [result for result in fresh if result.key not in own]
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
    for part, counts in tables.COUNTS[name].items():
        for what, paper in counts.items():
            ours = [one[part][what] for one in found]
            rows.append(CountRow(name, part, what, paper, ours[0], min(ours), max(ours)))
    return rows


def parameter_counts() -> tuple[int, dict[str, int]]:
    """Return the items of ML-1M with every rating, and the parameters of each network that is built for so many.

    A model that has the paper's preset is built with it. Where ML-1M is not on this machine, the items are those of the
    paper's table of counts, which are the same.
    """
    from recfusion.models.neural.network import NeuralRecommender

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
