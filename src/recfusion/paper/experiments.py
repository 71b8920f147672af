"""The paper's experiments (specs/*.toml), their quick versions, and our counts of users, items and parameters."""

from collections.abc import Iterable, Mapping
from contextlib import suppress
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
from recfusion.models.base import NotFitted
from recfusion.models.registry import MODELS, entry, make_model
from recfusion.models.settings import setting_values
from recfusion.paper import tables
from recfusion.report.formats import Row

EVERY_RATING = Preparation(min_rating=None)
COUNTED_SPLITS, QUICK_SPLITS = 10, 2
QUICK_SETTINGS: Mapping[str, int] = {"max_epochs": 3, "tune_trials": 3}  # upper limits in a quick version
# U-Nets, and a mixture: the limits do not apply to its members.
_COSTLY = ("recfusion-unet1d", "recfusion-unet2d", "thinning")
QUICK_NOTE = (
    f"This is the quick version: {QUICK_SPLITS} splits, at most {QUICK_SETTINGS['max_epochs']} epochs, at most "
    f"{QUICK_SETTINGS['tune_trials']} trials of a search, no U-Nets and no mixtures of models. "
    "Its numbers are not the models' best."
)
_ML1M_ITEMS = tables.COUNTS["ml-1m"]["train"]["items"]


def packaged_experiment(name: str, *, quick: bool = False, splits: int | None = None) -> Experiment:
    """Return one of the paper's experiments, its quick version, or the experiment with another number of splits."""
    if name not in tables.TABLES:
        raise choices("experiment", name, tables.TABLES)
    document = tables.read_spec(name)
    if splits is not None:
        document = _with_splits(document, splits)
    return parse_experiment(_quick(document) if quick else document, f"{name}.toml", Path())


def missing_data(name: str) -> str | None:
    """Return how to get a data set that is not on this machine; None if it is."""
    if locate(name) is not None:
        return None
    return f"The data set '{name}' is not on this machine: {how_to_get(data_set(name))}"


def copy_results(experiment: Experiment, store: Path, others: Iterable[Path]) -> int:
    """Copy the results of an experiment from other stores to `store`, and return how many were copied.

    Tables share models, so a fit made for one of them need not be repeated.
    """
    known = [result for other in others for result in read_results(other)]
    if not known:
        return 0
    present = {result.key for result in read_results(store) if result.code_state != "stale"}
    fresh = [result for result in stored_results(experiment, known) if result.code_state != "stale"]
    copied = [result for result in fresh if result.key not in present]
    for result in copied:
        append_result(store, result)
    return len(copied)


def count_rows(name: str, *, splits: int = COUNTED_SPLITS) -> list[Row]:
    """Return a table row for each published count of a data set with every rating.

    A row has its label, the published count, ours on the split of seed 0, the difference, and our range over splits.
    """
    data, rows = load(name, EVERY_RATING), list[Row]()
    found = [split_counts(split(data, seed=seed)) for seed in range(splits)]
    for part, counts in tables.COUNTS[name].items():
        for what, paper in counts.items():
            ours = [counted[part][what] for counted in found]
            rows.append((f"{name}, {part}: {what}", paper, ours[0], ours[0] - paper, min(ours), max(ours)))
    return rows


def parameter_counts() -> tuple[int, dict[str, int]]:
    """Return the number of items of ML-1M with every rating, and the parameters of each network for that many items.

    A model with the preset "paper" is built with it. Without ML-1M on this machine, the published number is used.
    """
    from recfusion.models.neural.network import NeuralRecommender

    n_items = load("ml-1m", EVERY_RATING).n_items if locate("ml-1m") is not None else _ML1M_ITEMS
    found = {}
    for name in MODELS:
        model = make_model(name, {"preset": "paper"} if "paper" in entry(name).presets else None)
        if isinstance(model, NeuralRecommender):
            with suppress(NotFitted):  # a network with weights for each training user
                found[name] = sum(parameter.numel() for parameter in model.make_net(n_items).parameters())
    return n_items, found


def _with_splits(document: Mapping[str, Any], splits: int) -> dict[str, Any]:
    """Return an experiment's document with a number of splits; models with fewer of their own keep these."""
    models = {
        label: {**table, "seeds": min(splits, table["seeds"])} if "seeds" in table else table
        for label, table in document["models"].items()
    }
    return {**document, "run": {**document["run"], "seeds": splits}, "models": models}


def _quick(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the quick version of an experiment's document, without its costly models."""
    models: dict[str, Any] = {}
    for label, table in document["models"].items():
        model = table.get("model", label)
        if model in _COSTLY:
            continue
        settings = {key: value for key, value in table.items() if key not in ("model", "seeds")}
        usual = setting_values(make_model(model, settings))
        lowered = {key: min(limit, usual[key]) for key, limit in QUICK_SETTINGS.items() if key in usual}
        models[label] = {**table, **lowered}
    named = {"name": f"{document['name']}-quick", "title": f"{document['title']} (quick version)", "models": models}
    return _with_splits({**document, **named}, min(QUICK_SPLITS, document["run"]["seeds"]))
