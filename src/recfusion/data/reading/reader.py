"""Reads interactions from a user's own file or frame; every row that is left out is counted."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import polars as pl
import polars.selectors as cs

from recfusion.core.errors import InputError
from recfusion.data.interactions import RawData, ReadReport
from recfusion.data.options import Source
from recfusion.data.reading.batch_cache import Batch, BatchCache, Faults
from recfusion.data.reading.columns import guess_columns, unused_ratings
from recfusion.data.reading.formats import Table, open_table, table_errors
from recfusion.data.reading.id_codes import IdEncoder
from recfusion.data.reading.text_lines import BROKEN, EXTRA_FIELD
from recfusion.data.reading.values import is_typed, parse_rows, row_notes, time_form
from recfusion.data.rows import check_row_count

_NEEDED = dict.fromkeys(("user", "item"), "a whole number or text in UTF-8 on one line") | {
    "rating": "a number",
    "time": "an ISO date or a number of seconds since 1970",
}
_FAULTS = {"missing": "lacks a value", "unparsable": "cannot be parsed"}
OnRows = Callable[[int], None]


@dataclass(frozen=True)
class RowReader:
    """How the rows of a table are read: the role of each column, and how cells become values."""

    table: Table
    columns: dict[str, str]  # role -> column in the table
    notes: tuple[str, ...]
    lone_users: bool
    head: pl.DataFrame  # the first rows as `batches` yields them
    seconds: pl.Expr | None = None  # how times become seconds

    @cached_property
    def encoders(self) -> dict[str, IdEncoder]:
        """The encoders of the id columns that are read as texts."""
        dtypes = self.head.schema
        return {role: IdEncoder() for role in ("user", "item") if not is_typed(role, dtypes[role])}

    def batches(self, skip: int = 0) -> Iterator[pl.DataFrame]:
        """Yield the rows of the table, unparsed, with columns named by role, and EXTRA_FIELD."""
        return map(self._by_role, self.table.batches(list(self.columns.values()), skip))

    def _by_role(self, rows: pl.DataFrame) -> pl.DataFrame:
        return rows.select(*(cs.by_name(column).alias(role) for role, column in self.columns.items()), EXTRA_FIELD)

    def parse(self, rows: pl.DataFrame) -> pl.LazyFrame:
        """Return rows with their values and flags (see `parse_rows`)."""
        comma = self.table.decimal_comma
        return parse_rows(rows.lazy(), decimal_comma=comma, lone_users=self.lone_users, seconds=self.seconds)

    def place(self, row: int) -> str:
        """Return the name of a row, numbered from 0, in messages."""
        layout = self.table.layout
        return f"row {row + 1:,}" if layout is None else f"line {row + 1 + layout.skip_lines:,}"

    def report(self, counts: Mapping[str, int], faults: Faults) -> ReadReport:
        """Return the report of a reading from the counts of the rows' flags."""
        first = [
            f"the first row that {_FAULTS[kind]}: {self.place(row)} {what}"
            for kind, (row, what, _) in sorted(faults.items())
        ]
        rows, missing, unparsable, blank = (counts[name] for name in ("rows", "missing", "unparsable", "blank"))
        return ReadReport(rows, self.columns, missing, unparsable, (*self.notes, *first, *row_notes(counts)), blank)


def open_rows(table: Path | pl.DataFrame, source: Source, *, lone_users: bool = False) -> RowReader:
    """Return the reader of a table of interactions; columns that `source` does not name are guessed."""
    asked = {"user": source.user, "item": source.item, "rating": source.rating, "time": source.time}
    found = open_table(table, source.separator, source.data)
    chosen = guess_columns(found.columns, asked, where=f"'{found.where}'", by_position=not found.has_names)
    reader = RowReader(found, chosen, tuple(_notes(found, asked, chosen)), lone_users, pl.DataFrame())
    with table_errors(found.where):
        head = found.head(list(chosen.values()))
        if head is None:
            raise _no_rows(found.where)
        head = reader._by_role(head)
        _check_dtypes(head, chosen, found.where)
        return replace(reader, head=head, seconds=time_form(head.lazy()))


def read_table(
    table: Path | pl.DataFrame,
    source: Source | None = None,
    *,
    lone_users: bool = False,
    coded: bool = False,
    cache: BatchCache | None = None,
    on_rows: OnRows | None = None,
) -> RawData:
    """Return the interactions of a file or frame; columns that are not named are guessed, and the report says which.

    Rows that lack a value or cannot be parsed are counted and left out; a share above `max_bad_share` is an error. A
    rating or time column named "none" is not read. With `lone_users` a row may have a user and no item: a user without
    a history. A frame is named by the `data` of its source. If `coded`, text ids are returned as codes (see `RawData`).
    Batches in `cache` are not read again. `on_rows` receives the number of rows read so far.
    """
    source = source or Source(data="frame")
    reader = open_rows(table, source, lone_users=lone_users)
    counts: Counter[str] = Counter()
    faults: Faults = {}
    parts, count = [], 0
    with table_errors(reader.table.where):
        for batch in encoded_batches(reader, cache):
            counts.update(batch.counts)
            faults = {**batch.faults, **faults}
            count += batch.size
            check_row_count(count, reader.table.where)
            if on_rows is not None:
                on_rows(count)
            parts.append(batch.rows.with_columns(_narrow(batch.rows)) if coded else batch.rows)
    check_bad_rows(reader, counts, faults, source.max_bad_share)
    columns: dict[str, pl.Series] = {}
    ids: dict[str, pl.Series] = {}
    for role in parts[0].columns:  # one at a time, so that at most one column is in memory twice
        dtypes = {part.schema[role] for part in parts}  # several if the ids of some parts fit into 32 bits
        dtype = pl.Int64 if len(dtypes) > 1 else dtypes.pop()
        column = pl.concat([part.drop_in_place(role).cast(dtype) for part in parts], rechunk=True)
        if role in reader.encoders and coded:
            column, ids[role] = reader.encoders[role].sort_codes(column)
        elif role in reader.encoders:
            column = reader.encoders[role].decode(column)
        columns[role] = column.alias(role)
    name = table.name if isinstance(table, Path) else source.data
    return RawData(name, pl.DataFrame(columns), None, reader.report(counts, faults), ids=ids)


def _narrow(rows: pl.DataFrame) -> list[pl.Series]:
    """Return integer ids as 32 bits if they fit: ids take most of the memory of a reader."""
    ids = rows.select(cs.by_name("user", "item") & cs.by_dtype(pl.Int64))
    return [column.cast(pl.Int32) for column in ids if column.is_between(-(2**31), 2**31 - 1).all()]


def encoded_batches(reader: RowReader, cache: BatchCache | None = None) -> Iterator[Batch]:
    """Yield the parsed batches of a table, cached ones first; text ids are codes of the reader's encoders."""
    start = number = 0
    for batch in () if cache is None else cache.read():
        codes = {role: encoder.encode(batch.rows[role]) for role, encoder in reader.encoders.items()}
        yield replace(batch, rows=batch.rows.with_columns(**codes))
        start, number = start + batch.size, number + 1
    for rows in reader.batches(number):
        batch = _read_batch(reader, rows, start)
        if cache is not None:
            ids = {role: encoder.ids.gather(batch.rows[role]) for role, encoder in reader.encoders.items()}
            cache.add(number, replace(batch, rows=batch.rows.with_columns(**ids)))
        yield batch
        start, number = start + batch.size, number + 1
    if not number:  # an empty part of a table
        yield _read_batch(reader, reader.head.clear(), 0)


def _read_batch(reader: RowReader, rows: pl.DataFrame, start: int) -> Batch:
    """Parse rows of the table that begin at row number `start`."""
    codes = {role: encoder.encode(rows[role]) for role, encoder in reader.encoders.items()}
    encoded = [column for role, of in codes.items() for column in reader.encoders[role].parsed_columns(role, of)]
    values = {role: pl.col(f"{role} value") for role in reader.columns}
    parsed = reader.parse(rows.with_columns(encoded))
    done = parsed.select("good", "blank", *_FAULTS, (~pl.col("blank")).alias("rows"), **values).collect()
    counts = done.select(pl.col("blank", "rows", *_FAULTS).sum()).row(0, named=True)
    counts |= {f"{role} trimmed": reader.encoders[role].count_trimmed(of) for role, of in codes.items()}
    good = (done if done["good"].all() else done.filter("good")).select(*reader.columns)
    return Batch(good, len(done), counts, _faults_in(reader, rows, done, start))


def check_bad_rows(reader: RowReader, counts: Mapping[str, int], faults: Faults, max_bad_share: float) -> None:
    """Raise if too many rows cannot be used, and show the first of them."""
    chosen, where = reader.columns, reader.table.where
    total, missing, unparsable = counts["rows"], counts["missing"], counts["unparsable"]
    if not total:
        raise _no_rows(where)
    if missing + unparsable > max_bad_share * total:
        columns = ", ".join(f"{role} = {name[:60]}" for role, name in chosen.items())
        spare = "".join(f", leave out the {role} (--{role} none)" for role in ("rating", "time") if role in chosen)
        first = "".join(f"; {reader.place(row)} {what}{cell}" for row, what, cell in sorted(faults.values())[:1])
        raise InputError(
            f"Of {total:,} rows in '{where}', {missing:,} lack a value and {unparsable:,} cannot be parsed, which is "
            f"more than the allowed {max_bad_share:.0%}{first}. Check the columns ({columns}){spare}, or raise "
            "--max-bad-share.",
            "max_bad_share",
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


def _check_dtypes(head: pl.DataFrame, chosen: Mapping[str, str], where: str) -> None:
    for role, dtype in head.drop(EXTRA_FIELD).schema.items():
        wrong = dtype.is_nested() or dtype in (pl.Binary, pl.Object, pl.Time, pl.Duration)
        if wrong or (role == "rating" and dtype.is_temporal()) or (role == "time" and dtype == pl.Boolean):
            raise InputError(
                f"Expected {_NEEDED[role]} in each row of the column '{chosen[role]}' in '{where}', got "
                f"{str(dtype)[:60]}: name another column with --{role}.",
                role,
            )


def _faults_in(reader: RowReader, batch: pl.DataFrame, done: pl.DataFrame, start: int) -> Faults:
    """Return the first row of each kind of fault in a batch that begins at row `start`."""
    places = {kind: done[kind].arg_true() for kind in _FAULTS if done[kind].any()}
    return {kind: (start + rows[0], *_fault(reader, batch.slice(rows[0], 1))) for kind, rows in places.items()}


def _fault(reader: RowReader, bad: pl.DataFrame) -> tuple[str, str]:
    row = reader.parse(bad).collect().row(0, named=True)
    extra = row[EXTRA_FIELD]
    if extra is not None and extra.startswith(BROKEN):
        quote = "a double quote that is not closed, or stands inside a quoted field, where a row is one line"
        return f"has {quote}", f": {_short(extra[1:])}"
    if extra is not None:
        return "has too many fields", f", the first of them {_short(extra)}"
    for role in reader.columns:
        if row[f"{role} given"] is None:
            return f"has no {role}", ""
        if row[f"{role} value"] is None:
            return f"has a {role} that is not {_NEEDED[role]}", f": {_short(row[role])}"
    raise AssertionError("the row has no fault")


def _short(cell: object) -> str:
    text = repr(cell)
    return text if len(text) <= 80 else f"{text[:80]}..."


def _no_rows(where: str) -> InputError:
    return InputError(f"Expected rows of interactions in '{where}', got none below the names of the columns.")
