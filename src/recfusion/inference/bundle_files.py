"""The JSON files of a model folder: their fields, and how older formats are read."""

import hashlib
import importlib.metadata
import json
import logging
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, StrictBool, StrictInt, StrictStr, TypeAdapter

from recfusion.core.errors import InputError, validating
from recfusion.core.files import file_digest, read_json
from recfusion.core.job_folder import file_stamps
from recfusion.data.feature_recipe import Recipes
from recfusion.models.settings import without_retired

log = logging.getLogger(__name__)
FORMAT = 2
CONFIG = "config.json"  # marks a model folder
WEIGHTS, ITEMS, PROTOCOL, METRICS = FILES = ("model.safetensors", "items.parquet", "protocol.json", "metrics.json")
FEATURES = "features.json"  # recipes of features
REORDERS = "reorders.safetensors"  # how items are bought again
TRAINING = "training.safetensors"  # rows of training users, for updates
LAYOUT = "layout.safetensors"  # the map of the items
CONTROL = "control "  # starts the groups of metrics.json with the cost of a re-ranking control
OPTIONAL = (FEATURES, REORDERS, TRAINING, LAYOUT)


class UpdateRecord(BaseModel, frozen=True, extra="forbid"):
    """The updates of one day: how many users and items, never which."""

    COUNTS: ClassVar[tuple[str, ...]] = ("added", "changed", "forgotten", "new_items")
    day: StrictStr  # in UTC
    added: StrictInt = Field(0, ge=0)
    changed: StrictInt = Field(0, ge=0)
    forgotten: StrictInt = Field(0, ge=0)
    new_items: StrictInt = Field(0, ge=0)
    error: FiniteFloat | None = None  # of the last certificate, in standard deviations of scores; None if not tested
    exact: StrictBool = True
    notes: tuple[StrictStr, ...] = ()  # sentences about parts of a mixture


class Config(BaseModel):
    """The fields of config.json."""

    model_config = ConfigDict(extra="forbid")  # a changed bit in a name must not hide the digest

    format: StrictInt
    recfusion: StrictStr = Field("0.1.0", pattern=r"^\d+\.\d+")  # the version that wrote the folder
    model: StrictStr
    place: StrictStr = ""
    settings: dict[str, Any]
    chosen: dict[str, Any] = Field(default_factory=dict)
    searched: list[str] = Field(default_factory=list)
    notes: list[str] = Field(default_factory=list)
    seed: StrictInt = Field(ge=0)
    all_users: StrictBool
    train_users: StrictInt = Field(0, ge=0)
    trials: StrictInt | None = None
    fit_seconds: FiniteFloat
    items_time: FiniteFloat | None = None
    updates: tuple[UpdateRecord, ...] = ()
    digests: dict[str, str] = Field(default_factory=dict)
    digest: StrictStr = ""  # of the other fields; empty in older folders


def sealed(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of config.json with their own digest."""
    own = {name: value for name, value in document.items() if name != "digest"}
    text = json.dumps(json.loads(json.dumps(own)), sort_keys=True)  # as a reader sees them
    return own | {"digest": hashlib.sha256(text.encode()).hexdigest()}


def read_config(path: Path) -> Config:
    """Return the configuration of a model folder, after a check of the digests; an older format is converted."""
    if not (path / CONFIG).is_file():
        raise InputError(f"Expected a model folder at '{path}', found no {CONFIG} there: train one with --out.")
    document = read_json(path / CONFIG)
    if not isinstance(document, dict):
        raise InputError(f"Expected a JSON object in '{path / CONFIG}': train the model again.")
    _check_writer(path, document)
    if "digest" in document and document != sealed(document):
        raise _not_as_saved(path, CONFIG)
    version = document.get("format")
    if version == 1:
        log.warning(
            "The model folder '%s' has format 1, without digests of its files: train it again to get them.", path
        )
        document = _upgraded(document)
    document["settings"] = without_retired(document.get("settings"))
    with validating(f"the fields of '{path / CONFIG}'", "train the model again"):
        config = Config.model_validate(document)
    if config.format != FORMAT:
        raise InputError(
            f"The model folder '{path}' has format {config.format}, this recfusion reads formats 1 and {FORMAT}: "
            "train the model again, or install the version that wrote it."
        )
    if version == FORMAT and config.digests.keys() - {*OPTIONAL} != set(FILES):
        raise InputError(f"Expected digests of {', '.join(FILES)} in '{path / CONFIG}': train the model again.")
    for name, digest in config.digests.items():
        if file_digest(path / name) != digest:
            raise _not_as_saved(path, name)
    return config


def _not_as_saved(path: Path, name: str) -> InputError:
    return InputError(
        f"The file {name} in the model folder '{path}' is not the one that was saved: copy the folder again, or train "
        "the model again."
    )


def _check_writer(path: Path, document: Mapping[str, Any]) -> None:
    """Raise if a newer version wrote a folder: this one may misread it."""
    own = importlib.metadata.version("recfusion")
    wrote, reads = (re.match(r"(\d{1,9})\.(\d{1,9})", str(version)) for version in (document.get("recfusion"), own))
    if wrote and reads and tuple(map(int, wrote.groups())) > tuple(map(int, reads.groups())):
        raise InputError(
            f"The model folder '{path}' was written by recfusion {document['recfusion']}, and this is {own}: install "
            "the newer version, or train the model again."
        )


def present(path: Path) -> list[Path]:
    """Return the files of a model folder that are there, without the card."""
    return [path / name for name in (CONFIG, *FILES, *OPTIONAL) if (path / name).is_file()]


def stamps(path: Path) -> list[list[Any]]:
    """Return size and time of each file of a model folder, to detect changes."""
    return file_stamps(present(path))


def read_recipes(path: Path, config: Config) -> Recipes:
    """Return the recipes of features in a model folder; empty ones for a model that reads no features."""
    if FEATURES not in config.digests:
        return Recipes()
    return Recipes.parse(read_json(path / FEATURES), str(path / FEATURES))


class _Metric(BaseModel):
    """The fields of a metric in metrics.json."""

    mean: FiniteFloat
    ci95: tuple[FiniteFloat, FiniteFloat] | None = None


def read_metrics(path: Path) -> dict[str, Any]:
    document: Any = read_json(path)
    with validating(f"metrics in '{path}'", "train the model again"):
        TypeAdapter(dict[str, dict[str, _Metric]]).validate_python(document)
    return document


def _upgraded(document: dict[str, Any]) -> dict[str, Any]:
    """Return a configuration of format 1 in the current format; it had the chosen values among the settings."""
    settings, names = document.get("settings"), document.get("chosen", [])
    if not isinstance(settings, dict) or not isinstance(names, list):
        return document
    chosen = {name: settings.pop(name) for name in names if name in settings}
    known = {name: value for name, value in document.items() if name in Config.model_fields}
    return {**known, "format": FORMAT, "settings": settings, "chosen": chosen}
