"""Update a fitted model: add and change users, add items, and forget users, without a new fit.

The result equals a fit on the rows that remain, with the chosen settings and the mean popularity of the last full fit
(docs/updates.md). A certificate tests it on random training rows before it is used.
"""

import logging
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from scipy.sparse import csr_array

from recfusion.core.arrays import Csr, IntArray, column_counts
from recfusion.core.claims import Claims
from recfusion.core.errors import InputError
from recfusion.core.rng import RngLike, make_rng
from recfusion.data.interactions import to_columns
from recfusion.data.options import Source
from recfusion.data.reading.formats import ArrowStream, as_frame
from recfusion.data.reading.ids import id_text, parse_ids
from recfusion.data.reading.reader import read_table
from recfusion.data.signals import Extra
from recfusion.inference.bundle import COUNT, Bundle
from recfusion.inference.bundle_files import UpdateRecord
from recfusion.inference.histories import read_histories
from recfusion.inference.training_rows import TrainingRows
from recfusion.models.updating import (
    OF_DISLIKES,
    OF_ENTRIES,
    TOLERANCE,
    Change,
    Others,
    UserRows,
    probe_rows,
    updater_of,
)

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


def update(
    bundle: Bundle,
    rows: object = None,
    *,
    forget: Iterable[object] = (),
    replace_histories: bool = False,
    others: Others | None = None,
    source: Source | None = None,
    rng: RngLike = None,
) -> Bundle:
    """Return the model after adding rows of new and known users, and after forgetting users.

    `rows` are users with their items, a frame or a file with a row per user and item. They add to the histories of
    known users, or replace them with `replace_histories`. An item that a known user now rates below the threshold or
    returns is removed from that user's history. `forget` are ids of users: the model then equals one that was fitted
    without them. Items that enough users of `rows` have become new items of the model.

    `others` says what happens to parts of a mixture that cannot be updated: "keep" (the default without `forget`),
    "drop" (the default with it) or "retrain".
    """
    training, updater = bundle.training, updater_of(bundle.model)
    if updater is None:
        raise InputError(
            f"Expected a model that can be updated, got {bundle.name}: docs/updates.md lists them; train it again on "
            "the new data."
        )
    if training is None:
        raise InputError(f"This model was trained without what updates need: {HOW}.")
    names = forgotten_ids(bundle, forget)
    gone = training.places(training.digests(names))
    if (missing := int(np.count_nonzero(gone < 0))) > 0:
        raise InputError(
            f"Expected users of the model to forget, got {missing:,} of {len(gone):,} that it does not have: "
            "correct the ids; nothing was forgotten.",
            "forget",
        )
    new = new_rows(bundle, training, rows, source, without=set(names))
    if not len(gone) and not new.ids:
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in new.left_out.items()) or "no rows"
        raise InputError(f"Expected rows or users to forget, got nothing to update ({reasons}).", "rows")
    if others == "keep" and len(gone):
        raise InputError("Expected drop or retrain for parts that cannot forget, got keep: choose one.", "others")
    how: Others = others or ("drop" if len(gone) else "keep")
    places = training.places(training.digests(new.ids))
    change, changed, digests = _change(training, new, places, gone, replace_histories)
    generator = make_rng(rng)
    model, kept = updater.update(bundle.model, training.kept, replace(change, others=how, seed=bundle.seed))
    error = updater.error(model, kept, change.rows, probe_rows(change.rows.matrix, generator))
    if not error <= TOLERANCE:  # also NaN
        raise InputError(
            f"The update would leave an error of {error:.1e} of the spread of scores, above {TOLERANCE:g}: {HOW}."
        )
    for reason, count in new.left_out.items():
        log.warning("Left out: %s %s.", f"{count:,} row{'s' * (count != 1)}", reason)
    known = int(np.count_nonzero(places >= 0))
    record = UpdateRecord(
        day=datetime.now(UTC).date().isoformat(),
        added=len(new.ids) - known,
        changed=known,
        forgotten=len(gone),
        new_items=len(new.new_items),
        error=float(f"{error:.1e}"),
        exact=updater.exact,
    )
    users = np.concatenate([np.delete(training.users, changed, axis=0), digests])
    return replace(
        bundle,
        model=model,
        items=_items(bundle, new.new_items, column_counts(change.rows.matrix)),
        train_users=int(change.rows.matrix.shape[0]),
        training=TrainingRows(users, change.rows, kept, training.salt),
        updates=joined_records((*bundle.updates, record)),
    )


@contextmanager
def updating(out: Path) -> Iterator[None]:
    """Hold the claim on updates of a folder; raise if another process updates it."""
    path = out.absolute()
    path.parent.mkdir(parents=True, exist_ok=True)
    with Claims(path.with_name(f".{path.name}.update")) as claims:
        if not claims.take("update"):
            raise InputError(f"Another process is updating '{out}': wait until it ends, then update again.", "out")
        yield


def joined_records(records: Sequence[UpdateRecord]) -> tuple[UpdateRecord, ...]:
    """Return the records with those of one day added up."""
    found: dict[str, UpdateRecord] = {}
    for one in records:
        before = found.get(one.day)
        if before is not None:
            sums = {name: getattr(before, name) + getattr(one, name) for name in UpdateRecord.COUNTS}
            one = one.model_copy(update=sums | {"exact": one.exact and before.exact})
        found[one.day] = one
    return tuple(found.values())


def forgotten_ids(bundle: Bundle, given: Iterable[object]) -> list[str]:
    """Return the distinct ids of users to forget; a first line with the name of the column of users is skipped."""
    texts = [id_text(one) for one in given]
    if texts and texts[0] == bundle.protocol.read.columns.get("user", "user"):
        del texts[0]
    return list(dict.fromkeys(text for text in texts if text is not None))


def new_rows(bundle: Bundle, training: TrainingRows, rows: object, source: Source | None, without: set[str]) -> NewRows:
    """Return the rows to add; rows that the preparation would have dropped are left out and counted."""
    n_items = len(bundle.items)
    if rows is None:
        nobody = csr_array((0, n_items), dtype=np.float32)
        return NewRows([], _blank(training.rows, 0), nobody, bundle.items["item"].clear(), {})
    table = _read(bundle, rows, source).drop_nulls(["user", "item"])
    if "times" in bundle.protocol.signals.used and "time" not in table.columns:
        table = table.with_columns(pl.lit(int(time.time())).alias("time"))
    texts = table["user"].cast(pl.String)
    left_out = {"of users to forget": int(texts.is_in(list(without)).sum())} if without else {}
    table = table.filter(~texts.is_in(list(without))) if without else table
    preparation, ids = bundle.protocol.preparation, bundle.items["item"]
    of_new = table.filter(pl.Series(to_columns(ids, table["item"]) < 0))
    counts = of_new.group_by("item").agg(pl.col("user").n_unique().alias("n"))
    enough = counts.filter(pl.col("n") >= max(1, preparation.min_users_per_item))["item"].sort()
    entering = parse_ids(enough, ids.dtype).alias("item")
    if entering.null_count():
        raise InputError("Expected whole numbers as ids of new items, as the model's items have: name them so.", "item")
    wide = replace(bundle, items=_with_new(bundle.items, entering))
    left_out["of new items with too few users"] = len(of_new) - int(of_new["item"].is_in(enough.implode()).sum())
    found = read_histories(wide, table)
    assert found.users is not None
    users = found.users.cast(pl.String).to_list()
    removed = csr_array(found.matrix.shape, dtype=np.float32) if found.returned is None else found.returned
    known = training.places(training.digests(users)) >= 0
    lengths = np.diff(found.matrix.indptr)
    named = (lengths > 0) | (np.diff(removed.indptr) > 0)
    stay = np.where(known, named, lengths >= max(1, preparation.min_items_per_user))
    left_out["of new users with too few items"] = int(lengths[~stay & ~known].sum())
    left_out["of new users rated below the threshold or returned"] = int(np.diff(removed.indptr)[~known].sum())
    places = np.flatnonzero(stay)
    used = UserRows(found.matrix, found.extra).take(places)
    told = {reason: count for reason, count in left_out.items() if count}
    return NewRows([users[place] for place in places], used, removed[places], entering, told)


def _read(bundle: Bundle, rows: Any, source: Source | None) -> pl.DataFrame:
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
    given = given.model_copy(update=asked | {"date_format": given.date_format or protocol.source.date_format})
    table = as_frame(rows) if isinstance(rows, ArrowStream) and hasattr(rows, "columns") else Path(rows)
    read = read_table(table, given)
    if bad := read.report.missing + read.report.unparsable:
        log.warning("%d rows without a value or with one that cannot be parsed are left out.", bad)
    return read.rows


def _change(
    training: TrainingRows, new: NewRows, places: IntArray, gone: IntArray, replaced: bool
) -> tuple[Change, IntArray, Any]:
    """Return the change of rows, the rows that it removes, and the digests of the rows that it appends."""
    n_items = new.liked.matrix.shape[1]
    old, known = training.rows.over(n_items), np.flatnonzero(places >= 0)
    before_known, fresh = old.take(places[known]), np.flatnonzero(places < 0)
    merged = new.liked.take(known) if replaced else _merged(before_known, new.liked.take(known), new.removed[known])
    order = np.concatenate([known, fresh])
    after = merged.followed_by(new.liked.take(fresh)).followed_by(_blank(old, len(gone)))
    before = before_known.followed_by(_blank(old, len(fresh))).followed_by(old.take(gone))
    changed = np.concatenate([places[known], gone])
    there = np.flatnonzero(np.diff(after.matrix.indptr))
    digests = training.digests([*(new.ids[place] for place in order), *[""] * len(gone)])[there]
    return Change(before, after, old.replaced(changed, after)), changed, digests


def _blank(like: UserRows, n_rows: int) -> UserRows:
    """Return empty rows with the same signals."""
    extra = like.extra
    names = [] if extra is None else [n for n in (*OF_ENTRIES, *OF_DISLIKES) if getattr(extra, n) is not None]
    shape = (n_rows, like.matrix.shape[1])
    blank = {name: csr_array(shape, dtype=getattr(extra, name).dtype) for name in names}
    return UserRows(csr_array(shape, dtype=np.float32), None if extra is None else Extra(**blank))


def _merged(old: UserRows, new: UserRows, removed: Csr) -> UserRows:
    """Return each user's old entries, replaced or removed by the new ones, and the new entries."""
    n_users, n_items = old.matrix.shape

    def join(old: Csr, new: Csr, gone: Csr) -> Csr:
        keys, fresh, lost = (_keys(matrix) for matrix in (old, new, gone))
        stay = ~np.isin(keys, np.concatenate([fresh, lost]))
        every, values = np.concatenate([keys[stay], fresh]), np.concatenate([old.data[stay], new.data])
        order = np.argsort(every, kind="stable")
        indptr = np.concatenate([[0], np.cumsum(np.bincount(every // n_items, minlength=n_users))])
        index = np.int32 if len(every) < 2**31 else np.int64
        parts = (values[order], (every[order] % n_items).astype(index), indptr.astype(index))
        return csr_array(parts, shape=(n_users, n_items))

    matrix = join(old.matrix, new.matrix, removed)
    if old.extra is None or new.extra is None:
        return UserRows(matrix)
    found: dict[str, Csr] = {}
    for names, gone in ((OF_ENTRIES, removed), (OF_DISLIKES, new.matrix)):
        for name in names:
            if getattr(old.extra, name) is not None:
                found[name] = join(getattr(old.extra, name), getattr(new.extra, name), gone)
    return UserRows(matrix, Extra(**found))


def _keys(matrix: Csr) -> IntArray:
    """Return user * items + item of each stored entry."""
    rows = np.repeat(np.arange(matrix.shape[0], dtype=np.int64), np.diff(matrix.indptr))
    return np.asarray(rows * matrix.shape[1] + matrix.indices)


def _with_new(items: pl.DataFrame, new: pl.Series) -> pl.DataFrame:
    """Return the item table with rows for new items, which have nothing but their id."""
    if new.is_empty():
        return items
    rows = pl.DataFrame({"item": new, COUNT: pl.Series([0] * len(new), dtype=items.schema[COUNT])})
    return pl.concat([items, rows], how="diagonal")


def _items(bundle: Bundle, new: pl.Series, counts: IntArray) -> pl.DataFrame:
    """Return the item table with new items and the counts after the update."""
    table = _with_new(bundle.items, new)
    return table.with_columns(pl.Series(COUNT, counts).cast(table.schema[COUNT]))
