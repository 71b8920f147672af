"""The loaded models and histories of a service, with changed item columns applied; they are replaced in one step."""

import hashlib
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from recfusion.core.errors import InputError, choices
from recfusion.core.files import file_digest
from recfusion.inference.bundle import COUNT, Bundle
from recfusion.inference.bundle_files import CONFIG
from recfusion.inference.name_search import NameSearch
from recfusion.inference.new_items import can_add, with_new
from recfusion.server.column_values import changed_column, expected_value, fits
from recfusion.server.config import Settings
from recfusion.server.event_store import Change, Store
from recfusion.server.file_states import file_states
from recfusion.server.known_users import NOBODY, KnownUsers, histories_files
from recfusion.server.placements import check_placements, current_placements


class ItemFacts:
    """Id, name and columns of each item as JSON values, read once from the item table."""

    def __init__(self, bundle: Bundle) -> None:
        self._names, self._users = bundle.names, bundle.counts.tolist()
        columns = [name for name in bundle.items.columns if name not in ("item", COUNT)]
        self._columns = {name: json_values(bundle.items[name].to_list()) for name in columns}

    def of(self, column: int) -> dict[str, Any]:
        item, name = self._names[column]
        columns = {key: values[column] for key, values in self._columns.items()}
        return {"item": item, "name": name, "users": self._users[column], "columns": columns}


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
    described: float  # when its item table was made: older changes of its items are ignored
    base: Bundle  # as in its folder
    bundle: Bundle  # with changed columns and new items
    facts: ItemFacts
    search: NameSearch
    change: int = 0  # number of the last applied change of the item table
    misfits: tuple[str, ...] = ()  # columns with stored changes that their type cannot hold; the changes are ignored

    @property
    def age(self) -> float:
        """Seconds since the model's folder was written."""
        return max(0.0, time.time() - self.made)


@dataclass(frozen=True)
class LoadedModels:
    """The loaded models and user histories at one moment."""

    every: tuple[LoadedModel, ...]  # the main one first
    share: float = 0.0  # of the users who get the second model
    known: KnownUsers = NOBODY  # of the histories file
    generation: str = ""  # changes with any of the files

    @property
    def main(self) -> LoadedModel:
        return self.every[0]

    def choose(self, label: str | None, position: float | None = None) -> LoadedModel:
        """Return the model with this label, or the one for a user at this position, 0 to 1, among all users."""
        if label is None:
            return self.every[1] if position is not None and position < self.share else self.main
        models = {model.label: model for model in self.every}
        if label not in models:
            raise choices("model", label, models, "model")
        return models[label]


def load_served(given: Settings) -> LoadedModels:
    """Read the model folders and histories of a service, and apply the stored changes of item columns."""
    folders = [folder for folder in (given.folder, given.also, *given.models) if folder is not None]
    labels = [folder.absolute().name for folder in folders]
    if given.also is not None and labels[1] == labels[0]:
        labels[1] += "-also"
    if len(set(labels)) < len(labels):
        raise InputError(f"Expected model folders with different names, got {', '.join(labels)}: rename one.", "models")
    files = file_states(histories_files(given.histories))
    mapped = given.workers > 1
    every = tuple(_load(folder, label, mapped=mapped) for folder, label in zip(folders, labels, strict=True))
    known = KnownUsers.read(given.histories, every[0].bundle)
    if file_states(histories_files(given.histories)) != files:
        raise InputError("The histories file changed while it was read: load it again.", "histories")
    versions = [*(one.version for one in every), *map(str, files)]
    generation = hashlib.blake2b("\n".join(versions).encode(), digest_size=8).hexdigest()
    share = 0.0 if given.also is None else given.also_share
    with closing(Store(given.events)) as store:  # a connection belongs to one thread
        found = with_changes(LoadedModels(every, share, known, generation), store)
        placements, _ = current_placements(store, given.placements)
    check_placements(placements, {model.label: model.bundle for model in found.every})
    return found


def with_changes(models: LoadedModels, store: Store) -> LoadedModels:
    """Return the models with the changes of item columns that were stored since they were made."""
    last = store.last_change()
    if last == models.main.change:
        return models
    if models.main.change < store.last_clear():
        models = replace(models, every=tuple(_with_items(one, one.base) for one in models.every))
    return apply_changes(models, store.changes(after=models.main.change), store.changes, last)


def apply_changes(
    models: LoadedModels, rows: Sequence[Change], stored: Callable[[], Sequence[Change]], number: int
) -> LoadedModels:
    """Return the models with some more changes; `stored` returns all of them, also those applied before."""

    def update(model: LoadedModel) -> LoadedModel:
        if not can_add(model.base) or (model.base.columns_of([row.item for row in rows]) >= 0).all():
            return _changed(model, rows, number)
        bundle = with_new(model.base, _described(model.base, stored()))
        return _changed(_with_items(model, bundle), stored(), number)

    return replace(models, every=tuple(map(update, models.every)))


def _described(base: Bundle, rows: Sequence[Change]) -> pl.DataFrame:
    """Return the changed columns of items that a model does not have, as a row for each item."""
    known, values = base.columns_of([row.item for row in rows]) >= 0, dict[str, dict[str, Any]]()
    kinds = {name: kind for name, kind in base.items.schema.items() if name not in ("item", COUNT)}
    for row, is_known in zip(rows, known.tolist(), strict=True):
        if not is_known and row.name in kinds and fits(kinds[row.name], row.value):
            values.setdefault(row.item, {})[row.name] = row.value
    columns = {
        name: pl.Series([own.get(name) for own in values.values()], dtype=kind, strict=False)
        for name, kind in kinds.items()
    }
    return pl.DataFrame({"item": pl.Series(list(values), dtype=pl.String), **columns})


def check_change(bundle: Bundle, name: str, value: Any) -> None:
    """Raise unless a column of the item table can hold a value; `bundle` is as in its folder."""
    if name in ("item", COUNT) or name not in bundle.items.columns:
        raise choices("column", name, [own for own in bundle.items.columns if own not in ("item", COUNT)])
    kind = bundle.items.schema[name]
    if not fits(kind, value):
        raise InputError(f"Expected {expected_value(kind)} or null for the column {name}.")


def model_tag(label: str) -> str:
    """Return the six hexadecimal digits that stand for a model's label."""
    return hashlib.blake2b(label.encode(), digest_size=3).hexdigest()


def _load(folder: Path, label: str, *, mapped: bool) -> LoadedModel:
    version = file_digest(folder / CONFIG)[:12]
    bundle = Bundle.load(folder, mapped=mapped)
    if file_digest(folder / CONFIG)[:12] != version:
        raise InputError(f"The model folder '{folder}' changed while it was read: load it again.")
    made = (folder / CONFIG).stat().st_mtime
    described = made if bundle.items_time is None else bundle.items_time
    return LoadedModel(label, version, made, described, bundle, bundle, ItemFacts(bundle), _search(bundle))


def _search(bundle: Bundle) -> NameSearch:
    return NameSearch([name for _, name in bundle.names], bundle.counts)


def _with_items(model: LoadedModel, bundle: Bundle) -> LoadedModel:
    """Return the model with another item table, to which no change was applied."""
    return replace(model, bundle=bundle, facts=ItemFacts(bundle), search=_search(bundle), change=0, misfits=())


def _changed(model: LoadedModel, rows: Sequence[Change], number: int) -> LoadedModel:
    """Return the model with changed columns.

    Changes that are older than the model's item table are left out, unless its table lacks the item. So are values that
    a column cannot hold: `misfits` names these columns.
    """
    items = model.bundle.items
    by_name: dict[str, dict[int, Any]] = {}
    misfits = set(model.misfits)
    places = model.bundle.columns_of([row.item for row in rows]).tolist()
    for row, place in zip(rows, places, strict=True):
        if place < 0 or row.name not in items.columns or row.name in ("item", COUNT):
            continue
        if not fits(model.base.items.schema[row.name], row.value):
            misfits.add(row.name)
        elif row.time >= model.described or place >= len(model.base.items):
            by_name.setdefault(row.name, {})[place] = row.value
    model = replace(model, change=number, misfits=tuple(sorted(misfits)))
    if not by_name:
        return model
    bundle = model.bundle.with_columns([changed_column(items[name], by_name[name]) for name in by_name])
    search = _search(bundle) if bundle.roles.get("title") in by_name else model.search
    return replace(model, bundle=bundle, facts=ItemFacts(bundle), search=search)
