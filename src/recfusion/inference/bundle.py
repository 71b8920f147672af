"""Bundles: a fitted model with its item table and its protocol, and the model folder that stores them."""

import importlib.metadata
import shutil
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import polars as pl
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file
from scipy.sparse import csr_array

from recfusion.core.arrays import Csr, FloatArray, IntArray, column_counts
from recfusion.core.errors import InputError
from recfusion.core.extras import require
from recfusion.core.files import check_regular, file_digest, json_text, read_json, replacing_folder
from recfusion.core.memory_map import map_arrays
from recfusion.core.parquet import read_parquet
from recfusion.data.column_roles import Role, column_roles, parse_roles
from recfusion.data.conditions import matching
from recfusion.data.feature_recipe import Recipes
from recfusion.data.features import recipes_of
from recfusion.data.interactions import Interactions, to_columns
from recfusion.data.protocol import Protocol
from recfusion.inference import bundle_files as files
from recfusion.inference.categories import Categories
from recfusion.inference.item_layout import Layout, make_layout
from recfusion.inference.model_card import model_card
from recfusion.inference.reorders import Rates
from recfusion.inference.similarity import Similarity
from recfusion.inference.training_rows import TrainingRows
from recfusion.models.abilities import keeps_histories
from recfusion.models.base import Recommender
from recfusion.models.registry import Entry, trusted
from recfusion.models.settings import setting_values

_CACHED = 100  # conditions on the item table, and categories, ranks and ages of its columns
T = TypeVar("T")
# Errors of damaged files, also from libraries: torch raises RuntimeError for wrong sizes.
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
# Columns of lists, similar items and completions beside those of the item table.
LIST_COLUMNS = ("user", "rank", "score", "basis", "because", "reasons", "similarity", "alternative")
COUNT = "train_count"  # column of the item table: number of training users of the item


@dataclass(frozen=True)
class Bundle:
    """A fitted model that takes and returns ids."""

    entry: Entry  # of the model in the registry
    model: Recommender
    items: pl.DataFrame  # one row per column of the matrix: `item`, `train_count` and the other columns
    protocol: Protocol
    seed: int
    all_users: bool = False  # trained on all users, so that none are left for a test
    train_users: int = 0  # number of users in the fit; 0 if an old folder does not say it
    fit_seconds: float = 0.0
    metrics: dict[str, Any] = field(default_factory=dict)
    searched: tuple[str, ...] = ()  # settings that a search chose before the fit, on the validation users
    notes: tuple[str, ...] = ()  # sentences about the fit, such as what each part of a mixture adds
    recipes: Recipes = Recipes()  # how tables of items and users become features, for a model that reads them
    items_time: float | None = None  # when the file of the item table was written, seconds since 1970
    rates: Rates | None = None  # how items are bought again, if the training data had repeat purchases with times
    training: TrainingRows | None = None  # what updates need
    updates: tuple[files.UpdateRecord, ...] = ()  # since the last full fit, by days
    layout: Layout | None = None  # the map of the items; None before the first save, and in old folders

    @property
    def name(self) -> str:
        """The model's name in the registry, or the name of its class."""
        return self.entry.name

    @property
    def reads_times(self) -> bool:
        """Whether the times of history entries matter: to the model, or to the rates of re-orders."""
        return "times" in self.protocol.signals.used or self.rates is not None

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
        notes: Iterable[str] = (),
        rates: Rates | None = None,
    ) -> "Bundle":
        """Return the bundle of a model that was fitted on `train`."""
        items = data.item_table.rename(free_names(data.item_table.columns))
        items = _with_decimals(items).with_columns(pl.Series(COUNT, column_counts(train)))
        record = (seed, all_users, train.shape[0], fit_seconds)
        told = (metrics or {}, tuple(searched), tuple(notes))
        return cls(entry, model, items, protocol, *record, *told, recipes_of(data, protocol), data.items_time, rates)

    def with_columns(self, columns: Iterable[pl.Series]) -> "Bundle":
        """Return the bundle with new values in some columns of its item table; unaffected caches are kept."""
        new = list(columns)
        changed = {series.name for series in new}
        other = replace(self, items=self.items.with_columns(new))
        kept = {"counts", "popularity", "similarity", "roles", "_columns"}
        kept |= set() if self.roles.get("title") in changed else {"names"}
        vars(other).update({name: value for name, value in vars(self).items() if name in kept})
        return other

    @cached_property
    def counts(self) -> IntArray:
        """The number of training users of each item, (items,)."""
        return self.items[COUNT].to_numpy()

    @cached_property
    def popularity(self) -> FloatArray:
        """The counts as scores, 1 for the most popular item, (items,)."""
        counts = self.counts.astype(np.float32)
        return counts / np.float32(max(1.0, float(counts.max(initial=0))))

    @cached_property
    def roles(self) -> dict[Role, str]:
        """The columns of the item table with a role, such as the title and the price."""
        asked = parse_roles(self.protocol.source.roles)
        own = {role: name and name_among(self.items.columns, name) for role, name in asked.items()}
        return column_roles(self.items.drop(COUNT), own)

    @cached_property
    def names(self) -> list[tuple[str, str]]:
        """Each item's id and its title or name, or the id if the item table has neither."""
        ids = self.items["item"].cast(pl.String).to_list()
        column = self.roles.get("title", "item")
        return [(text, str(name or text)) for text, name in zip(ids, self.items[column], strict=True)]

    @cached_property
    def similarity(self) -> Similarity:
        """The similarity of items, with a cache."""
        return Similarity(self.model, self.counts)

    def categories(self, column: str) -> Categories:
        """Return the categories of a column of the item table, from a cache."""
        return self.cached(f"categories {column}", lambda: Categories.of(self.items, column))

    def matching(self, condition: str) -> NDArray[np.bool_]:
        """Return which items meet a condition on the item table, (items,), from a cache."""
        return self.cached(f"condition {condition}", lambda: matching(self.items, condition))

    def cached(self, name: str, make: Callable[[], T]) -> T:
        """Return what `make` computes from the item table; the last results are kept under their names."""
        found: T | None = self._cache.get(name)
        if found is None:
            while len(self._cache) >= _CACHED:
                self._cache.pop(next(iter(self._cache)), None)
            found = self._cache[name] = make()
        return found

    @cached_property
    def _cache(self) -> dict[str, Any]:
        return {}

    def columns_of(self, ids: Sequence[str]) -> IntArray:
        """Return the column of each id, given as text; -1 for an unknown id."""
        found = np.array([self._columns.get(text, -1) for text in ids], np.int64)
        if (found < 0).any():  # it may be another spelling of a known id, 7.0 or 007 for 7
            found[found < 0] = to_columns(self.items["item"], pl.Series(ids, dtype=pl.String))[found < 0]
        return found

    @cached_property
    def _columns(self) -> dict[str, int]:
        return {text: column for column, text in enumerate(self.items["item"].cast(pl.String))}

    def save(self, path: str | Path, *, kept: str = "") -> Path:
        """Write the model folder and replace an old one in one step; `kept` is a name under which the old one stays."""
        path = Path(path)
        with replacing_folder(path, files.CONFIG, kept) as folder:
            self.items.write_parquet(folder / files.ITEMS)
            documents = {files.PROTOCOL: self.protocol.document(), files.METRICS: self.metrics}
            if self.recipes != Recipes():
                documents[files.FEATURES] = self.recipes.model_dump(mode="json")
            for name, document in documents.items():
                (folder / name).write_text(json_text(document), encoding="utf-8")
            _save_arrays(folder / files.WEIGHTS, self.model.state())
            layout = self._layout(path, folder)
            for name, part in ((files.REORDERS, self.rates), (files.TRAINING, self.training), (files.LAYOUT, layout)):
                if part is not None:
                    _save_arrays(folder / name, part.arrays())
            digests = {one.name: file_digest(one) for one in files.present(folder)}
            config = files.sealed(self._config() | {"digests": digests})  # the last file, without a digest there
            (folder / files.CONFIG).write_text(json_text(config), encoding="utf-8")
            (folder / "README.md").write_text(model_card(self), encoding="utf-8")
            Bundle.load(folder, trust=[type(self.model)], mapped=True)  # a folder that cannot be read replaces nothing
        return path

    def _layout(self, path: Path, saved: Path) -> Layout:
        """Return the map of the items; a new one is turned like that of an older model in the same folder.

        If the older model is the same, so is the map: a repeated training gives the same files.
        """
        if self.layout is not None:
            return self.layout
        before = {}
        with suppress(InputError, *_DAMAGE):  # without a folder, or with a damaged one, the map is made anew
            ids = read_parquet(path / files.ITEMS)["item"].cast(pl.String).to_list()
            old = Layout.of_arrays(load_file(path / files.LAYOUT), len(ids))
            if all(file_digest(path / name) == file_digest(saved / name) for name in (files.WEIGHTS, files.ITEMS)):
                return old
            columns = self.columns_of([ids[column] for column in old.items.tolist()])
            before = dict(zip(columns.tolist(), old.places, strict=True))
        return make_layout(self.similarity, self.counts, before)

    @classmethod
    def load(cls, path: str | Path, *, trust: Iterable[type[Recommender]] = (), mapped: bool = False) -> "Bundle":
        """Read a model folder; `mapped` leaves the arrays in the file, so that processes share their memory.

        A model of another class than ours or an installed package's needs its class in `trust`: a folder never causes
        an import of code that it names.
        """
        path = Path(path)
        before = files.stamps(path)
        config = files.read_config(path)
        entry = trusted(config.model, config.place, trust)
        model = entry.make(config.settings)
        rates = training = layout = None
        for name in (files.ITEMS, files.WEIGHTS):  # a folder of format 1 has no digests
            check_regular(path / name)
        try:
            items = read_parquet(path / files.ITEMS)
            state = map_arrays(path / files.WEIGHTS) if mapped else load_file(path / files.WEIGHTS)
            _check_items(items)
            items = items.rename(free_names(name for name in items.columns if name != COUNT))  # of an older version
            items = _with_decimals(items)
            model.load_state(_check_finite(state), config.chosen, len(items))
            _check_scores(model, len(items))
            if files.REORDERS in config.digests:
                rates = Rates.of_arrays(_check_finite(load_file(path / files.REORDERS)))
            if files.TRAINING in config.digests:  # mapped: only updates read it
                training = TrainingRows.of_arrays(map_arrays(path / files.TRAINING), len(items))
            if files.LAYOUT in config.digests:
                layout = Layout.of_arrays(_check_finite(load_file(path / files.LAYOUT)), len(items))
        except _DAMAGE as error:
            problem = ": ".join([type(error).__name__, *str(error).strip().splitlines()[:1]])
            raise InputError(f"The model folder '{path}' is damaged ({problem}): train the model again.") from None
        protocol = Protocol.parse(read_json(path / files.PROTOCOL), str(path / files.PROTOCOL))
        metrics = files.read_metrics(path / files.METRICS)
        record = (config.seed, config.all_users, config.train_users, config.fit_seconds)
        told = (metrics, tuple(config.searched), tuple(config.notes))
        if files.stamps(path) != before:
            raise InputError(f"The model folder '{path}' changed while it was read: load it again.")
        recipes = files.read_recipes(path, config)
        made = cls(entry, model, items, protocol, *record, *told, recipes, config.items_time, rates)
        return replace(made, training=training, updates=config.updates, layout=layout)

    def without_rows(self) -> "Bundle":
        """Return the bundle without the rows of training users that updates read; raise if its model holds some too."""
        if keeps_histories(self.model):
            raise InputError(
                f"Expected a model without rows of training users, got {self.name} with some: train it with "
                "histories=False (--no-histories)."
            )
        return replace(self, training=None)

    def push_to_hub(
        self,
        repo_id: str,
        *,
        private: bool = True,
        revision: str | None = None,
        token: str | None = None,
        endpoint: str | None = None,
    ) -> str:
        """Push the model folder to the Hugging Face hub and return the address of the commit (extra `hub`).

        Rows of training users are never pushed: those for updates stay here, and a model that holds some is refused.
        """
        require("huggingface_hub", "push_to_hub")
        from recfusion.inference.hub import push

        return push(self, repo_id, private, revision, token, endpoint)

    @classmethod
    def from_hub(
        cls,
        repo_id: str,
        *,
        revision: str | None = None,
        trust: Iterable[type[Recommender]] = (),
        token: str | None = None,
        endpoint: str | None = None,
    ) -> "Bundle":
        """Download a model folder from the hub, at best at a commit (`revision`), and `load` it (extra `hub`)."""
        require("huggingface_hub", "from_hub")
        from recfusion.inference.hub import pull

        return pull(repo_id, revision, trust, token, endpoint)

    def _config(self) -> dict[str, Any]:
        return {
            "format": files.FORMAT,
            "recfusion": importlib.metadata.version("recfusion"),
            "model": self.name,
            "place": self.entry.place,
            "settings": setting_values(self.model),
            "chosen": self.model.chosen(),
            "trials": self.model.trials_,
            "searched": list(self.searched),
            "notes": list(self.notes),
            "seed": self.seed,
            "all_users": self.all_users,
            "train_users": self.train_users,
            "fit_seconds": self.fit_seconds,
            "items_time": self.items_time,
            **({"updates": [one.model_dump(mode="json") for one in self.updates]} if self.updates else {}),
        }


def free_names(columns: Iterable[str]) -> dict[str, str]:
    """Return new, unique names for item columns that have the name of a list column."""
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
    """Return the name that `free_names` gave a column of an item file in a model's item table."""
    if name not in (*LIST_COLUMNS, COUNT):
        return name
    taken, new = set(columns), f"item_{name}"
    while f"{new}_" in taken:
        new += "_"
    return new


def _with_decimals(items: pl.DataFrame) -> pl.DataFrame:
    """Return the table with numbers in double precision, by their shortest decimal form: 1.65, not 1.64999998."""
    return items.with_columns(pl.col(pl.Float32).cast(pl.String).cast(pl.Float64))


def _check_items(items: pl.DataFrame) -> None:
    """Raise unless each item of a table has a unique id and a count."""
    ids = items["item"]
    if not (ids.dtype.is_integer() or ids.dtype == pl.String) or ids.null_count() or ids.n_unique() < len(ids):
        raise ValueError("the ids of its items are not distinct numbers or texts")
    counts = items[COUNT]
    if not counts.dtype.is_integer() or counts.null_count() or (len(counts) and int(counts.min()) < 0):  # type: ignore[arg-type]
        raise ValueError(f"the column {COUNT} of its items has values that are no counts")


def _save_arrays(path: Path, arrays: dict[str, NDArray[Any]]) -> None:
    save_file(arrays, path)
    shutil.copymode(path.with_name(files.ITEMS), path)  # safetensors makes files that only their owner can read


def _check_finite(arrays: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Return the arrays; raise if one has other values than finite numbers."""
    for name, array in arrays.items():
        if array.dtype.kind not in "fiub" or (array.dtype.kind == "f" and not np.isfinite(array).all()):
            raise ValueError(f"{name} has values that are no finite numbers")
    return arrays


def _check_scores(model: Recommender, n_items: int) -> None:
    """Raise unless a model scores as many items as its table has."""
    scores = model.score(csr_array((1, n_items), dtype=np.float32))
    if scores.shape != (1, n_items) or np.isnan(scores).any():
        raise ValueError(f"its weights and its {n_items:,} items do not fit together")
