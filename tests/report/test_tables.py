"""The tables of results: their numbers, and that what is committed is what the results give."""

import csv
import io
from pathlib import Path
from typing import Any

import pytest
from stored import write_store

from recfusion.report.document import read_document
from recfusion.report.tables import (
    cost_table,
    metric_table,
    paper_table,
    result_tables,
    results_csv,
    results_latex,
    results_markdown,
)

RESULTS = Path(__file__).parents[2] / "results"


def summary(mean: float, median: float) -> dict[str, Any]:
    return {"mean": mean, "ci95": [mean - 0.01, mean + 0.02], "median": median, "splits": [median] * 3}


def compared(a: str, b: str, difference: float) -> dict[str, Any]:
    ends = [difference - 0.02, difference + 0.01]
    return {"metric": "ndcg@100", "a": a, "b": b, "difference": difference, "ci95": ends, "p_holm": 0.03}


def document() -> dict[str, Any]:
    ease = {"model": "ease", "n_splits": 10, "parameters": 9, "epochs": 0.0, "fit_seconds": 1.5, "score_seconds": 0.25}
    other = {**ease, "model": "slim", "n_splits": 3, "epochs": 4.5, "chosen": {"l1": [1.0, 1.0], "l2": [3.0, 2.0]}}
    return {
        "protocol": {"name": "ml-1m", "hash": "abc", "users": 6034, "assumptions": ["One.", "Two."]},
        "seeds": [0, 1],
        "models": {
            "slim": {**other, "ndcg@100": summary(0.30, 0.31)},
            "ease": {**ease, "ndcg@100": summary(0.43, 0.42)},
        },
        "tests": [compared("ease", "slim", 0.13)],
        "reference_tests": [compared("slim", "ease", -0.13)],
        "paper": {"table": "ml1m", "title": "medians", "models": {"ease": {"ndcg@100": 0.4224}}},
    }


def test_the_pendant_of_the_paper_s_table_compares_medians() -> None:
    table = paper_table(document())
    assert table is not None
    assert [column.name for column in table.columns] == ["model", "splits", "ndcg@100 paper", "ours", "difference"]
    assert table.texts() == [["ease", "10", "42.24", "42.00", "−0.24"], ["slim", "3", "–", "31.00", "–"]]
    assert paper_table({**document(), "paper": None}) is None


def test_a_metric_has_its_interval_and_tests_from_the_model_s_side() -> None:
    best, other = metric_table(document(), "ndcg@100").texts()
    assert best == ["ease", "10", "42.00", "43.00", "42.00 to 45.00", *["–"] * 6]
    less_best = ["−13.00", "−14.00 to −11.00", "0.0300"]  # ease - slim is .11 to .14
    less_ease = ["−13.00", "−15.00 to −12.00", "0.0300"]  # slim - ease is -.15 to -.12
    assert other == ["slim", "3", "31.00", "30.00", "29.00 to 32.00", *less_best, *less_ease]


def test_columns_of_tests_are_there_only_where_something_was_tested() -> None:
    table = metric_table({**document(), "tests": [], "reference_tests": []}, "ndcg@100")
    assert [column.name for column in table.columns] == ["model", "splits", "median", "mean", "95 % interval"]


def test_costs_name_the_settings_that_the_fits_chose() -> None:
    table = cost_table(document())
    assert "all 13 fits add up to 19.5 seconds" in table.note
    assert "add up" not in cost_table({"models": {"a": {"ndcg@100": summary(0.3, 0.3)}}}).note
    assert table.texts() == [
        ["ease", "9", "–", "1.50", "0.25", ""],
        ["slim", "9", "4.5", "1.50", "0.25", "l1 = 1; l2 = 2 to 3"],
    ]


def test_the_documents_hold_every_table() -> None:
    text = results_markdown({**document(), "title": "My title", "note": "Quick."})
    assert text.startswith(
        "# My title\n\n**Quick.**\n\nData: ml-1m (6,034 users); protocol abc; seeds 0, 1.\n\n- One.\n"
    )
    for table in result_tables(document()):
        assert f"## {table.title}\n" in text
    assert results_latex(document()).count(r"\begin{tabular}") == len(result_tables(document())) == 3
    lines = list(csv.DictReader(io.StringIO(results_csv(document()))))
    assert [(line["model"], line["paper"]) for line in lines] == [("ease", "42.24"), ("slim", "")]
    assert float(lines[1]["less ease"]) == pytest.approx(-13)


def committed() -> list[tuple[Path, Path]]:
    """Return the stores that are committed with a table beside them."""
    stores = sorted(RESULTS.glob("*.jsonl"))
    return [(store, table) for store in stores if (table := store.with_suffix(".md")).is_file()]


def check(store: Path, table: Path) -> None:
    again = results_markdown(read_document(store))
    assert table.read_text(encoding="utf-8") == again, f"write it again: recfusion report {store} --out {table}"


@pytest.mark.parametrize(("store", "table"), committed(), ids=lambda path: path.name)
def test_a_committed_table_is_what_its_results_give(store: Path, table: Path) -> None:
    check(store, table)


def test_a_table_that_differs_from_its_results_is_found(tmp_path: Path) -> None:
    store, table = write_store(tmp_path / "tried.jsonl"), tmp_path / "tried.md"
    text = results_markdown(read_document(store))
    for wanted in ("## ndcg@10", "## recall@5", "## Cost", "| small | 2 |", "| ease | 1 |", "less ease"):
        assert wanted in text
    table.write_text(text, encoding="utf-8")
    check(store, table)
    table.write_text(text.replace("| ease | 1 |", "| ease | 2 |"), encoding="utf-8")
    with pytest.raises(AssertionError, match="write it again"):
        check(store, table)
