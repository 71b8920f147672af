"""A fitted model with the names of its items and its protocol: what a model folder holds."""

import importlib.metadata
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file
from scipy.sparse import csr_array

from recfusion.core.arrays import Csr, FloatArray, IntArray, column_counts
from recfusion.core.errors import InputError
from recfusion.core.files import check_regular, file_digest, json_text, read_json, replacing_folder
from recfusion.core.memory_map import map_arrays
from recfusion.data.feature_recipe import Recipes
from recfusion.data.features import recipes_of
from recfusion.data.interactions import Interactions, name_column, to_columns
from recfusion.data.protocol import Protocol
from recfusion.inference.bundle_files import (
    ADDED,
    CONFIG,
    FEATURES,
    FILES,
    FORMAT,
    ITEMS,
    METRICS,
    PROTOCOL,
    WEIGHTS,
    read_config,
    read_metrics,
)
from recfusion.inference.categories import Categories
from recfusion.inference.conditions import matching
from recfusion.inference.model_card import model_card
from recfusion.inference.similarity import Similarity
from recfusion.models.base import Recommender
from recfusion.models.registry import Entry, trusted
from recfusion.models.settings import setting_values

_REMEMBERED = 100  # conditions on the item table
# What reading or building from a damaged file raises, also of libraries: torch has RuntimeErrors for sizes.
_DAMAGE = (
    OSError,
    SafetensorError,
    pl.exceptions.PolarsError,
    pl.exceptions.PanicException,
    LookupError,
    ValueError,
    TypeError,
    RuntimeError,
    MemoryError,
)
# Of lists, similar items and completions, beside the items' own.
LIST_COLUMNS = ("user", "rank", "score", "basis", "because", "reasons", "similarity", "alternative")
COUNT = "train_count"  # column of the item table: users who have the item in training


@dataclass(frozen=True)
class Bundle:
    """A model that can be used: ids in, ids out."""

    entry: Entry  # what the model is
    model: Recommender
    items: pl.DataFrame  # one row per column of the matrix: `item`, `train_count`, and what is known of the items
    protocol: Protocol
    seed: int
    all_users: bool = False  # trained on every user: nobody is left to judge it on
    train_users: int = 0  # that it was fitted on; 0 where an old folder does not say
    fit_seconds: float = 0.0
    metrics: dict[str, Any] = field(default_factory=dict)
    searched: tuple[str, ...] = ()  # the settings that a search chose before the fit, on the validation users
    recipes: Recipes = Recipes()  # how items and users become features, for a model that reads them

    @property
    def name(self) -> str:
        """The model's name in the registry, or that of its class."""
        return self.entry.name

    @classmethod
    def of(
        cls,
        entry: Entry,
        model: Recommender,
        data: Interactions,
        train: Csr,
        protocol: Protocol,
        *,
        seed: int,
        all_users: bool = False,
        fit_seconds: float = 0.0,
        metrics: dict[str, Any] | None = None,
        searched: Iterable[str] = (),
    ) -> "Bundle":
        """Return the bundle of a model just fitted on `train`."""
        items = data.item_table.rename(free_names(data.item_table.columns))
        items = items.with_columns(pl.Series(COUNT, column_counts(train)))
        record = (seed, all_users, train.shape[0], fit_seconds)
        return cls(entry, model, items, protocol, *record, metrics or {}, tuple(searched), recipes_of(data, protocol))

    def with_columns(self, columns: Iterable[pl.Series]) -> "Bundle":
        """Return the bundle with other values in some columns of its item table; what they leave alone is kept."""
        new = list(columns)
        changed = {series.name for series in new}
        other = replace(self, items=self.items.with_columns(new))
        kept = {"counts", "popularity", "similarity", "_columns"}
        kept |= set() if name_column(self.items) in changed else {"names"}
        vars(other).update({name: value for name, value in vars(self).items() if name in kept})
        return other

    @cached_property
    def counts(self) -> IntArray:
        """How many training users have each item, (items,)."""
        return self.items[COUNT].to_numpy()

    @cached_property
    def popularity(self) -> FloatArray:
        """The counts as scores, the most popular item's being 1, (items,)."""
        counts = self.counts.astype(np.float32)
        return counts / np.float32(max(1.0, float(counts.max(initial=0))))

    @cached_property
    def names(self) -> list[tuple[str, str]]:
        """Each item's id and what people call it: its title or name where the item table has one."""
        ids = self.items["item"].cast(pl.String).to_list()
        column = name_column(self.items) or "item"
        return [(text, str(name or text)) for text, name in zip(ids, self.items[column], strict=True)]

    @cached_property
    def similarity(self) -> Similarity:
        """How alike the items are; what was asked for once is kept."""
        return Similarity(self.model, self.counts)

    def categories(self, column: str) -> Categories:
        """Return the categories that a column of the item table names; they are read once."""
        if column not in self._categories:
            self._categories[column] = Categories.of(self.items, column)
        return self._categories[column]

    @cached_property
    def _categories(self) -> dict[str, Categories]:
        return {}

    def matching(self, condition: str) -> NDArray[np.bool_]:
        """Return which items meet a condition on the item table, (items,); the last conditions are remembered."""
        if condition not in self._conditions:
            while len(self._conditions) >= _REMEMBERED:
                self._conditions.pop(next(iter(self._conditions)), None)
            self._conditions[condition] = matching(self.items, condition)
        return self._conditions[condition]

    @cached_property
    def _conditions(self) -> dict[str, NDArray[np.bool_]]:
        return {}

    def columns_of(self, ids: Sequence[str]) -> IntArray:
        """Return the column of each id, given as text; -1 where the model knows no such item."""
        found = np.array([self._columns.get(text, -1) for text in ids], np.int64)
        if (found < 0).any():  # it may be another way to write a known one, 7.0 or 007 for 7
            found[found < 0] = to_columns(self.items["item"], pl.Series(ids, dtype=pl.String))[found < 0]
        return found

    @cached_property
    def _columns(self) -> dict[str, int]:
        return {text: column for column, text in enumerate(self.items["item"].cast(pl.String))}

    def save(self, path: str | Path, *, kept: str = "") -> Path:
        """Write the model folder; an older one of that name is replaced in one step, and `kept` beside it if named."""
        path = Path(path)
        with replacing_folder(path, CONFIG, kept) as folder:
            self.items.write_parquet(folder / ITEMS)
            save_file(self.model.state(), folder / WEIGHTS)
            shutil.copymode(folder / ITEMS, folder / WEIGHTS)  # safetensors lets nobody else read its files
            (folder / PROTOCOL).write_text(json_text(self.protocol.document()), encoding="utf-8")
            (folder / METRICS).write_text(json_text(self.metrics), encoding="utf-8")
            (folder / "README.md").write_text(model_card(self), encoding="utf-8")
            files: tuple[str, ...] = FILES
            if self.recipes != Recipes():
                files = (*FILES, FEATURES)
                (folder / FEATURES).write_text(json_text(self.recipes.model_dump(mode="json")), encoding="utf-8")
            digests = {name: file_digest(folder / name) for name in files}
            (folder / CONFIG).write_text(json_text(self._config() | {"digests": digests}), encoding="utf-8")
        return path

    @classmethod
    def load(cls, path: str | Path, *, trust: Iterable[type[Recommender]] = (), mapped: bool = False) -> "Bundle":
        """Read a model folder; `mapped`, its arrays stay in the file, and processes share their memory.

        A model that is neither ours nor an installed package's needs its class in `trust`: no code is ever imported
        because a folder names it.
        """
        path = Path(path)
        if not (path / CONFIG).is_file():
            raise InputError(f"Expected a model folder at '{path}', found no {CONFIG} there: train one with --out.")
        config = read_config(path)
        for name, digest in config.digests.items():
            if file_digest(path / name) != digest:
                raise InputError(
                    f"The file {name} in the model folder '{path}' is not the one that was saved: copy the folder "
                    "again, or train the model again."
                )
        entry = trusted(config.model, config.place, trust)
        model = entry.make(config.settings)
        for name in (ITEMS, WEIGHTS):  # a folder of format 1 has no digest that would tell
            check_regular(path / name)
        try:
            items = pl.read_parquet(path / ITEMS, glob=False)
            state = map_arrays(path / WEIGHTS) if mapped else load_file(path / WEIGHTS)
            if ADDED in config.digests:
                state |= load_file(path / ADDED)
            _check_items(items)
            items = items.rename(free_names(name for name in items.columns if name != COUNT))  # of an older version
            _check_finite(state)
            model.load_state(state, config.chosen, len(items))
            _check_scores(model, len(items))
        except _DAMAGE as error:
            told = ": ".join([type(error).__name__, *str(error).strip().splitlines()[:1]])
            raise InputError(f"The model folder '{path}' is damaged ({told}): train the model again.") from None
        protocol = Protocol.parse(read_json(path / PROTOCOL), str(path / PROTOCOL))
        metrics = read_metrics(path / METRICS)
        record = (config.seed, config.all_users, config.train_users, config.fit_seconds)
        recipes = Recipes()
        if FEATURES in config.digests:
            recipes = Recipes.parse(read_json(path / FEATURES), str(path / FEATURES))
        return cls(entry, model, items, protocol, *record, metrics, tuple(config.searched), recipes)

    def _config(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "recfusion": importlib.metadata.version("recfusion"),
            "model": self.name,
            "place": self.entry.place,
            "settings": setting_values(self.model),
            "chosen": self.model.chosen(),
            "trials": self.model.trials_,
            "searched": list(self.searched),
            "seed": self.seed,
            "all_users": self.all_users,
            "train_users": self.train_users,
            "fit_seconds": self.fit_seconds,
        }


def free_names(columns: Iterable[str]) -> dict[str, str]:
    """Return new names for the columns of items that lists have of their own; none collides with another."""
    taken, renamed = set(columns), {}
    for name in (*LIST_COLUMNS, COUNT):
        if name in taken:
            new = f"item_{name}"
            while new in taken:
                new += "_"
            renamed[name] = new
            taken.add(new)
    return renamed


def name_among(columns: Iterable[str], name: str) -> str:
    """Return what a column of an item file is called among those of a model's items, by `free_names`."""
    if name not in (*LIST_COLUMNS, COUNT):
        return name
    taken, new = set(columns), f"item_{name}"
    while f"{new}_" in taken:
        new += "_"
    return new


def _check_items(items: pl.DataFrame) -> None:
    """Raise unless a table of items has an id and a count for each, and no id twice."""
    ids = items["item"]
    if not (ids.dtype.is_integer() or ids.dtype == pl.String) or ids.null_count() or ids.n_unique() < len(ids):
        raise ValueError("the ids of its items are not distinct numbers or texts")
    counts = items[COUNT]
    if not counts.dtype.is_integer() or counts.null_count() or (len(counts) and int(counts.min()) < 0):  # type: ignore[arg-type]
        raise ValueError(f"the column {COUNT} of its items holds no counts")


def _check_finite(state: dict[str, NDArray[Any]]) -> None:
    for name, array in state.items():
        if array.dtype.kind not in "fiub" or (array.dtype.kind == "f" and not np.isfinite(array).all()):
            raise ValueError(f"{name} holds something else than finite numbers")


def _check_scores(model: Recommender, n_items: int) -> None:
    """Raise unless a model scores as many items as it has names for."""
    scores = model.score(csr_array((1, n_items), dtype=np.float32))
    if scores.shape != (1, n_items) or np.isnan(scores).any():
        raise ValueError(f"its weights and its {n_items:,} items do not fit together")
