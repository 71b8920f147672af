"""Update a fitted model: add and change users, add items, and forget users, without a new fit.

The result equals a fit on the rows that remain, with the chosen settings and the mean popularity of the last full fit
(docs/how-to/updates.md). A certificate tests it on random training rows before it is used.
"""

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from scipy.sparse import csr_array

from recfusion.core.arrays import Csr, IntArray, column_counts
from recfusion.core.claims import Claims
from recfusion.core.errors import InputError
from recfusion.core.rng import stream
from recfusion.data.options import Source
from recfusion.data.signals import Extra
from recfusion.inference.bundle import COUNT, Bundle
from recfusion.inference.bundle_files import UpdateRecord
from recfusion.inference.new_items import with_new_of, without_new
from recfusion.inference.training_rows import TrainingRows, without_features
from recfusion.inference.update_rows import (
    HOW,
    NewRows,
    forgotten_ids,
    new_rows,
    read_rows,
    training_of,
    with_item_features,
    with_new_ids,
)
from recfusion.models.mixture_updates import fixed_parts
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


def update(
    bundle: Bundle,
    rows: object = None,
    *,
    forget: Iterable[object] = (),
    replace_histories: bool = False,
    others: Others | None = None,
    source: Source | None = None,
    in_place: bool = False,
) -> Bundle:
    """Return the model after adding rows of new and known users, and after forgetting users.

    `rows` are users with their items, a frame or a file with a row per user and item. They add to the histories of
    known users, or replace them with `replace_histories`. An item that a known user now rates below the threshold or
    returns is removed from that user's history. `forget` are ids of users: the model then equals one that was fitted
    without them. Items that enough users of `rows` have become new items of the model.

    `others` says what happens to parts of a mixture that cannot be updated: "keep" (the default without `forget`),
    "drop" (the default with it) or "retrain". `in_place` saves the memory of a second matrix: it overwrites the weights
    of `bundle`, which cannot be used any more then, also if the update fails.
    """
    training, given = training_of(bundle), bundle
    bundle, names = without_new(given), forgotten_ids(given, forget)
    gone = training.places(training.digests(names))
    if (missing := np.flatnonzero(gone < 0)).size:  # a place in the list, because messages name no user
        raise InputError(
            f"Expected users of the model to forget, got {len(missing):,} of {len(gone):,} that it does not have (the "
            f"first is id {missing[0] + 1:,} of the list): correct or remove these ids; nothing was forgotten.",
            "forget",
        )
    if others == "keep" and len(gone):
        raise InputError("Expected drop or retrain for parts that cannot forget, got keep: choose one.", "others")
    how: Others = others or ("drop" if len(gone) else "keep")
    new = None
    if rows is not None:
        new = new_rows(bundle, read_rows(bundle, rows, source), without=set(names), grows=grows(bundle, how))
    if not len(gone) and (new is None or not new.ids):
        reasons = {} if new is None else new.left_out
        listed = ", ".join(f"{count:,} {reason}" for reason, count in reasons.items()) or "no rows"
        raise InputError(f"Expected rows or users to forget, got nothing to update ({listed}).", "rows")
    for reason, count in ({} if new is None else new.left_out).items():
        log.warning("Left out: %s %s.", f"{count:,} row{'s' * (count != 1)}", reason)
    found = changed_bundle(bundle, new, gone, replaced=replace_histories, others=how, in_place=in_place)
    return with_new_of(found, given)


def changed_bundle(
    bundle: Bundle,
    new: NewRows | None,
    gone: IntArray,
    *,
    replaced: bool = False,
    others: Others = "keep",
    in_place: bool = False,
) -> Bundle:
    """Return the model with new rows and without the training rows `gone`; raise if its certificate fails.

    `bundle` has no items that were added by their features: they are no part of a fit.
    """
    training, updater = training_of(bundle), updater_of(bundle.model)
    assert updater is not None
    if new is None:
        nobody = csr_array((0, len(bundle.items)), dtype=np.float32)
        new = NewRows([], _blank(training.rows.over(len(bundle.items)), 0), nobody, bundle.items["item"].clear(), {})
    places = training.places(training.digests(new.ids))
    change, changed, digests = _change(training, new, places, gone, replaced=replaced)
    items = _items(bundle, new.new_items, change)
    rows = with_item_features(change.rows, items, bundle.recipes.items)
    probes = probe_rows(change.rows.matrix, stream(bundle.seed, "probes"))
    for again in (False, True):  # a correction that is not exact enough is replaced by a new solution
        rng = stream(bundle.seed, f"fit {bundle.name}")
        change = replace(change, rows=rows, others=others, rng=rng, again=again, in_place=in_place)
        model, kept = updater.update(bundle.model, training.kept, change)
        error = updater.error(model, kept, change.rows, probes)
        if error is None or error <= TOLERANCE:
            break
    if error is not None and not error <= TOLERANCE:  # also NaN
        raise InputError(
            f"The update would leave an error of {error:.1e} of the spread of scores, above {TOLERANCE:g}: {HOW}."
        )
    known, (exact, notes) = int(np.count_nonzero(places >= 0)), updater.describe(bundle.model, change)
    record = UpdateRecord(
        day=datetime.now(UTC).date().isoformat(),
        added=len(new.ids) - known,
        changed=known,
        forgotten=len(gone),
        new_items=len(new.new_items),
        error=None if error is None else float(f"{error:.1e}"),
        exact=exact,
        notes=notes,
    )
    users = np.concatenate([np.delete(training.users, changed, axis=0), digests])
    return replace(
        bundle,
        model=model,
        items=items,
        train_users=int(change.rows.matrix.shape[0]),
        training=TrainingRows(users, without_features(change.rows), kept, training.salt),
        updates=joined_records((*bundle.updates, record)),
    )


def grows(bundle: Bundle, others: Others) -> bool:
    """Return whether new items may enter: a part that is kept does not know them."""
    return others != "keep" or not fixed_parts(bundle.model)


class AnotherUpdate(InputError):  # noqa: N818
    """Another process updates the same folder."""


@contextmanager
def updating(out: Path) -> Iterator[None]:
    """Hold the claim on updates of a folder; raise if another process updates it."""
    path = out.absolute()
    path.parent.mkdir(parents=True, exist_ok=True)
    with Claims(path.with_name(f".{path.name}.update")) as claims:
        if not claims.take("update"):
            raise AnotherUpdate(f"Another process is updating '{out}': wait until it ends, then update again.", "out")
        yield


def joined_records(records: Sequence[UpdateRecord]) -> tuple[UpdateRecord, ...]:
    """Return the records with those of one day added up."""
    found: dict[str, UpdateRecord] = {}
    for one in records:
        before = found.get(one.day)
        if before is not None:
            sums = {name: getattr(before, name) + getattr(one, name) for name in UpdateRecord.COUNTS}
            notes = tuple(dict.fromkeys((*before.notes, *one.notes)))
            one = one.model_copy(update=sums | {"exact": one.exact and before.exact, "notes": notes})
        found[one.day] = one
    return tuple(found.values())


def _change(
    training: TrainingRows, new: NewRows, places: IntArray, gone: IntArray, *, replaced: bool
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


def _items(bundle: Bundle, new: pl.Series, change: Change) -> pl.DataFrame:
    """Return the item table with new items and the counts after the update."""
    more = pl.Series(column_counts(change.after.matrix) - column_counts(change.before.matrix))
    table = with_new_ids(bundle.items, new)
    return table.with_columns((pl.col(COUNT) + more).cast(table.schema[COUNT]))
