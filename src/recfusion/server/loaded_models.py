"""The models that a service has at hand, with the changed item columns over them; exchanged in one step."""

import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import polars as pl

from recfusion.core.errors import InputError, choices
from recfusion.core.files import file_digest
from recfusion.data.interactions import name_column
from recfusion.inference.bundle import COUNT, Bundle
from recfusion.inference.bundle_files import CONFIG
from recfusion.inference.name_search import NameSearch
from recfusion.inference.new_items import can_add, with_new
from recfusion.inference.single import ItemFacts
from recfusion.server.event_store import Store


@dataclass(frozen=True)
class Served:
    """A model as it is served."""

    label: str  # what answers call it
    version: str  # changes with every training
    made: float  # when its folder was written, seconds since 1970
    base: Bundle  # as its folder has it
    bundle: Bundle  # with the changed columns, and with new items
    facts: ItemFacts
    search: NameSearch
    change: int  # the last one in the item table

    @property
    def tag(self) -> str:
        """What stands for the label in recommendation ids."""
        return model_tag(self.label)

    @property
    def reads_entries(self) -> bool:
        """Whether the model reads more of a history than which items are in it."""
        return bool({"grades", "times"} & set(self.bundle.protocol.signals.used))


@dataclass(frozen=True)
class Shelf:
    """The models at one moment."""

    main: Served
    also: Served | None = None
    share: float = 0.0  # of the users who get the other one

    @property
    def every(self) -> list[Served]:
        """All models, the main one first."""
        return [self.main] if self.also is None else [self.main, self.also]

    def choose(self, asked: str | None, place: float | None) -> Served:
        """Return the model that was asked for, or the one of a user who stands at `place`, 0 to 1, among all."""
        if asked is not None:
            found = next((one for one in self.every if one.label == asked), None)
            if found is None:
                raise choices("model", asked, [one.label for one in self.every])
            return found
        return self.also if self.also is not None and place is not None and place < self.share else self.main


def load_shelf(main: Path, also: Path | None, share: float, store: Store, *, mapped: bool = False) -> Shelf:
    """Read the model folders; what was changed of items while earlier models were served lies over them."""
    first = _load(main, main.absolute().name, mapped=mapped)
    second = None
    if also is not None:
        label = also.absolute().name
        second = _load(also, label if label != first.label else f"{label}-also", mapped=mapped)
    return updated(Shelf(first, second, share if second is not None else 0.0), store)


def updated(shelf: Shelf, store: Store) -> Shelf:
    """Return the shelf with the changes of item columns that came since it was made."""
    last = store.last_change()
    if last == shelf.main.change:
        return shelf
    rows = store.changes(after=shelf.main.change)

    def now(served: Served) -> Served:
        if not can_add(served.base) or (served.base.columns_of([item for item, _, _ in rows]) >= 0).all():
            return _changed(served, rows, last)
        every = store.changes()
        bundle = with_new(served.base, _described(served.base, every))
        return _changed(_served(served.label, served.version, served.made, served.base, bundle, last), every, last)

    return replace(shelf, main=now(shelf.main), also=None if shelf.also is None else now(shelf.also))


def _described(base: Bundle, rows: Sequence[tuple[str, str, Any]]) -> pl.DataFrame:
    """Return what changes say of items that a model does not have, a row for each, in columns that its table has."""
    known, told = base.columns_of([item for item, _, _ in rows]) >= 0, dict[str, dict[str, Any]]()
    kinds = {name: kind for name, kind in base.items.schema.items() if name not in ("item", COUNT)}
    for (item, name, value), there in zip(rows, known.tolist(), strict=True):
        if not there and name in kinds and _fits(kinds[name], value):
            told.setdefault(item, {})[name] = value
    columns = {
        name: pl.Series([own.get(name) for own in told.values()], dtype=kind, strict=False)
        for name, kind in kinds.items()
    }
    return pl.DataFrame({"item": pl.Series(list(told), dtype=pl.String), **columns})


def check_change(bundle: Bundle, name: str, value: Any) -> None:
    """Raise unless a column of the item table can take a value."""
    if name in ("item", COUNT) or name not in bundle.items.columns:
        raise choices("column", name, [own for own in bundle.items.columns if own not in ("item", COUNT)])
    kind = bundle.items.schema[name]
    if not _fits(kind, value):
        wanted = (
            "a number"
            if kind.is_numeric()
            else {pl.String: "a text", pl.Boolean: "true or false"}.get(kind.base_type())
        )
        raise InputError(f"Expected {wanted or f'nothing: {kind} cannot be changed'} or null for the column {name}.")


def model_tag(label: str) -> str:
    """Return six hexadecimal digits that stand for a model's label."""
    return hashlib.blake2b(label.encode(), digest_size=3).hexdigest()


def _load(folder: Path, label: str, *, mapped: bool) -> Served:
    bundle = Bundle.load(folder, mapped=mapped)
    version = file_digest(folder / CONFIG)[:12]
    return _served(label, version, (folder / CONFIG).stat().st_mtime, bundle, bundle, 0)


def _served(label: str, version: str, made: float, base: Bundle, bundle: Bundle, change: int) -> Served:
    search = NameSearch([name for _, name in bundle.names], bundle.counts)
    return Served(label, version, made, base, bundle, ItemFacts(bundle, hidden=(COUNT,)), search, change)


def _changed(served: Served, rows: Sequence[tuple[str, str, Any]], number: int) -> Served:
    """Return the model with changed columns; values that its table cannot take, as of another model's, are left out."""
    items = served.bundle.items
    by_name: dict[str, dict[int, Any]] = {}
    places = served.bundle.columns_of([item for item, _, _ in rows]).tolist()
    for (_, name, value), place in zip(rows, places, strict=True):
        if place >= 0 and name in items.columns and name not in ("item", COUNT) and _fits(items.schema[name], value):
            by_name.setdefault(name, {})[place] = value
    new = []
    for name, own in by_name.items():
        values = items[name].to_list()
        for place, value in own.items():
            values[place] = value
        kind = items.schema[name]
        if kind.is_integer() and any(isinstance(value, float) for value in own.values()):
            kind = pl.Float64()  # a price of 3 becomes one of 2.5
        new.append(pl.Series(name, values, dtype=kind))
    if not new:
        return replace(served, change=number)
    bundle = served.bundle.with_columns(new)
    search = served.search if name_column(served.bundle.items) not in by_name else None
    if search is None:
        return _served(served.label, served.version, served.made, served.base, bundle, number)
    return replace(served, bundle=bundle, facts=ItemFacts(bundle, hidden=(COUNT,)), change=number)


def _fits(kind: pl.DataType, value: Any) -> bool:
    if value is None:
        return True
    if isinstance(value, bool):
        return kind == pl.Boolean
    if isinstance(value, str):
        return kind == pl.String
    return kind.is_float() or (kind.is_integer() and -(2**31) <= value < 2**31)


def age(served: Served) -> float:
    """Return the seconds since a model's folder was written."""
    return max(0.0, time.time() - served.made)
