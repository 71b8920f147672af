"""A table, and its formats: Markdown, CSV and LaTeX."""

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from recfusion.evaluation.significance import DRAWS

if TYPE_CHECKING:
    from recfusion.experiments.paired_tests import PairedTest

NONE = "–"
_LEAST_P = 1.000001 / (DRAWS + 1)  # the smallest p that the bootstrap can give


@dataclass(frozen=True)
class AtMost:
    """An upper bound of a number."""

    value: float


Interval: TypeAlias = tuple[float, float]
Cell: TypeAlias = str | int | float | AtMost | Interval | None
Row: TypeAlias = tuple[Cell, ...]


@dataclass(frozen=True)
class Column:
    """A column's name, and the format of its numbers."""

    name: str
    digits: int = 2
    signed: bool = False
    pair: bool = False  # the cells are intervals, even if all are missing
    up: bool = False  # rounded up, as p-values are

    def text(self, cell: Cell) -> str:
        """Return a cell as text; CSV holds the numbers themselves."""
        if cell is None:
            return NONE
        if isinstance(cell, str):
            return cell
        if isinstance(cell, tuple):
            return f"{self.text(cell[0])} to {self.text(cell[1])}"
        if isinstance(cell, AtMost):
            return f"≤ {_up(cell.value, self.digits):.{self.digits}f}"
        if self.up:
            cell = _up(cell, self.digits)
        sign = "+" if self.signed and cell != 0 else ""
        shown = f"{cell:{sign},}" if isinstance(cell, int) else f"{cell:{sign},.{self.digits}f}"
        return shown.replace("-", "−")


def p_cell(test: "PairedTest") -> float | AtMost | None:
    """Return a test's corrected p; an upper bound if the bootstrap cannot give a smaller one."""
    if test.p is None or test.p_holm is None:
        return None
    return AtMost(test.p_holm) if test.p <= _LEAST_P else test.p_holm


def p_text(test: "PairedTest") -> str:
    """Return a test's corrected p in words: p at most .001, p = .032."""
    p = p_cell(test)
    if p is None:
        return "not tested: there is one test user"
    if isinstance(p, AtMost) or p < 0.001:
        return f"p at most {_up(p.value if isinstance(p, AtMost) else p, 3):.3f}".replace(" 0.", " .")
    if p > 0.99:
        return "p > .99"
    digits = 3 if p < 0.1 else 2
    return f"p = {_up(p, digits):.{digits}f}".replace(" 0.", " .")


def points(value: float, digits: int = 2, *, signed: bool = False) -> str:
    """Return a share in percent points."""
    return f"{100 * value:{'+' if signed else ''}.{digits}f}".replace("-", "−")


def span(interval: Interval | None, digits: int = 2, *, to: str = " to ", signed: bool = False) -> str:
    """Return an interval of shares in percent points; an empty text if there is none."""
    return to.join(points(end, digits, signed=signed) for end in interval or ())


def percent(interval: Interval | None) -> Interval | None:
    """Return an interval of shares times 100."""
    return interval and (100 * interval[0], 100 * interval[1])


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: "1 fit", "2 fits"."""
    return f"{number:,} {noun}{'s' * (number != 1)}"


def _up(value: float, digits: int) -> float:
    """Return a number rounded up."""
    return math.ceil(value * 10**digits - 1e-9) / 10**digits


@dataclass(frozen=True)
class Table:
    """Rows and columns; the first column names the row."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    note: str = ""

    def texts(self) -> list[list[str]]:
        return [[column.text(cell) for column, cell in zip(self.columns, row, strict=True)] for row in self.rows]


def markdown(table: Table) -> str:
    """Return a table as Markdown with its title."""
    lines = [[column.name for column in table.columns], ["---", *["---:"] * (len(table.columns) - 1)], *table.texts()]
    escaped = ["| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines]
    return "\n".join([f"## {table.title}", "", *escaped, *(["", table.note] if table.note else [])]) + "\n"


def latex(table: Table) -> str:
    """Return a table as LaTeX for the package booktabs."""
    head = " & ".join(_tex(column.name) for column in table.columns)
    body = [" & ".join(_tex(cell) for cell in line) + r" \\" for line in table.texts()]
    caption = f"{table.title}. {table.note}".strip().rstrip(".") + "."
    return "\n".join(
        [
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{_tex(caption)}}}",
            rf"\begin{{tabular}}{{l{'r' * (len(table.columns) - 1)}}}",
            r"\toprule",
            head + r" \\",
            r"\midrule",
            *body,
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
            "",
        ]
    )


def csv_text(tables: Sequence[Table]) -> str:
    """Return tables of the same columns as one CSV with the table's title first; an interval has two columns."""
    first = tables[0]
    pairs = [
        column.pair or any(isinstance(row[place], tuple) for table in tables for row in table.rows)
        for place, column in enumerate(first.columns)
    ]
    names = ["table"]
    for column, pair in zip(first.columns, pairs, strict=True):
        names += [f"{column.name} low", f"{column.name} high"] if pair else [column.name]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(names)
    for table in tables:
        for row in table.rows:
            line: list[Cell] = [table.title]
            for cell, pair in zip(row, pairs, strict=True):
                plain = cell.value if isinstance(cell, AtMost) else cell
                line += plain if isinstance(plain, tuple) else [plain] * (1 + pair)
            writer.writerow(line)
    return text.getvalue()


_TEX = str.maketrans(
    {
        **{sign: f"\\{sign}" for sign in "&%$#_{}"},
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "−": "$-$",
        "–": "--",
        "×": r"$\times$",
        "<": "$<$",
        "≤": r"$\le$",
        ">": "$>$",
    }
)


def _tex(text: str) -> str:
    return text.translate(_TEX)
