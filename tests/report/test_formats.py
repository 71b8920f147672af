"""Tables as Markdown, CSV and LaTeX."""

import csv
import io

import pytest

from recfusion.evaluation.significance import DRAWS
from recfusion.experiments.paired_tests import PairedTest as Paired
from recfusion.report.formats import AtMost, Cell, Column, Table, csv_text, latex, markdown, p_cell, p_text

TABLE = Table(
    "A & B",
    (Column("model"), Column("n"), Column("gain", signed=True), Column("95 % interval"), Column("p", digits=3)),
    (("a|b_c", 1234, 0.5, (1.0, 2.25), 0.04), ("d", None, -1.256, None, 1.0)),
    "100 % of it.",
)


@pytest.mark.parametrize(
    ("column", "cell", "shown"),
    [
        (Column("x"), 1.005, "1.00"),
        (Column("x"), -3.14159, "−3.14"),
        (Column("x", signed=True), 2, "+2"),
        (Column("x", signed=True), 0, "0"),
        (Column("x", signed=True), (-1.0, 1.0), "−1.00 to +1.00"),
        (Column("x", digits=4), 0.00135, "0.0014"),
        (Column("p", digits=4), AtMost(0.00004), "≤ 0.0001"),
        (Column("p", digits=4), AtMost(0.00071), "≤ 0.0008"),
        (Column("p", digits=4), 0.0, "0.0000"),
        (Column("p", digits=4, up=True), 0.00111, "0.0012"),
        (Column("p", digits=4, up=True), 0.04, "0.0400"),
        (Column("p", digits=4, up=True), 1.0, "1.0000"),
        (Column("x"), 1_410_218, "1,410,218"),
        (Column("x"), None, "–"),
        (Column("x"), "as it is", "as it is"),
    ],
)
def test_a_cell_is_shown_by_its_kind_and_its_column(column: Column, cell: Cell, shown: str) -> None:
    assert column.text(cell) == shown


def test_markdown_has_a_title_a_head_and_a_line_for_each_row() -> None:
    assert markdown(TABLE).splitlines() == [
        "## A & B",
        "",
        "| model | n | gain | 95 % interval | p |",
        "| --- | ---: | ---: | ---: | ---: |",
        r"| a\|b_c | 1,234 | +0.50 | 1.00 to 2.25 | 0.040 |",
        "| d | – | −1.26 | – | 1.000 |",
        "",
        "100 % of it.",
    ]


def test_csv_keeps_the_numbers_and_divides_intervals() -> None:
    lines = list(csv.reader(io.StringIO(csv_text([TABLE, TABLE]))))
    assert lines[0] == ["table", "model", "n", "gain", "95 % interval low", "95 % interval high", "p"]
    assert lines[1] == ["A & B", "a|b_c", "1234", "0.5", "1.0", "2.25", "0.04"]
    assert lines[2] == ["A & B", "d", "", "-1.256", "", "", "1.0"]
    assert lines[3:] == lines[1:3]


def test_csv_has_the_number_that_another_is_at_most() -> None:
    assert csv_text([Table("t", (Column("p"),), ((AtMost(0.25),),))]).splitlines() == ["table,p", "t,0.25"]


@pytest.mark.parametrize(
    ("p", "p_holm", "said"),
    [
        (1 / (DRAWS + 1), 23 / (DRAWS + 1), "p at most .001"),
        (1 / (DRAWS + 1), 1 / (DRAWS + 1), "p at most .001"),
        (1 / (DRAWS + 1), 34 / (DRAWS + 1), "p at most .002"),
        (2 / (DRAWS + 1), 2 / (DRAWS + 1), "p at most .001"),
        (2 / (DRAWS + 1), 33 / (DRAWS + 1), "p = .002"),
        (0.004, 0.0312, "p = .032"),
        (0.2, 0.352, "p = .36"),
        (0.5, 1.0, "p > .99"),
        (None, None, "not tested: there is one test user"),
    ],
)
def test_a_p_is_said_in_words_rounded_up(p: float | None, p_holm: float | None, said: str) -> None:
    test = Paired("ndcg@100", "a", "b", 0.1, (0.1, 0.2), p, p_holm, (0,))
    assert p_text(test) == said


@pytest.mark.parametrize(("draws", "bound"), [(1, True), (2, False)])
def test_a_p_at_the_floor_of_the_bootstrap_is_a_bound(draws: int, bound: bool) -> None:
    test = Paired("ndcg@100", "a", "b", 0.1, (0.1, 0.2), draws / (DRAWS + 1), 0.0011, (0,))
    assert p_cell(test) == (AtMost(0.0011) if bound else 0.0011)


def test_no_shown_p_is_below_a_bound_that_it_is_not_below() -> None:
    """34 tests at the floor make the bound .00113, shown as .0012: a p of .00114 beside it must not be .0011."""
    column = Column("p", digits=4, up=True)
    for p in (0.00114, 0.00113, 0.0012):
        assert float(column.text(p)) >= float(column.text(AtMost(0.00113)).removeprefix("≤ "))


def test_latex_escapes_what_it_would_take_for_a_command() -> None:
    text = latex(TABLE)
    assert r"\caption{A \& B. 100 \% of it.}" in text
    assert r"a|b\_c & 1,234 & +0.50 & 1.00 to 2.25 & 0.040 \\" in text
    assert r"d & -- & $-$1.26 & -- & 1.000 \\" in text
    assert r"\begin{tabular}{lrrrr}" in text
    assert r"$\le$ 0.01" in latex(Table("p", (Column("p"),), ((AtMost(0.0001),),)))
    assert text.count(r"\begin") == text.count(r"\end") == 2
