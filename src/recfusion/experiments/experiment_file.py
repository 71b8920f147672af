"""Read an experiment from a TOML file: the data, the splits, the metrics, and a table for each model."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ConfigDict, Field, StrictInt, ValidationError

from recfusion.core.errors import InputError, choices
from recfusion.core.files import read_toml
from recfusion.data.catalog import CATALOG
from recfusion.data.options import Preparation, Source, SplitPlan
from recfusion.data.reading.database import is_database
from recfusion.data.signals import BINARY, parse_signals
from recfusion.evaluation.metrics import DEFAULT_METRICS
from recfusion.experiments.candidate import TUNE, Candidate, budgeted
from recfusion.experiments.custom_metric import check_search_metric, deciding_metric, named_metrics
from recfusion.experiments.result import Seeds
from recfusion.models.registry import find

_MOST_SEEDS = 10_000
_NAME = r"^\w[\w.-]{0,59}$"  # it becomes a file's name


@dataclass(frozen=True)
class Experiment:
    """A checked experiment."""

    name: str
    title: str
    data: Source
    preparation: Preparation
    split: SplitPlan
    seeds: Seeds
    metrics: tuple[str, ...]
    models: tuple[tuple[Candidate, Seeds], ...]  # with the seeds of each
    signals: str = BINARY  # what is used besides the interactions
    deciding: str | None = None  # the metric that ranks the models; the last one that measures accuracy if None
    hypotheses: tuple[str, ...] = ()  # what its author expects


class _Runs(BaseModel):
    model_config = ConfigDict(extra="forbid")

    seeds: StrictInt | list[StrictInt]
    metrics: list[str] = list(DEFAULT_METRICS)
    deciding: str | None = None


class _Document(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: str = Field(pattern=_NAME)
    title: str = ""
    data: Source
    signals: str = BINARY
    hypotheses: list[str] = []
    preparation: Preparation = Preparation()
    split: SplitPlan = SplitPlan()
    run: _Runs
    models: dict[str, dict[str, Any]] = Field(min_length=1)


def read_experiment(path: str | Path) -> Experiment:
    """Read an experiment from a TOML file; data paths are relative to the file's folder."""
    path = Path(path)
    return parse_experiment(read_toml(path), str(path), path.absolute().parent)


def parse_experiment(document: Mapping[str, Any], where: str, folder: Path) -> Experiment:
    """Return the experiment of a document; `where` names it in errors, relative paths begin at `folder`."""
    preparation = document.get("preparation")
    if isinstance(preparation, dict) and preparation.get("min_rating") == "none":  # TOML has no null
        document = {**document, "preparation": {**preparation, "min_rating": None}}
    try:
        found = _Document.model_validate(document, strict=True)
    except ValidationError as error:
        raise refusal(where, error, _Document) from None
    try:
        seeds = parse_seeds(found.run.seeds, "[run] seeds")
        models = tuple(_planned(label, table, seeds, folder) for label, table in found.models.items())
        metrics = named_metrics([_placed(name, folder) for name in found.run.metrics])
        deciding = deciding_metric(_placed(found.run.deciding or "", folder) or None, metrics)
        check_search_metric(deciding, metrics, [candidate for candidate, _ in models])
        parse_signals(found.signals)
    except InputError as error:
        raise InputError(f"In '{where}': {error}", error.field) from None
    planned = (_located(found.data, folder), found.preparation, found.split, seeds, metrics, models, found.signals)
    return Experiment(found.name, found.title, *planned, deciding, tuple(found.hypotheses))


def _placed(metric: str, folder: Path) -> str:
    """Return a metric's name; one of a file is searched from the experiment's folder."""
    return str(folder / metric) if ".py:" in metric else metric


def _planned(label: str, settings: dict[str, Any], all_seeds: Seeds, folder: Path) -> tuple[Candidate, Seeds]:
    """Return the candidate of a table and its seeds; a model's file is searched from the experiment's folder."""
    model = settings.pop("model", label)
    seeds, tune = settings.pop("seeds", None), settings.pop(TUNE, None)
    try:
        if not isinstance(model, str):
            raise InputError(f"Expected the name or place of a model, got {model!r}: change it.", "model")
        entry = find(model, folder)
        candidate = budgeted(label, entry, settings, tune, text=False)
    except InputError as error:
        raise InputError(f"[models.{label}]: {error}", error.field) from None
    return candidate, all_seeds if seeds is None else parse_seeds(seeds, f"[models.{label}] seeds", all_seeds)


def parse_seeds(given: object, place: str, among: Seeds | None = None) -> Seeds:
    """Return the seeds of a list, or of a number n: the first n of `among`, or 0 to n - 1."""
    field = place.rpartition(" ")[2]
    if isinstance(given, int) and not isinstance(given, bool):
        limit = _MOST_SEEDS if among is None else len(among)
        if not 1 <= given <= limit:
            raise InputError(f"Expected 1 to {limit:,} splits in {place}, got {given}: change it.", field)
        return tuple(range(given)) if among is None else among[:given]
    seeds = tuple(given) if isinstance(given, list | tuple | range) else ()
    whole = all(isinstance(seed, int) and not isinstance(seed, bool) and seed >= 0 for seed in seeds)
    if not seeds or not whole or len(set(seeds)) < len(seeds):
        expected = f"Expected a number of splits, or a list of different seeds from 0, in {place}"
        raise InputError(f"{expected}, got {given!r}: change it.", field)
    if among is not None and not set(seeds) <= set(among):
        allowed = ", ".join(map(str, among))
        raise InputError(f"Expected seeds of the experiment ({allowed}) in {place}, got {given!r}: change it.", field)
    return seeds


def _located(source: Source, folder: Path) -> Source:
    """Return the source with paths that are valid in any working folder; names of the catalog are unchanged."""
    data = source.data
    is_file = data not in CATALOG and not is_database(data) and (bool(Path(data).suffix) or (folder / data).exists())
    beside = {name: str(folder / path) for name, path in source.other_paths.items()}
    return source.model_copy(update={"data": str(folder / data) if is_file else data} | beside)


def refusal(where: str, error: ValidationError, record: type[BaseModel]) -> InputError:
    """Return the error about the first wrong key: the file, the key, and what the record allows there."""
    records = {
        name: kind
        for name, field in record.model_fields.items()
        for kind in (field.annotation, *get_args(field.annotation))  # a table may be optional
        if isinstance(kind, type) and issubclass(kind, BaseModel)
    } | {"": record}
    # An unknown key first: it is often the misspelling of a missing one.
    first = min(error.errors(), key=lambda wrong: wrong["type"] != "extra_forbidden")
    *tables, key = (str(part) for part in first["loc"] if part not in ("int", "list[int]", "float", "literal['auto']"))
    place = f"[{tables[0]}] {'.'.join([*tables[1:], key])}" if tables else key
    if first["type"] == "extra_forbidden":
        known = records[tables[0] if tables else ""].model_fields
        return InputError(f"In '{where}': {choices(f'key in [{tables[0]}]' if tables else 'key', key, known)}", key)
    if first["type"] == "missing":
        return InputError(f"In '{where}': expected {place}, got nothing: add it.", key)
    allowed = f" (keys: {', '.join(records[key].model_fields)})" if not tables and key in records else ""
    problem = first["msg"].lower().partition(" or instance of ")[0]
    return InputError(f"In '{where}': {place}: {problem}{allowed}, got {first['input']!r}.", key)
