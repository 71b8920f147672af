"""The loaded models of a service, with changed item columns applied; they are replaced in one step."""

import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from recfusion.core.errors import InputError, choices
from recfusion.core.files import file_digest
from recfusion.data.interactions import name_column
from recfusion.inference.bundle import COUNT, Bundle
from recfusion.inference.bundle_files import CONFIG
from recfusion.inference.name_search import NameSearch
from recfusion.inference.new_items import can_add, with_new
from recfusion.server.event_store import Store


class ItemFacts:
    """Id, name and columns of each item as JSON values, read once from the item table."""

    def __init__(self, bundle: Bundle) -> None:
        self._names = bundle.names
        columns = [name for name in bundle.items.columns if name not in ("item", COUNT)]
        self._columns = {name: json_values(bundle.items[name].to_list()) for name in columns}

    def of(self, column: int) -> dict[str, Any]:
        item, name = self._names[column]
        return {"item": item, "name": name, "columns": {key: values[column] for key, values in self._columns.items()}}


def json_values(values: Sequence[Any]) -> list[Any]:
    """Return values of a table as JSON values: infinite numbers and NaN become None, other types become texts."""

    def plain(value: Any) -> Any:
        if isinstance(value, float):
            return value if np.isfinite(value) else None
        return value if value is None or isinstance(value, str | bool | int) else str(value)

    return [plain(value) for value in values]


@dataclass(frozen=True)
class LoadedModel:
    label: str  # its name in answers
    version: str  # changes with every training
    made: float  # when its folder was written, seconds since 1970
    base: Bundle  # as in its folder
    bundle: Bundle  # with changed columns and new items
    facts: ItemFacts
    search: NameSearch
    change: int  # number of the last applied change of the item table

    @property
    def age(self) -> float:
        """Seconds since the model's folder was written."""
        return max(0.0, time.time() - self.made)


@dataclass(frozen=True)
class LoadedModels:
    """The loaded models at one moment."""

    main: LoadedModel
    second: LoadedModel | None = None
    share: float = 0.0  # of the users who get the second model

    @property
    def every(self) -> list[LoadedModel]:
        """All models, the main one first."""
        return [self.main] if self.second is None else [self.main, self.second]

    def choose(self, label: str | None, position: float | None = None) -> LoadedModel:
        """Return the model with this label, or the one for a user at this position, 0 to 1, among all users."""
        if label is not None:
            models = {model.label: model for model in self.every}
            if label not in models:
                raise choices("model", label, models, "model")
            return models[label]
        return self.second if self.second is not None and position is not None and position < self.share else self.main


def load_models(main: Path, second: Path | None, share: float, store: Store, *, mapped: bool = False) -> LoadedModels:
    """Read the model folders and apply the stored changes of item columns."""
    first, other = _load(main, main.absolute().name, mapped=mapped), None
    if second is not None:
        label = second.absolute().name
        other = _load(second, label if label != first.label else f"{label}-also", mapped=mapped)
    return with_changes(LoadedModels(first, other, share if other is not None else 0.0), store)


def with_changes(models: LoadedModels, store: Store) -> LoadedModels:
    """Return the models with the changes of item columns that were stored since they were made."""
    last = store.last_change()
    if last == models.main.change:
        return models
    rows = store.changes(after=models.main.change)

    def update(model: LoadedModel) -> LoadedModel:
        if not can_add(model.base) or (model.base.columns_of([item for item, _, _ in rows]) >= 0).all():
            return _changed(model, rows, last)
        every = store.changes()
        bundle = with_new(model.base, _described(model.base, every))
        return _changed(_make(model.label, model.version, model.made, model.base, bundle, last), every, last)

    second = None if models.second is None else update(models.second)
    return replace(models, main=update(models.main), second=second)


def _described(base: Bundle, rows: Sequence[tuple[str, str, Any]]) -> pl.DataFrame:
    """Return the changed columns of items that a model does not have, as a row for each item."""
    known, values = base.columns_of([item for item, _, _ in rows]) >= 0, dict[str, dict[str, Any]]()
    kinds = {name: kind for name, kind in base.items.schema.items() if name not in ("item", COUNT)}
    for (item, name, value), is_known in zip(rows, known.tolist(), strict=True):
        if not is_known and name in kinds and _fits(kinds[name], value):
            values.setdefault(item, {})[name] = value
    columns = {
        name: pl.Series([own.get(name) for own in values.values()], dtype=kind, strict=False)
        for name, kind in kinds.items()
    }
    return pl.DataFrame({"item": pl.Series(list(values), dtype=pl.String), **columns})


def check_change(bundle: Bundle, name: str, value: Any) -> None:
    """Raise unless a column of the item table can hold a value."""
    if name in ("item", COUNT) or name not in bundle.items.columns:
        raise choices("column", name, [own for own in bundle.items.columns if own not in ("item", COUNT)])
    kind = bundle.items.schema[name]
    if not _fits(kind, value):
        kinds = {pl.String: "a text", pl.Boolean: "true or false"}
        wanted = "a number" if kind.is_numeric() else kinds.get(kind.base_type(), f"nothing: {kind} cannot be changed")
        raise InputError(f"Expected {wanted} or null for the column {name}.")


def model_tag(label: str) -> str:
    """Return the six hexadecimal digits that stand for a model's label."""
    return hashlib.blake2b(label.encode(), digest_size=3).hexdigest()


def _load(folder: Path, label: str, *, mapped: bool) -> LoadedModel:
    bundle = Bundle.load(folder, mapped=mapped)
    version = file_digest(folder / CONFIG)[:12]
    return _make(label, version, (folder / CONFIG).stat().st_mtime, bundle, bundle, 0)


def _make(label: str, version: str, made: float, base: Bundle, bundle: Bundle, change: int) -> LoadedModel:
    search = NameSearch([name for _, name in bundle.names], bundle.counts)
    return LoadedModel(label, version, made, base, bundle, ItemFacts(bundle), search, change)


def _changed(model: LoadedModel, rows: Sequence[tuple[str, str, Any]], number: int) -> LoadedModel:
    """Return the model with changed columns, without values that its table cannot hold (those of another model's)."""
    items = model.bundle.items
    by_name: dict[str, dict[int, Any]] = {}
    places = model.bundle.columns_of([item for item, _, _ in rows]).tolist()
    for (_, name, value), place in zip(rows, places, strict=True):
        if place >= 0 and name in items.columns and name not in ("item", COUNT) and _fits(items.schema[name], value):
            by_name.setdefault(name, {})[place] = value
    new = []
    for name, changed in by_name.items():
        values = items[name].to_list()
        for place, value in changed.items():
            values[place] = value
        kind = items.schema[name]
        if kind.is_integer() and any(isinstance(value, float) for value in changed.values()):
            kind = pl.Float64()  # a price of 3 becomes one of 2.5
        new.append(pl.Series(name, values, dtype=kind))
    if not new:
        return replace(model, change=number)
    bundle = model.bundle.with_columns(new)
    if name_column(items) in by_name:
        return _make(model.label, model.version, model.made, model.base, bundle, number)
    return replace(model, bundle=bundle, facts=ItemFacts(bundle), change=number)


def _fits(kind: pl.DataType, value: Any) -> bool:
    if value is None:
        return True
    if isinstance(value, bool):
        return kind == pl.Boolean
    if isinstance(value, str):
        return kind == pl.String
    return kind.is_float() or (kind.is_integer() and -(2**31) <= value < 2**31)
