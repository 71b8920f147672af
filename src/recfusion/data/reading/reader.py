"""Reads interactions from a user's own file or frame; every row that is left out is counted."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import polars.selectors as cs

from recfusion.core.errors import InputError
from recfusion.data.interactions import RawData
from recfusion.data.options import Source
from recfusion.data.reading.batch_cache import Batch, BatchCache, Faults
from recfusion.data.reading.database import FetchedRows
from recfusion.data.reading.formats import table_errors
from recfusion.data.reading.row_reader import FIELDS, MISSING, NEEDED, QUOTE, RowReader, no_rows, open_rows, short_text
from recfusion.data.reading.text_lines import BROKEN, EXTRA_FIELD
from recfusion.data.rows import check_row_count

OnRows = Callable[[int], None]


def read_table(
    table: Path | pl.DataFrame | FetchedRows | Sequence[Path],
    source: Source | None = None,
    *,
    lone_users: bool = False,
    coded: bool = False,
    cache: BatchCache | None = None,
    on_rows: OnRows | None = None,
    parts_of_files: Sequence[int] = (),
) -> RawData:
    """Return the interactions of a file, files, a frame or a query; the report names the columns that are guessed.

    Rows that lack a value or cannot be parsed are counted and left out; a share above `max_bad_share` is an error. A
    rating or time column named "none" is not read. With `lone_users` a row may have a user and no item: a user without
    a history. A frame is named by the `data` of its source. If `coded`, text ids are returned as codes (see `RawData`).
    Batches in `cache` are not read again. `on_rows` receives the number of rows read so far. If `parts_of_files` has
    the part of each file in a given split, the rows have a column `part`.
    """
    source = source or Source(data="frame")
    one = [table] if isinstance(table, Path | pl.DataFrame | FetchedRows) else table
    readers = _open_alike(one, source, lone_users=lone_users)
    reader, encoders = _whole(readers, source), readers[0].encoders
    counts: Counter[str] = Counter()
    faults: Faults = {}
    parts, count = [], 0
    with table_errors(reader.table.where):
        for batch in _of_all(readers, parts_of_files) if readers[1:] else encoded_batches(reader, cache):
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
        if role in encoders and coded:
            column, ids[role] = encoders[role].sort_codes(column)
        elif role in encoders:
            column = encoders[role].decode(column)
        columns[role] = column.alias(role)
    name = table.name if isinstance(table, Path) else Path(source.data).name if readers[1:] else source.data
    rows, notes = _with_all_times(pl.DataFrame(columns))
    report = reader.report(counts, faults)
    return RawData(name, rows, None, replace(report, notes=(*report.notes, *notes)), ids=ids)


def _with_all_times(rows: pl.DataFrame) -> tuple[pl.DataFrame, list[str]]:
    """Give rows without a time that of their user's oldest row, or the oldest of all, and return a note."""
    lacking = rows["time"].null_count() if "time" in rows.columns else 0
    if not lacking:
        return rows, []
    if lacking == rows.height:
        return rows.drop("time"), ["no row has a time: times are not used"]
    told = f"{lacking:,} of {rows.height:,} rows have no time: they count as old as the oldest row of their user"
    time = pl.col("time")
    return rows.with_columns(time.fill_null(time.min().over("user")).fill_null(time.min())), [told]


def _open_alike(
    tables: Sequence[Path | pl.DataFrame | FetchedRows], source: Source, *, lone_users: bool
) -> list[RowReader]:
    """Return the readers of tables with the same roles, which share the codes of ids."""
    # Histories must have times for all items or none; in data, rows without a time are kept.
    opened = (open_rows(table, source, lone_users=lone_users) for table in tables)
    first, *others = (replace(reader, untimed=not lone_users) for reader in opened)
    for other in others:
        if (*other.columns, *other.encoders) != (*first.columns, *first.encoders):
            one, two = (", ".join(f"{role} = {name}" for role, name in r.columns.items()) for r in (first, other))
            raise InputError(
                f"Expected the same kinds of columns in '{first.table.where}' ({one}) and '{other.table.where}' "
                f"({two}): name them with --user, --item, --rating and --time, or convert one of the files.",
                "data",
            )
        vars(other)["encoders"] = first.encoders
    return [first, *others]


def _whole(readers: Sequence[RowReader], source: Source) -> RowReader:
    """Return the reader that stands for all tables in messages and in the report."""
    first, *others = readers
    if not others:
        return first
    notes = dict.fromkeys(note for reader in readers for note in reader.notes)
    blank = sum(reader.table.blank_lines for reader in readers)
    table = replace(first.table, where=source.data, blank_lines=blank)
    return replace(first, table=table, notes=(f"{len(readers):,} files", *notes))


def _of_all(readers: Sequence[RowReader], parts_of_files: Sequence[int]) -> Iterator[Batch]:
    """Yield the batches of several tables, with the name of its file in each fault."""
    for place, part in enumerate(readers):
        file, offset = f" in '{Path(part.table.where).name}'", part.line_offset - readers[0].line_offset
        of_split = [pl.lit(parts_of_files[place], pl.Int8).alias("part")] if parts_of_files else []
        for batch in encoded_batches(part):
            rows = batch.rows.with_columns(of_split)
            yield replace(
                batch,
                rows=rows,
                faults={k: (row + offset, what + file, cell) for k, (row, what, cell) in batch.faults.items()},
            )


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
    flags = ("blank", "filtered", "missing", "unparsable")
    done = parsed.select("good", *flags, (~pl.col("blank")).alias("rows"), **values).collect()
    counts = done.select(pl.col("rows", *flags).sum()).row(0, named=True)
    counts |= {f"{role} trimmed": reader.encoders[role].count_trimmed(of) for role, of in codes.items()}
    good = (done if done["good"].all() else done.filter("good")).select(*reader.columns)
    bad = rows.with_row_index("row", start).filter(done["missing"] | done["unparsable"])
    faults = _faults_in(reader, bad) if len(bad) else {}
    return Batch(
        good, len(done), counts | {kind: n for kind, (n, _) in faults.items()}, {k: f for k, (_, f) in faults.items()}
    )


def check_bad_rows(reader: RowReader, counts: Mapping[str, int], faults: Faults, max_bad_share: float) -> None:
    """Raise if too many rows cannot be used, and show the first of them."""
    chosen, where = reader.columns, reader.table.where
    total, missing, unparsable = counts["rows"], counts["missing"], counts["unparsable"]
    if not total:
        raise no_rows(where)
    if counts.get("filtered") == total:
        raise InputError(
            f"Expected some of the {total:,} rows in '{where}' to meet --rows, got none: change it.", "rows"
        )
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


def _faults_in(reader: RowReader, bad: pl.DataFrame) -> dict[str, tuple[int, tuple[int, str, str]]]:
    """Return kind -> number of such rows, and the first of them; `bad` has the number of each row as `row`."""
    extra = pl.col(EXTRA_FIELD)
    tests = {QUOTE: extra.str.starts_with(BROKEN), FIELDS: extra.is_not_null()}
    for role in reader.columns:
        tests |= {f"{MISSING}{role}": pl.col(f"{role} given").is_null(), role: pl.col(f"{role} value").is_null()}
    kind = pl.coalesce(pl.when(test).then(pl.lit(name)) for name, test in tests.items())
    parsed = reader.parse(bad).with_columns(kind=kind).collect()
    counts = dict(parsed["kind"].value_counts().iter_rows())
    firsts = parsed.unique("kind", keep="first", maintain_order=True).iter_rows(named=True)
    return {row["kind"]: (counts[row["kind"]], (row["row"], *_fault(row))) for row in firsts}


def _fault(row: Mapping[str, Any]) -> tuple[str, str]:
    """Return what is wrong with a row, and its cell."""
    kind, extra = row["kind"], row[EXTRA_FIELD]
    if kind == QUOTE:
        quote = "a double quote that is not closed, or stands inside a quoted field, where a row is one line"
        return f"has {quote}", f": {short_text(extra[1:])}"
    if kind == FIELDS:
        return "has too many fields", f", the first of them {short_text(extra)}"
    if kind.startswith(MISSING):
        return f"has {kind}", ""
    return f"has a {kind} that is not {NEEDED[kind]}", f": {short_text(row[kind])}"
