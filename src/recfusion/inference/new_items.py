"""Add new items to a fitted model by their features, without a new fit."""

import logging
import os
import shutil
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from safetensors import safe_open
from safetensors.numpy import save_file

from recfusion.core.errors import InputError
from recfusion.core.files import file_digest, json_text, read_json, replacing_folder
from recfusion.data.interactions import to_columns
from recfusion.data.reading.values import parse_ids
from recfusion.inference import bundle_files as files
from recfusion.inference.bundle import COUNT, Bundle, name_among
from recfusion.models.abilities import AddsItems
from recfusion.models.registry import trusted
from recfusion.models.settings import PARTS, saved_sparse

CARD = "README.md"
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Added:
    """Counts of an addition of items."""

    added: int
    existing: int  # rows with an id that the model has already; these items do not change
    known: int  # values of the feature columns that the model knows
    given: int  # all values of the feature columns
    without: int  # added items without a known feature, which are never recommended on merit
    absent: tuple[str, ...]  # feature columns that the table lacks
    items: int  # number of items of the new model


def add_items(folder: str | Path, table: pl.DataFrame, out: str | Path) -> Added:
    """Write the model of `folder` with the items of a table added to it, as the folder `out`.

    The file of weights is linked; only the map from features to columns is read. Loading the folder checks the weights.
    """
    folder, out = Path(folder), Path(out)
    config = files.read_config(folder, unchecked=files.WEIGHTS)
    recipe, kind = files.read_recipes(folder, config).items, trusted(config.model, config.place, ()).load()
    join = kind.with_added if issubclass(kind, AddsItems) else None
    if recipe is None or join is None:
        raise InputError(
            f"The model {config.model} in '{folder}' knows no features of items: train thinning-features with "
            "--signals features."
        )
    items = pl.read_parquet(folder / files.ITEMS, glob=False)
    fresh, existing = _fresh(items, table)
    if fresh.is_empty():
        raise InputError(
            f"Expected new items, got {existing:,} that the model in '{folder}' has already: nothing to add."
        )
    encoded = recipe.encode(fresh)
    for sentence in recipe.unseen(fresh):
        log.warning(sentence)
    if not encoded.known:
        columns = ", ".join(column.name for column in recipe.columns)
        raise InputError(
            f"Of the new items no feature is known to the model (its features are made of {columns}): describe them in "
            "the same columns."
        )
    latest = folder / (files.ADDED if files.ADDED in config.digests else files.WEIGHTS)  # of the items' features
    with safe_open(folder / files.WEIGHTS, framework="np") as saved, safe_open(latest, framework="np") as features:
        kept = saved_sparse({part: features.get_tensor(f"features_.{part}") for part in PARTS}, "features_")
        arrays = join(saved.get_tensor, encoded.matrix, kept)
    _write(folder, out, _joined(items, fresh), _plain(arrays), len(fresh))
    counts = (encoded.known, encoded.given, encoded.without, encoded.absent)
    return Added(len(fresh), existing, *counts, len(items) + len(fresh))


def can_add(bundle: Bundle) -> bool:
    """Return whether a model can add items by their features."""
    return bundle.recipes.items is not None and isinstance(bundle.model, AddsItems)


def with_new(bundle: Bundle, table: pl.DataFrame) -> Bundle:
    """Return a model with the new items of a table that have a known feature.

    It is `add_items` in memory; the table has the columns of the bundle's item table.
    """
    recipe, adds = bundle.recipes.items, bundle.model if isinstance(bundle.model, AddsItems) else None
    if recipe is None or adds is None or table.is_empty():
        return bundle
    ids = parse_ids(table["item"], bundle.items["item"].dtype)
    fresh = _fresh(bundle.items, table.with_columns(ids.alias("item")).drop_nulls("item"))[0]
    own = {name_among(bundle.items.columns, column.name): column.name for column in recipe.columns}
    encoded = recipe.encode(fresh.rename(own, strict=False)).matrix
    known = np.diff(encoded.indptr) > 0
    if not known.any():
        return bundle
    model = copy(bundle.model)
    for name, array in adds.with_added(partial(getattr, model), encoded[known], getattr(model, "features_")).items():  # noqa: B009
        setattr(model, name, array)
    return replace(bundle, model=model, items=_joined(bundle.items, fresh.filter(pl.Series(known))))


def _write(folder: Path, out: Path, items: pl.DataFrame, arrays: dict[str, NDArray[Any]], count: int) -> None:
    document = read_json(folder / files.CONFIG)
    with replacing_folder(out, files.CONFIG) as fresh:
        try:
            os.link(folder / files.WEIGHTS, fresh / files.WEIGHTS)
        except OSError:  # the file system has no links
            shutil.copyfile(folder / files.WEIGHTS, fresh / files.WEIGHTS)
        for name in (files.PROTOCOL, files.METRICS, files.FEATURES):
            shutil.copyfile(folder / name, fresh / name)
        items.write_parquet(fresh / files.ITEMS)
        save_file(arrays, fresh / files.ADDED)
        shutil.copymode(fresh / files.ITEMS, fresh / files.ADDED)
        if (folder / CARD).is_file():
            card = (folder / CARD).read_text(encoding="utf-8")
            note = f"\n## Items added later\n\n{count:,} items joined after the training, by their features alone.\n"
            (fresh / CARD).write_text(card + note, encoding="utf-8")
        digests = {
            name: file_digest(fresh / name)
            for name in (files.ITEMS, files.PROTOCOL, files.METRICS, files.FEATURES, files.ADDED)
        }
        assert isinstance(document, dict)
        document["digests"] = document["digests"] | digests
        (fresh / files.CONFIG).write_text(json_text(document), encoding="utf-8")


def _fresh(items: pl.DataFrame, table: pl.DataFrame) -> tuple[pl.DataFrame, int]:
    """Return the rows of new items, with ids of the model's type, and the number of the others."""
    ids = items["item"]
    new = to_columns(ids, table["item"]) < 0
    fresh = table.filter(pl.Series(new))
    if ids.dtype.is_integer():
        numbers = parse_ids(fresh["item"], ids.dtype)
        if numbers.null_count():
            wrong = fresh["item"].filter(numbers.is_null())[0]
            raise InputError(f"Expected whole numbers as ids, as the model's items have, got '{wrong}': name them so.")
        fresh = fresh.with_columns(numbers.alias("item"))
    return fresh.unique("item", keep="first", maintain_order=True), int((~new).sum())


def _joined(items: pl.DataFrame, fresh: pl.DataFrame) -> pl.DataFrame:
    """Return the item table with the new rows at its end; values that do not fit a column's type are missing."""
    names = {name: name_among(items.columns, name) for name in fresh.columns}
    rows = fresh.rename(names).with_columns(pl.lit(0).alias(COUNT))
    cells = [
        (pl.col(name).cast(kind, strict=False) if name in rows.columns else pl.lit(None, kind).alias(name))
        for name, kind in items.schema.items()
    ]
    return pl.concat([items, rows.select(cells)])


def _plain(arrays: dict[str, Any]) -> dict[str, NDArray[Any]]:
    """Return the arrays for a file, with the parts of a sparse matrix as arrays of their own."""
    sparse = arrays.pop("features_")
    shape = np.asarray(sparse.shape, np.int64)
    parts = {"data": sparse.data, "indices": sparse.indices, "indptr": sparse.indptr, "shape": shape}
    found = {f"features_.{part}": array for part, array in parts.items()} | arrays
    return {name: np.ascontiguousarray(array) for name, array in found.items()}
