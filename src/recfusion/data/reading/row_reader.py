"""Decides how the rows of a table are read: the role of each column, and the form of its numbers and times."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import polars as pl
import polars.selectors as cs

from recfusion.core.errors import InputError
from recfusion.data.interactions import ReadReport
from recfusion.data.options import Source
from recfusion.data.reading.batch_cache import Faults
from recfusion.data.reading.cells import given_text, is_typed, with_given
from recfusion.data.reading.columns import DOUBTFUL_WORDS, ROLES, guess_columns, unused_ratings, words_of
from recfusion.data.reading.database import FetchedRows
from recfusion.data.reading.formats import open_table, table_errors
from recfusion.data.reading.id_codes import IdEncoder
from recfusion.data.reading.numbers import number_form
from recfusion.data.reading.row_filter import RowFilter
from recfusion.data.reading.table import Table
from recfusion.data.reading.text_lines import EXTRA_FIELD
from recfusion.data.reading.times import TimeForm, find_form
from recfusion.data.reading.values import parse_rows, row_notes

NEEDED = dict.fromkeys(
    ("user", "item"), "a whole number (as a float: below 2^53) or a text on one line, in the encoding of the file"
) | {
    "rating": "a number",
    "time": "a date or time in the form of the column",
}
# Kinds of faults of a row, with what to do; the others are roles with a cell that is not NEEDED.
QUOTE, FIELDS, MISSING = "quote", "fields", "no "
_REMEDIES = {
    QUOTE: "double the quote or remove it",
    FIELDS: "quote the cells that hold the separator",
    **{f"{MISSING}{role}": "fill in the cell" for role in ROLES},
    **{role: f"correct the cell or name another column with --{role}" for role in ROLES},
    "time": "correct the cell or name the form with --date-format",
}
_PRIVATE = {QUOTE, FIELDS, "user"}  # kinds with cells that may hold user ids, which are on no card


@dataclass(frozen=True)
class RowReader:
    """How the rows of a table are read: the role of each column, and how cells become values."""

    table: Table
    columns: dict[str, str]  # role -> column in the table
    notes: tuple[str, ...]
    lone_users: bool
    head: pl.DataFrame  # the first rows as `batches` yields them
    number: pl.Expr | None = None  # how ratings become numbers, if they are texts
    seconds: pl.Expr | None = None  # how times become seconds
    kept: RowFilter | None = None  # which rows are read
    untimed: bool = False  # rows may lack their times

    @cached_property
    def encoders(self) -> dict[str, IdEncoder]:
        """The encoders of the id columns that are read as texts."""
        dtypes = self.head.schema
        return {role: IdEncoder() for role in ("user", "item") if not is_typed(role, dtypes[role])}

    def batches(self, skip: int = 0) -> Iterator[pl.DataFrame]:
        """Yield the rows of the table, unparsed, with columns named by role, and EXTRA_FIELD."""
        wanted = dict.fromkeys((*self.columns.values(), *(self.kept.cells if self.kept else ())))
        return map(self._by_role, self.table.batches(list(wanted), skip))

    def _by_role(self, rows: pl.DataFrame) -> pl.DataFrame:
        by_role = (cs.by_name(column).alias(role) for role, column in self.columns.items())
        return rows.select(*by_role, EXTRA_FIELD, *([] if self.kept is None else [self.kept.met(rows)]))

    def parse(self, rows: pl.DataFrame) -> pl.LazyFrame:
        """Return rows with their values and flags (see `parse_rows`)."""
        how = {"number": self.number, "seconds": self.seconds}
        return parse_rows(rows.lazy(), lone_users=self.lone_users, untimed=self.untimed, **how)

    @property
    def line_offset(self) -> int:
        """The number of lines above the first row."""
        return 0 if self.table.layout is None else self.table.layout.skip_lines

    def place(self, row: int) -> str:
        """Return the name of a row, numbered from 0, in messages."""
        return f"{'row' if self.table.layout is None else 'line'} {row + 1 + self.line_offset:,}"

    def report(self, counts: Mapping[str, int], faults: Faults) -> ReadReport:
        """Return the report of a reading from the counts of the rows' flags."""
        first = [
            f"{self.place(row)} {what}{'' if kind in _PRIVATE else cell}; {(n := counts[kind]):,} row{'s' * (n != 1)} "
            f"left out, {_REMEDIES[kind]}"
            for kind, (row, what, cell) in sorted(faults.items(), key=lambda fault: fault[1][0])
        ]
        counts = Counter(counts) + Counter(blank=self.table.blank_lines)
        rows, missing, unparsable, blank = (counts[name] for name in ("rows", "missing", "unparsable", "blank"))
        other = f"{counts['filtered']:,} rows do not meet --rows and are left out"
        notes = (*self.notes, *first, *([other] if self.kept else []), *row_notes(counts))
        return ReadReport(rows, self.columns, missing, unparsable, notes, blank)


def open_rows(table: Path | pl.DataFrame | FetchedRows, source: Source, *, lone_users: bool = False) -> RowReader:
    """Return the reader of a table of interactions; columns that `source` does not name are guessed."""
    asked = {"user": source.user, "item": source.item, "rating": source.rating, "time": source.time}
    found = open_table(table, source.separator, source.data, source.encoding)
    chosen = guess_columns(found.columns, asked, where=f"'{found.where}'", by_position=not found.has_names)
    with table_errors(found.where):
        first = found.head(found.columns if source.rows is not None else list(chosen.values()))
        if first is None:
            raise no_rows(found.where)
        kept = None if source.rows is None else RowFilter.of(source.rows, first, found, source.date_format)
        head = RowReader(found, chosen, (), lone_users, first, kept=kept)._by_role(first)
        _check_dtypes(head, chosen, found.where)
        cells = with_given(head.lazy())[0].collect()
        other = [role for role in ("rating", "time") if role in chosen and asked[role] is None]
        other = [role for role in other if DOUBTFUL_WORDS & set(words_of(chosen[role]))]
        other = [role for role in other if not _is_usable(cells[f"{role} given"], role)]
        unused = [f"not used, since it holds no {role}s: {chosen.pop(role)}" for role in other]
        head = head.select(*chosen, *(name for name in head.columns if name not in ROLES))
        number = when = None
        if "rating" in chosen and cells["rating given"].dtype == pl.String:
            given = pl.col("rating given")
            number = number_form(cells["rating given"], given, pl.Float32, semicolons=found.semicolons)
        if "time" in chosen:
            when = _time_form(found, chosen["time"], cells["time given"], source.date_format)
        notes = (*_notes(found, asked, chosen), *unused, *([when.note] if when is not None and when.note else []))
        seconds = None if when is None else when.seconds
        return RowReader(found, chosen, notes, lone_users, head, number, seconds, kept)


def _is_usable(cells: pl.Series, role: str) -> bool:
    """Return whether a column that was guessed by a doubtful name may hold ratings or times: some cell is one."""
    if cells.dtype != pl.String or cells.null_count() == len(cells):
        return True
    texts = cells.drop_nulls()
    return bool(texts.str.contains("[0-9]").any() if role == "time" else texts.str.contains("^[-+0-9.,]+$").any())


def _time_form(table: Table, column: str, cells: pl.Series, asked: str | None) -> TimeForm:
    """Return the form of a column of times; the whole column is read only if its first cells leave it open."""

    def scan() -> Iterator[pl.Series]:
        for rows in table.batches([column]):
            yield rows.select(given_text(cs.by_name(column).cast(pl.String))).to_series()

    try:
        form = find_form("time given", cells, asked, scan)
    except InputError as error:
        raise InputError(f"The column '{column[:80]}' of '{table.where}': {error}", error.field) from None
    if form is None:
        first = short_text(cells.drop_nulls()[0])
        raise InputError(
            f"Expected dates of the form '{asked}' (--date-format) in the column '{column[:80]}' of '{table.where}', "
            f"got {first}: correct the form, or leave it out.",
            "date_format",
        )
    return form


def _notes(table: Table, asked: Mapping[str, str | None], chosen: Mapping[str, str]) -> Iterator[str]:
    if table.layout is not None:
        layout = table.layout
        comma = ", commas in ratings read as decimal points" * table.semicolons
        encoding = f", in the encoding {layout.encoding}" * (layout.encoding != "utf-8")
        yield f"separator {layout.separator!r}, {'with' if layout.header else 'without'} a header{comma}{encoding}"
        if above := layout.skip_lines - layout.header:
            yield f"{above:,} line{'s' * (above > 1)} above the {'header' if layout.header else 'rows'} skipped"
    guessed = [f"{role} = {column}" for role, column in chosen.items() if asked[role] is None]
    if guessed:
        yield f"columns guessed: {', '.join(guessed)}"
    unused = unused_ratings(table.columns, chosen)
    if unused and asked["rating"] is None:
        yield f"not used, though it may hold ratings or counts: {', '.join(unused)} (--rating names the column to use)"


def _check_dtypes(head: pl.DataFrame, chosen: Mapping[str, str], where: str) -> None:
    for role, dtype in head.select(*chosen).schema.items():
        wrong = dtype.is_nested() or dtype in (pl.Binary, pl.Object, pl.Time, pl.Duration)
        if wrong or (role == "rating" and dtype.is_temporal()) or (role == "time" and dtype == pl.Boolean):
            raise InputError(
                f"Expected {NEEDED[role]} in each row of the column '{chosen[role]}' in '{where}', got "
                f"{str(dtype)[:60]}: name another column with --{role}.",
                role,
            )


def short_text(cell: object) -> str:
    text = repr(cell)
    return text if len(text) <= 80 else f"{text[:80]}..."


def no_rows(where: str) -> InputError:
    return InputError(f"Expected rows of interactions in '{where}', got none below the names of the columns.")
