"""Reading interactions, or what is known of the items, from a user's own table, file or frame.

Every row that is left out is counted. A row of a text file is one line, but texts of items may go over lines.
"""

import csv
import io
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import polars as pl
import polars.selectors as cs

from recfusion.core.errors import InputError
from recfusion.core.memory import require_memory
from recfusion.data.interactions import RawData, ReadReport
from recfusion.data.options import Source
from recfusion.data.reading.batch_cache import Batch, Faults, Kept
from recfusion.data.reading.columns import guess_columns, listed, unused_ratings
from recfusion.data.reading.formats import Table, open_table, table_errors
from recfusion.data.reading.id_codes import Cells, sorted_places
from recfusion.data.reading.text_lines import BROKEN, EXTRA, TextLayout, line_blocks
from recfusion.data.reading.values import given_cell, is_typed, number_column, parse_rows, remarks, row_flags, time_form
from recfusion.data.rows import check_rows

_log = logging.getLogger(__name__)

_NEEDED = dict.fromkeys(("user", "item"), "a whole number or text in UTF-8 on one line") | {
    "rating": "a number",
    "time": "an ISO date or a number of seconds since 1970",
}
_FAULTS = {"missing": "lacks a value", "unparsable": "cannot be parsed"}
OnRows = Callable[[int], None]


@dataclass(frozen=True)
class Reading:
    """How the rows of a table are read: which column has which role, and how cells become values."""

    table: Table
    columns: dict[str, str]  # role -> column in the table
    notes: tuple[str, ...]
    lone_users: bool
    head: pl.DataFrame  # the first rows as `batches` gives them
    seconds: pl.Expr | None = None  # how times become seconds

    @cached_property
    def cells(self) -> dict[str, Cells]:
        """The cells of the columns of ids that are read as texts, as far as they were read."""
        kinds = self.head.schema
        return {role: Cells() for role in ("user", "item") if not is_typed(role, kinds[role])}

    def batches(self, skip: int = 0) -> Iterator[pl.DataFrame]:
        """Yield the rows as they stand in the table, its columns named by their roles, and EXTRA."""
        for batch in self.table.batches(list(self.columns.values()), skip):
            yield batch.select(*(cs.by_name(column).alias(role) for role, column in self.columns.items()), EXTRA)

    def parse(self, rows: pl.LazyFrame) -> pl.LazyFrame:
        """Return rows of the table, all or some, with their values and flags (see `parse_rows`)."""
        comma = self.table.decimal_comma
        return parse_rows(rows, decimal_comma=comma, lone_users=self.lone_users, seconds=self.seconds)

    def report(self, facts: Mapping[str, int], faults: Faults) -> ReadReport:
        """Return what was read, from the counts of the rows' flags."""
        first = [f"the first row that {_FAULTS[kind]}: {fault}" for kind, (_, fault, _) in sorted(faults.items())]
        return ReadReport(
            rows=facts["rows"],
            columns=self.columns,
            missing=facts["missing"],
            unparsable=facts["unparsable"],
            notes=(*self.notes, *first, *remarks(facts)),
            blank=facts["blank"],
        )


def open_rows(table: Path | pl.DataFrame, source: Source, *, lone_users: bool = False) -> Reading:
    """Return how the interactions of a table are read; columns that `source` does not name by role are guessed."""
    asked = {"user": source.user, "item": source.item, "rating": source.rating, "time": source.time}
    found = open_table(table, source.separator, source.data)
    chosen = guess_columns(found.columns, asked, where=f"'{found.where}'", by_position=not found.named)
    reading = Reading(found, chosen, tuple(_notes(found, asked, chosen)), lone_users, pl.DataFrame())
    with table_errors(found.where):
        head = next((batch.head(1000) for batch in reading.batches()), None)
        if head is None:
            raise _no_rows(found.where)
        _check_kinds(head, chosen, found.where)
        return replace(reading, head=head, seconds=time_form(head.lazy()))


def read_table(
    table: Path | pl.DataFrame,
    source: Source | None = None,
    *,
    lone_users: bool = False,
    coded: bool = False,
    kept: Kept | None = None,
    on_rows: OnRows | None = None,
) -> RawData:
    """Return the interactions of a file or frame; columns that are not named are guessed, and the report says which.

    A row of a text file is one line. Rows that lack a value, and rows that cannot be parsed, are counted and left out;
    more of them than its `max_bad_share` is an error. A rating or time named "none" is not read. With `lone_users` a
    row may name a user and no item: somebody without a history. A frame is called as the `data` of its source. Where
    they are `coded`, ids that were texts are left as places among the sorted ones (see `RawData`). What was `kept` of
    an earlier reading is not read again. `on_rows` is told how many rows are read.
    """
    source = source or Source(data="frame")
    reading = open_rows(table, source, lone_users=lone_users)
    facts: Counter[str] = Counter()
    faults: Faults = {}
    pieces, count = [], 0
    with table_errors(reading.table.where):
        for batch in coded_batches(reading, kept):
            facts.update(batch.facts)
            faults = {**batch.faults, **faults}
            count += batch.count
            check_rows(count, reading.table.where)
            if on_rows is not None:
                on_rows(count)
            pieces.append(batch.rows.with_columns(_narrow(batch.rows)) if coded else batch.rows)
    check_share(reading, facts, faults, source.max_bad_share)
    columns: dict[str, pl.Series] = {}
    ids: dict[str, pl.Series] = {}
    for role in pieces[0].columns:  # one after another, so that one column alone is there in two forms
        kinds = {piece.schema[role] for piece in pieces}  # several where ids of some pieces fit into 32 bits
        kind = pl.Int64 if len(kinds) > 1 else kinds.pop()
        column = pl.concat([piece.drop_in_place(role).cast(kind) for piece in pieces], rechunk=True)
        if role in reading.cells:
            values = reading.cells[role].ids(column)
            if coded:
                values, ids[role] = sorted_places(values)
            column = values.gather(column).alias(role)
        columns[role] = column
    rows = pl.DataFrame(columns)
    name = table.name if isinstance(table, Path) else source.data
    return RawData(name, rows, None, reading.report(facts, faults), ids=ids)


def _narrow(rows: pl.DataFrame) -> list[pl.Series]:
    """Return the ids that are numbers in 32 bits where these suffice: they are the most of what a reading holds."""
    ids = rows.select(cs.by_name("user", "item") & cs.by_dtype(pl.Int64))
    return [column.cast(pl.Int32) for column in ids if column.is_between(-(2**31), 2**31 - 1).all()]


def coded_batches(reading: Reading, kept: Kept | None = None) -> Iterator[Batch]:
    """Yield what comes of each batch, those that were kept first; texts of ids are numbers of their cells."""
    start = before = 0
    for batch in () if kept is None else kept.read():
        coded = {role: cells.add(batch.rows[role]) for role, cells in reading.cells.items()}
        yield replace(batch, rows=batch.rows.with_columns(**coded))
        start, before = start + batch.count, before + 1
    for number, rows in enumerate(reading.batches(before), start=before):
        batch = _read_batch(reading, rows, start)
        if kept is not None:
            meant = {role: cells.values.gather(batch.rows[role]) for role, cells in reading.cells.items()}
            kept.add(number, replace(batch, rows=batch.rows.with_columns(**meant)))
        yield batch
        start, before = start + batch.count, number + 1
    if not before:  # a part of a table
        yield _read_batch(reading, reading.head.clear(), 0)


def _read_batch(reading: Reading, rows: pl.DataFrame, start: int) -> Batch:
    """Return what comes of rows of the table that begin at its row `start`."""
    numbers = {role: cells.add(rows[role]) for role, cells in reading.cells.items()}
    known = [column for role, of in numbers.items() for column in reading.cells[role].columns(role, of)]
    parsed = reading.parse(rows.with_columns(known).lazy())
    flags = row_flags(parsed)
    values = {role: pl.col(f"{role} value") for role in reading.columns}
    done = parsed.select("good", **values, **flags).collect()
    facts = done.select(cs.by_name(*flags).sum()).row(0, named=True)
    facts |= {f"{role} trimmed": reading.cells[role].count_trimmed(of) for role, of in numbers.items()}
    good = (done if done["good"].all() else done.filter("good")).select(*reading.columns)
    return Batch(good, len(done), facts, _faults_in(reading, rows, done, start))


def read_items(
    table: Path | pl.DataFrame,
    item: str | None,
    separator: str | None = None,
    *,
    name: str = "frame of items",
    role: str = "item",
) -> pl.DataFrame:
    """Return a table of items (titles, genres, ...), one row each, with its id column renamed to `item`.

    With the role "user" it is one of users, and their ids are in the column `user`.

    A quoted text may hold line feeds here, as descriptions do; rows that cannot be used are counted in the log.
    """
    found = open_table(table, separator, name)
    where = found.where
    if not found.named:
        raise InputError(f"Expected a header in the {role} file '{where}', got none: add one that names its columns.")
    plain = next((column for column in found.columns if column.lower() == "id"), None)
    try:
        asked = {role: item if item in found.columns else plain}
        column = guess_columns(found.columns, asked, where=f"'{where}'", by_position=False)[role]
    except InputError:
        raise InputError(
            f"Expected a column '{item or role}' with the ids in the {role} file '{where}', which has: "
            f"{listed(found.columns)}; rename the one that holds them."
        ) from None
    with table_errors(where):
        frame = _item_rows(found).rename({role: f"{role}_2", column: role}, strict=False)
        ids = given_cell(role, frame.schema[role])
        items = frame.select(role, pl.exclude(role)).with_columns(ids, (cs.float() - cs.by_name(role)).fill_nan(None))
    if items.is_empty():
        raise InputError(f"Expected a row per {role} in '{where}', got none.")
    described = items.drop_nulls(role).unique(role, keep="first", maintain_order=True)
    if len(described) < len(items):
        counts, one = (len(items) - len(described), len(items)), "an item" if role == "item" else "a user"
        _log.warning("%s of %s rows in '%s' repeat %s or lack its id and are left out.", *counts, where, one)
    if found.layout is None:  # its columns have types of their own
        return described
    return described.with_columns(
        number_column(column, decimal_comma=found.decimal_comma) for column in described.drop(role)
    )


def first_faults(reading: Reading, facts: Mapping[str, int], start: int = 0) -> Faults:
    """Return the first row of each kind of fault that was counted in a table whose rows begin at number `start`."""
    faults: Faults = {}
    for batch in reading.batches():
        if all(kind in faults or not facts[kind] for kind in _FAULTS):
            break
        done = reading.parse(batch.lazy()).select(*_FAULTS).collect()
        faults = {**_faults_in(reading, batch, done, start), **faults}
        start += len(done)
    return faults


def check_share(reading: Reading, facts: Mapping[str, int], faults: Faults, max_bad_share: float) -> None:
    """Raise where too many rows cannot be used, and say what is wrong with the first of them."""
    chosen, where = reading.columns, reading.table.where
    total, missing, unparsable = facts["rows"], facts["missing"], facts["unparsable"]
    if not total:
        raise _no_rows(where)
    if missing + unparsable > max_bad_share * total:
        columns = ", ".join(f"{role} = {name[:60]}" for role, name in chosen.items())
        spare = "".join(f", leave out the {role} (--{role} none)" for role in ("rating", "time") if role in chosen)
        first = "".join(f"; {fault}{there}" for _, fault, there in sorted(faults.values())[:1])
        raise InputError(
            f"Of {total:,} rows in '{where}', {missing:,} lack a value and {unparsable:,} cannot be parsed, which is "
            f"more than the allowed {max_bad_share:.0%}{first}. Check the columns ({columns}){spare}, or raise "
            "--max-bad-share."
        )


def _notes(table: Table, asked: Mapping[str, str | None], chosen: Mapping[str, str]) -> Iterator[str]:
    if table.layout is not None:
        comma = ", commas in ratings read as decimal points" * table.decimal_comma
        yield f"separator {table.layout.separator!r}, {'with' if table.layout.header else 'without'} a header{comma}"
    guessed = [f"{role} = {column}" for role, column in chosen.items() if asked[role] is None]
    if guessed:
        yield f"columns guessed: {', '.join(guessed)}"
    unused = unused_ratings(table.columns, chosen)
    if unused and asked["rating"] is None:
        yield f"not used, though it may hold ratings or counts: {', '.join(unused)} (--rating names the column to use)"


def _check_kinds(head: pl.DataFrame, chosen: Mapping[str, str], where: str) -> None:
    for role, dtype in head.drop(EXTRA).schema.items():
        wrong = dtype.is_nested() or dtype in (pl.Binary, pl.Object, pl.Time, pl.Duration)
        if wrong or (role == "rating" and dtype.is_temporal()) or (role == "time" and dtype == pl.Boolean):
            raise InputError(
                f"Expected {_NEEDED[role]} in each row of the column '{chosen[role]}' in '{where}', got "
                f"{str(dtype)[:60]}: name another column with --{role}."
            )


def _faults_in(reading: Reading, batch: pl.DataFrame, done: pl.DataFrame, start: int) -> Faults:
    """Return the first row of each kind of fault in a batch that begins at row `start`."""
    places = {kind: done[kind].arg_true() for kind in _FAULTS if done[kind].any()}
    return {kind: (start + rows[0], *_fault(reading, batch, rows[0], start)) for kind, rows in places.items()}


def _fault(reading: Reading, batch: pl.DataFrame, place: int, start: int) -> tuple[str, str]:
    row = reading.parse(batch.slice(place, 1).lazy()).collect().row(0, named=True)
    layout, number = reading.table.layout, start + place + 1
    where = f"row {number:,}" if layout is None else f"line {number + layout.skip_lines:,}"
    extra = row[EXTRA]
    if extra is not None and extra.startswith(BROKEN):
        quote = "a double quote that is not closed, or stands inside a quoted field, where a row is one line"
        return f"{where} has {quote}", f": {_short(extra[1:])}"
    if extra is not None:
        return f"{where} has too many fields", f", the first of them {_short(extra)}"
    for role in reading.columns:
        if row[f"{role} given"] is None:
            return f"{where} has no {role}", ""
        if row[f"{role} value"] is None:
            return f"{where} has a {role} that is not {_NEEDED[role]}", f": {_short(row[role])}"
    raise AssertionError(f"{where} has no fault")


def _short(cell: object) -> str:
    text = repr(cell)
    return text if len(text) <= 80 else f"{text[:80]}..."


def _no_rows(where: str) -> InputError:
    return InputError(f"Expected rows of interactions in '{where}', got none below the names of the columns.")


def _item_rows(table: Table) -> pl.DataFrame:
    nothing = pl.DataFrame(schema=dict.fromkeys((*table.columns, EXTRA), pl.String))
    rows = pl.concat(list(table.batches(table.columns)) or [nothing])
    if isinstance(table.source, Path) and table.layout is not None:
        broken = rows[EXTRA].str.starts_with(BROKEN).fill_null(False)
        over_lines = _records(table.source, table.layout) if broken.any() else None
        if over_lines is not None:
            return over_lines
        if broken.any():
            line = table.layout.skip_lines + (broken.arg_max() or 0) + 1
            _log.warning(
                "%s lines of '%s' have double quotes that are not closed, or stand inside a quoted field, and are left "
                "out; the first is line %s.",
                *(broken.sum(), table.where, line),
            )
            rows = rows.filter(~broken)
        longer = rows[EXTRA].count()
        if longer:
            _log.warning("%s rows of '%s' have more fields than its header; those are left out.", longer, table.where)
    return rows.drop(EXTRA)


def _records(path: Path, layout: TextLayout) -> pl.DataFrame | None:
    """Return the rows of a text whose quoted fields go over several lines; None where its quotes do not pair."""
    text = b"".join(line_blocks(path, layout.skip_lines)).decode("utf-8", errors="replace")
    if len(layout.separator) > 1:
        return None
    require_memory(20 * len(text), f"Reading '{path}', whose texts go over lines,", "convert it to Parquet first.")
    lines = io.StringIO(text.replace("\r\n", "\n").replace("\r", " "), newline="")
    width = len(layout.columns)
    try:
        rows = [row for row in csv.reader(lines, delimiter=layout.separator, strict=True) if row]
    except csv.Error:
        return None
    if any(len(row) > width for row in rows):
        return None
    filled = ([cell or None for cell in row] + [None] * (width - len(row)) for row in rows)
    return pl.DataFrame(list(filled), schema=dict.fromkeys(layout.columns, pl.String), orient="row")
