"""A table of any kind, and how it looks in Markdown, CSV and LaTeX."""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

NONE = "–"

Cell: TypeAlias = str | int | float | tuple[float, float] | None  # a pair is an interval
Row: TypeAlias = tuple[Cell, ...]


@dataclass(frozen=True)
class Column:
    """A column's name, and how its fractions are shown."""

    name: str
    digits: int = 2
    signed: bool = False
    positive: bool = False  # one that would be rounded to 0 is shown as less than the smallest number

    def text(self, cell: Cell) -> str:
        """Return a cell as people read it; CSV keeps the numbers themselves."""
        if cell is None:
            return NONE
        if isinstance(cell, str):
            return cell
        if isinstance(cell, tuple):
            return f"{self.text(cell[0])} to {self.text(cell[1])}"
        least = 10.0**-self.digits
        if self.positive and cell < least / 2:
            return f"< {least:.{self.digits}f}"
        sign = "+" if self.signed and cell != 0 else ""
        shown = f"{cell:{sign},}" if isinstance(cell, int) else f"{cell:{sign},.{self.digits}f}"
        return shown.replace("-", "−")


def p_text(p: float) -> str:
    """Return a p-value as people read it."""
    shown = Column("p", digits=4, positive=True).text(p)
    return f"p {shown}" if shown.startswith("<") else f"p = {shown}"


@dataclass(frozen=True)
class Table:
    """Rows under columns; the first column says what a row is."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    note: str = ""

    def texts(self) -> list[list[str]]:
        """Return the cells as people read them."""
        return [[column.text(cell) for column, cell in zip(self.columns, row, strict=True)] for row in self.rows]


def markdown(table: Table) -> str:
    """Return a table as Markdown under its title."""
    lines = [[column.name for column in table.columns], ["---", *["---:"] * (len(table.columns) - 1)], *table.texts()]
    escaped = ["| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines]
    return "\n".join([f"## {table.title}", "", *escaped, *(["", table.note] if table.note else [])]) + "\n"


def latex(table: Table) -> str:
    """Return a table as LaTeX; it needs the package booktabs."""
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
    """Return tables of the same columns as one CSV, each line led by its table's title; an interval has two columns."""
    first = tables[0]
    pairs = [
        any(isinstance(row[place], tuple) for table in tables for row in table.rows)
        for place in range(len(first.columns))
    ]
    names = ["table"]
    for column, pair in zip(first.columns, pairs, strict=True):
        names += [f"{column.name} low", f"{column.name} high"] if pair else [column.name]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(names)
    for table in tables:
        for row in table.rows:
            line: list[str | int | float] = [table.title]
            for cell, pair in zip(row, pairs, strict=True):
                ends: Sequence[str | int | float | None] = cell if isinstance(cell, tuple) else [cell] * (1 + pair)
                line += ["" if end is None else end for end in ends]
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
        ">": "$>$",
    }
)


def _tex(text: str) -> str:
    return text.translate(_TEX)
