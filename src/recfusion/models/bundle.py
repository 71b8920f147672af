"""A fitted model with the names of its items and its protocol: what a model folder holds."""

import importlib.metadata
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from pydantic import BaseModel, Field, StrictBool, StrictInt, StrictStr, ValidationError
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file
from scipy.sparse import csr_array

from recfusion.core.arrays import Csr, column_counts
from recfusion.core.errors import InputError
from recfusion.core.files import read_json, replacing, replacing_folder, write_json
from recfusion.data.interactions import Interactions
from recfusion.data.protocol import Protocol
from recfusion.models.base import Recommender, setting_values
from recfusion.models.card import model_card
from recfusion.models.registry import make_model

FORMAT = 1
CONFIG = "config.json"  # marks a folder as ours
LIST_COLUMNS = ("user", "rank", "score", "basis")  # of a recommended list, beside the items' own
COUNT = "train_count"  # column of the item table: users who have the item in training


@dataclass(frozen=True)
class Bundle:
    """A model that can be used: ids in, ids out."""

    name: str  # in MODELS
    model: Recommender
    items: pl.DataFrame  # one row per column of the matrix: `item`, `train_count`, and what is known of the items
    protocol: Protocol
    seed: int
    all_users: bool = False  # trained on every user: nobody is left to judge it on
    fit_seconds: float = 0.0
    metrics: dict[str, Any] = field(default_factory=dict)
    chosen: tuple[str, ...] = ()  # the settings that the fit chose
    searched: tuple[str, ...] = ()  # the settings that a search chose before it, on the validation users

    @classmethod
    def of(
        cls,
        name: str,
        model: Recommender,
        data: Interactions,
        train: Csr,
        protocol: Protocol,
        *,
        seed: int,
        all_users: bool = False,
        fit_seconds: float = 0.0,
        metrics: dict[str, Any] | None = None,
        chosen: Iterable[str] = (),
    ) -> "Bundle":
        """Return the bundle of a model just fitted on `train`."""
        taken = {name: f"item_{name}" for name in (*LIST_COLUMNS, COUNT)}  # names that lists have of their own
        items = data.item_table.rename(taken, strict=False).with_columns(pl.Series(COUNT, column_counts(train)))
        return cls(name, model, items, protocol, seed, all_users, fit_seconds, metrics or {}, tuple(chosen))

    def save(self, path: str | Path) -> Path:
        """Write the model folder; an older model folder of that name is replaced in one step."""
        path = Path(path)
        with replacing_folder(path, CONFIG) as folder:
            save_file(self.model.state(), folder / "model.safetensors")
            self.items.write_parquet(folder / "items.parquet")
            write_json(folder / "protocol.json", self.protocol.document())
            write_json(folder / "metrics.json", self.metrics)
            (folder / "README.md").write_text(model_card(self), encoding="utf-8")
            write_json(folder / CONFIG, self._config())
        return path

    @classmethod
    def load(cls, path: str | Path) -> "Bundle":
        """Read a model folder."""
        path = Path(path)
        if not (path / CONFIG).is_file():
            raise InputError(f"Expected a model folder at '{path}', found no {CONFIG} there: train one with --out.")
        config = _read_config(path)
        model = make_model(config.model, config.settings)
        try:
            items = pl.read_parquet(path / "items.parquet", glob=False)
            model.load_state(load_file(path / "model.safetensors"), len(items))
        except (OSError, SafetensorError, pl.exceptions.PolarsError, KeyError, ValueError) as error:
            raise InputError(
                f"The model folder '{path}' is damaged ({_brief(error)}): train the model again."
            ) from None
        bundle = cls(
            name=config.model,
            model=model,
            items=items,
            protocol=Protocol.parse(read_json(path / "protocol.json"), str(path / "protocol.json")),
            seed=config.seed,
            all_users=config.all_users,
            fit_seconds=config.fit_seconds,
            metrics=_dictionary(read_json(path / "metrics.json"), path / "metrics.json"),
            chosen=tuple(config.chosen),
            searched=tuple(config.searched),
        )
        bundle._check_shapes(path)
        return bundle

    def write_metrics(self, path: Path, metrics: dict[str, Any]) -> None:
        """Put new metrics, and the card that shows them, into a model folder."""
        judged = replace(self, metrics=metrics)
        write_json(path / "metrics.json", metrics)
        with replacing(path / "README.md") as card:
            card.write_text(model_card(judged), encoding="utf-8")

    def _config(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "recfusion": importlib.metadata.version("recfusion"),
            "model": self.name,
            "settings": setting_values(self.model),
            "chosen": list(self.chosen),
            "searched": list(self.searched),
            "seed": self.seed,
            "all_users": self.all_users,
            "fit_seconds": self.fit_seconds,
        }

    def _check_shapes(self, path: Path) -> None:
        n_items = len(self.items)
        try:
            scores = self.model.score(csr_array((1, n_items), dtype=np.float32))
            counted = self.items.schema.get(COUNT, pl.String).is_integer()
            fits = scores.shape == (1, n_items) and counted and "item" in self.items.columns
        except (ValueError, IndexError, AttributeError):
            fits = False
        if not fits:
            raise InputError(
                f"The model folder '{path}' is damaged (its weights and its {n_items:,} items do not fit together): "
                "train the model again."
            )


class _Config(BaseModel):
    """What config.json must hold."""

    format: StrictInt
    model: StrictStr
    settings: dict[str, Any]
    seed: StrictInt = Field(ge=0)
    all_users: StrictBool
    fit_seconds: float
    chosen: list[str] = Field(default_factory=list)
    searched: list[str] = Field(default_factory=list)


def _read_config(path: Path) -> _Config:
    document = _dictionary(read_json(path / CONFIG), path / CONFIG)
    try:
        config = _Config.model_validate(document)
    except ValidationError as error:
        first = error.errors()[0]
        problem = f"Expected '{first['loc'][0]}' in '{path / CONFIG}': {first['msg'].lower()}"
        raise InputError(f"{problem}; train the model again.") from None
    if config.format != FORMAT:
        raise InputError(
            f"The model folder '{path}' has format {config.format}, this recfusion reads format {FORMAT}: "
            "train the model again, or install the version that wrote it."
        )
    return config


def _dictionary(value: object, path: Path) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InputError(f"Expected a JSON object in '{path}', got {type(value).__name__}: train the model again.")
    return value


def _brief(error: Exception) -> str:
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0]}" if text else type(error).__name__
