"""The rows that an update adds to a model: read, joined with its items, and filtered as the preparation would."""

import logging
import time
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from scipy.sparse import csr_array

from recfusion.core.arrays import Csr
from recfusion.core.errors import InputError
from recfusion.data.feature_recipe import Recipe
from recfusion.data.features import features_of
from recfusion.data.interactions import to_columns
from recfusion.data.options import Source
from recfusion.data.reading.formats import ArrowStream, as_frame
from recfusion.data.reading.ids import id_text, parse_ids
from recfusion.data.reading.reader import read_table
from recfusion.data.signals import Extra
from recfusion.inference.bundle import COUNT, Bundle, name_among
from recfusion.inference.histories import read_histories
from recfusion.inference.training_rows import TrainingRows
from recfusion.inference.training_source import source_as_trained
from recfusion.models.updating import UserRows, updater_of

log = logging.getLogger(__name__)
HOW = "train it again with --updatable"


@dataclass(frozen=True)
class NewRows:
    """Rows of users that an update adds, over the items of the model and new ones, and what is left out."""

    ids: list[str]  # of the users
    liked: UserRows  # (users, items)
    removed: Csr  # (users, items): returned or disliked since
    new_items: pl.Series  # ids of the last columns
    left_out: dict[str, int]  # reason -> rows


def forgotten_ids(bundle: Bundle, given: Iterable[object]) -> list[str]:
    """Return the distinct ids of users to forget; a first line with the name of the column of users is skipped."""
    texts = [id_text(one) for one in given]
    if texts and texts[0] == bundle.protocol.read.columns.get("user", "user"):
        del texts[0]
    return list(dict.fromkeys(text for text in texts if text is not None))


def new_rows(
    bundle: Bundle,
    table: pl.DataFrame,
    *,
    without: Set[str] = frozenset(),
    returned: pl.DataFrame | None = None,
    grows: bool = True,
) -> NewRows:
    """Return the rows to add, from a table of user and item; rows that the preparation would have dropped are counted.

    A null item makes a user without new items. `returned` has users of the table and items that they gave back. Without
    `grows`, the model cannot have new items.
    """
    training = training_of(bundle)
    if "times" in bundle.protocol.signals.used and "time" not in table.columns:
        table = table.with_columns(pl.lit(int(time.time())).alias("time"))
    texts = table["user"].cast(pl.String)
    left_out = {"of users to forget": int(texts.is_in(list(without)).sum())} if without else {}
    table = table.filter(~texts.is_in(list(without))) if without else table
    found, wide, entering = read_histories(bundle, table), bundle, bundle.items["item"].clear()
    if found.unknown_rows:
        why = " with too few users" if grows else ", which a part that is kept does not know"
        entering, left_out[f"of new items{why}"] = _new_items(bundle, table, grows=grows)
        wide = replace(bundle, items=with_new_ids(bundle.items, entering))
        found = read_histories(wide, table)
    assert found.users is not None
    users = found.users.cast(pl.String).to_list()
    removed = csr_array(found.matrix.shape, dtype=np.float32) if found.returned is None else found.returned
    if returned is not None:
        removed = csr_array(removed + _pairs(wide, found.users, returned))
    known = training.places(training.digests(users)) >= 0
    lengths = np.diff(found.matrix.indptr)
    named = (lengths > 0) | (np.diff(removed.indptr) > 0)
    stay = np.where(known, named, lengths >= max(1, bundle.protocol.preparation.min_items_per_user))
    left_out["of new users with too few items"] = int(lengths[~stay & ~known].sum())
    left_out["of new users rated below the threshold or returned"] = int(np.diff(removed.indptr)[~known].sum())
    places = np.flatnonzero(stay)
    used = UserRows(found.matrix, found.extra).take(places)
    told = {reason: count for reason, count in left_out.items() if count}
    return NewRows([users[place] for place in places], used, removed[places], entering, told)


def _new_items(bundle: Bundle, table: pl.DataFrame, *, grows: bool) -> tuple[pl.Series, int]:
    """Return the ids of new items with enough users, and the number of rows of the other new items."""
    ids = bundle.items["item"]
    rows = table.filter(pl.Series(to_columns(ids, table["item"]) < 0) & table["item"].is_not_null())
    wanted = pl.lit(grows) & (pl.col("n") >= max(1, bundle.protocol.preparation.min_users_per_item))
    enough = rows.group_by("item").agg(pl.col("user").n_unique().alias("n")).filter(wanted)["item"].sort()
    entering = parse_ids(enough, ids.dtype).alias("item")
    if entering.null_count():
        raise InputError("Expected whole numbers as ids of new items, as the model's items have: name them so.", "item")
    return entering, len(rows) - int(rows["item"].is_in(enough.implode()).sum())


def _pairs(bundle: Bundle, users: pl.Series, table: pl.DataFrame) -> Csr:
    """Return the 0/1 matrix (users, items) of a table's known users and items."""
    rows, columns = to_columns(users, table["user"]), to_columns(bundle.items["item"], table["item"])
    known = (rows >= 0) & (columns >= 0)
    ones = np.ones(int(known.sum()), np.float32)
    found = csr_array((ones, (rows[known], columns[known])), shape=(len(users), len(bundle.items)))
    found.data[:] = 1
    return found


def read_rows(bundle: Bundle, rows: Any, source: Source | None) -> pl.DataFrame:
    """Return rows of user and item, with rating and time if the data had them."""
    protocol = bundle.protocol
    if isinstance(rows, Mapping):
        pairs = [(user, item) for user, items in rows.items() for item in items]
        users, items = ([id_text(pair[side]) for pair in pairs] for side in (0, 1))
        return pl.DataFrame({"user": users, "item": items}, schema={"user": pl.String, "item": pl.String})
    given = source or Source(data="rows")
    reads = {role: None if role in protocol.read.columns else "none" for role in ("rating", "time")}
    if not (bundle.reads_times or "times" in protocol.signals.used):
        reads["time"] = "none"
    asked = {name: value for name, value in reads.items() if getattr(given, name) is None}
    table = as_frame(rows) if isinstance(rows, ArrowStream) and hasattr(rows, "columns") else Path(rows)
    given = source_as_trained(bundle, table, given.model_copy(update=asked))
    if given.rows is not None and (source is None or source.rows is None):
        log.warning("Only rows that meet the condition of the training count: %s", given.rows)
    read = read_table(table, given)
    if bad := read.report.missing + read.report.unparsable:
        log.warning("%d rows without a value or with one that cannot be parsed are left out.", bad)
    return read.rows.drop_nulls(["user", "item"])


def with_new_ids(items: pl.DataFrame, new: pl.Series) -> pl.DataFrame:
    """Return the item table with rows for new items, which have nothing but their id."""
    if new.is_empty():
        return items
    rows = pl.DataFrame({"item": new, COUNT: pl.Series([0] * len(new), dtype=items.schema[COUNT])})
    return pl.concat([items, rows], how="diagonal")


def training_of(bundle: Bundle) -> TrainingRows:
    """Return what updates of a model need; raise if it cannot be updated."""
    if updater_of(bundle.model) is None:
        raise InputError(
            f"Expected a model that can be updated, got {bundle.name}: docs/how-to/updates.md lists them; train it "
            "again on the new data."
        )
    if bundle.training is None:
        raise InputError(f"This model was trained without what updates need: {HOW}.")
    return bundle.training


def described_items(items: pl.DataFrame, recipe: Recipe) -> pl.DataFrame:
    """Return the columns of a model's item table that its features are made of, with their names in the item file."""
    names = {name_among(items.columns, column.name): column.name for column in recipe.columns}
    return items.select(pl.col(own).alias(name) for own, name in names.items() if own in items.columns)


def with_item_features(rows: UserRows, items: pl.DataFrame, recipe: Recipe | None) -> UserRows:
    """Return the rows with the features of the items of a model, if it reads them."""
    if recipe is None:
        return rows
    known = features_of(recipe, described_items(items, recipe))
    return UserRows(rows.matrix, replace(rows.extra or Extra(), item_features=known))
