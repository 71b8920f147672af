"""A fitted model with the names of its items and its protocol: what a model folder holds."""

import importlib.metadata
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file
from scipy.sparse import csr_array

from recfusion.core.arrays import Csr, column_counts
from recfusion.core.errors import InputError
from recfusion.core.files import read_json, replacing, replacing_folder, write_json
from recfusion.data.interactions import Interactions
from recfusion.data.protocol import Protocol
from recfusion.models.base import Recommender, learned_names, setting_values
from recfusion.models.card import model_card
from recfusion.models.registry import make_model

FORMAT = 1
CONFIG = "config.json"  # marks a folder as ours
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
    ) -> "Bundle":
        """Return the bundle of a model just fitted on `train`."""
        items = data.item_table.drop(COUNT, strict=False).with_columns(pl.Series(COUNT, column_counts(train)))
        return cls(name, model, items, protocol, seed, all_users, fit_seconds, metrics or {})

    def save(self, path: str | Path) -> Path:
        """Write the model folder; an older model folder of that name is replaced in one step."""
        path = Path(path)
        with replacing_folder(path, CONFIG) as folder:
            save_file(_state(self.model), folder / "model.safetensors")
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
        config = _checked_config(read_json(path / CONFIG), path)
        model = make_model(config["model"], config["settings"])
        try:
            _restore(model, load_file(path / "model.safetensors"))
            items = pl.read_parquet(path / "items.parquet")
        except (OSError, SafetensorError, pl.exceptions.PolarsError, KeyError, ValueError) as error:
            raise InputError(
                f"The model folder '{path}' is damaged ({_brief(error)}): train the model again."
            ) from None
        bundle = cls(
            name=config["model"],
            model=model,
            items=items,
            protocol=Protocol.parse(read_json(path / "protocol.json"), str(path / "protocol.json")),
            seed=config["seed"],
            all_users=config["all_users"],
            fit_seconds=config["fit_seconds"],
            metrics=_dictionary(read_json(path / "metrics.json"), path / "metrics.json"),
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
            "seed": self.seed,
            "all_users": self.all_users,
            "fit_seconds": self.fit_seconds,
        }

    def _check_shapes(self, path: Path) -> None:
        n_items = len(self.items)
        try:
            scores = self.model.score(csr_array((1, n_items), dtype=np.float32))
            fits = scores.shape == (1, n_items) and {"item", COUNT} <= set(self.items.columns)
        except (ValueError, IndexError, AttributeError):
            fits = False
        if not fits:
            raise InputError(
                f"The model folder '{path}' is damaged (its weights and its {n_items:,} items do not fit together): "
                "train the model again."
            )


def _state(model: Recommender) -> dict[str, Any]:
    """Return the learned arrays by name; a sparse matrix becomes its parts."""
    state: dict[str, Any] = {}
    for name in learned_names(type(model)):
        value = getattr(model, name)
        if isinstance(value, csr_array):
            shape = np.asarray(value.shape, np.int64)
            parts = {"data": value.data, "indices": value.indices, "indptr": value.indptr, "shape": shape}
            state |= {f"{name}.{part}": np.ascontiguousarray(array) for part, array in parts.items()}
        else:
            state[name] = np.ascontiguousarray(value)
    return state


def _restore(model: Recommender, state: dict[str, Any]) -> None:
    for name in learned_names(type(model)):
        if f"{name}.indptr" in state:
            data, indices, indptr = (state[f"{name}.{part}"] for part in ("data", "indices", "indptr"))
            setattr(model, name, csr_array((data, indices, indptr), shape=tuple(state[f"{name}.shape"])))
        else:
            setattr(model, name, state[name])


def _checked_config(config: object, path: Path) -> dict[str, Any]:
    kinds = {"format": int, "model": str, "settings": dict, "seed": int, "all_users": bool, "fit_seconds": (int, float)}
    document = _dictionary(config, path / CONFIG)
    for key, kind in kinds.items():
        if not isinstance(document.get(key), kind):  # type: ignore[arg-type]
            raise InputError(
                f"Expected '{key}' in '{path / CONFIG}', got {document.get(key)!r}: train the model again."
            )
    if document["format"] != FORMAT:
        raise InputError(
            f"The model folder '{path}' has format {document['format']}, this recfusion reads format {FORMAT}: "
            "train the model again, or install the version that wrote it."
        )
    return document


def _dictionary(value: object, path: Path) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InputError(f"Expected a JSON object in '{path}', got {type(value).__name__}: train the model again.")
    return value


def _brief(error: Exception) -> str:
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0]}" if text else type(error).__name__
