"""The tables of results: their numbers, and that what is committed is what the results give."""

import csv
import io
import runpy
from pathlib import Path

import numpy as np
import pytest
from stored import compared, ordinary, protocol, result, single

from recfusion.experiments.comparison import Comparison
from recfusion.paper.tables import METRICS
from recfusion.report import main_table
from recfusion.report.main_table import ModelColumn, chosen_text
from recfusion.report.page import render
from recfusion.report.tables import (
    cost_table,
    metric_table,
    paper_table,
    result_tables,
    results_csv,
    results_latex,
    results_markdown,
)

SCRIPT = runpy.run_path(str(Path(__file__).parents[2] / "scripts" / "regenerate_tables.py"))
FEW = ("ml-latest-small", "cold-items-retail", "signals-both-ml1m", "unets")  # the script checks all of them


def beside_the_paper() -> Comparison:
    card = protocol(name="ml-1m", metrics=METRICS)
    made = {"ease": (0.41, 0.42, 0.46), "bspm": (0.2, 0.3, 0.4)}
    found = []
    for label, means in made.items():
        for seed, mean in enumerate(means):
            test = {metric: np.full(40, mean) for metric in METRICS}
            found.append(result(label, 0.3, seed=seed, protocol=card, test=test))
    return Comparison.of(found)


def test_the_table_beside_the_paper_s_compares_medians_of_the_models_that_it_has() -> None:
    table = paper_table(beside_the_paper())
    assert table is not None
    names = [f"{metric} paper" for metric in METRICS]
    assert [column.name for column in table.columns][:5] == ["model", "splits", names[0], "ours", "difference"]
    assert [row[:2] + row[-3:] for row in table.texts()] == [["ease", "3", "42.24", "42.00", "−0.24"]]
    assert "ours minus the paper's" in table.note
    assert paper_table(ordinary()) is None


def test_a_metric_has_its_interval_and_tests_from_the_model_s_side() -> None:
    best, near, other = metric_table(ordinary(), "ndcg@100").texts()
    assert best[:4] == ["ease", "3", "37.10", "37.10"]
    assert best[5:] == ["–"] * 6
    assert near[7] == near[10]  # to the best and to EASE, which is the best
    assert other[:4] == ["slim", "3", "33.20", "33.20"]
    assert other[5] == other[8] == "−3.90"
    low, high = (float(end.replace("−", "-")) for end in other[6].split(" to "))
    assert low < -3.9 < high < 0
    assert other[7] == "≤ 0.0001"


def test_a_single_test_user_has_differences_without_intervals_and_tests() -> None:
    table = metric_table(single(), "ndcg@100")
    assert table.texts() == [
        ["ease", "2", "35.00", "35.00", "–", *["–"] * 6],
        ["popularity", "2", "25.00", "25.00", "–", *["−10.00", "–", "–"] * 2],
        ["slim", "2", "15.00", "15.00", "–", *["−20.00", "–", "–"] * 2],
    ]
    assert table.note.endswith("A single test user gives no interval and no test.")
    found = list(csv.DictReader(io.StringIO(results_csv(single()))))
    assert {line["p vs best"] for line in found} == {line["95 % interval low"] for line in found} == {""}
    assert "0.000" not in results_markdown(single()) + results_latex(single())


def test_columns_of_tests_are_there_only_where_something_was_tested() -> None:
    plain = ["model", "splits", "median", "mean", "95 % interval"]
    assert [column.name for column in metric_table(compared({"a": 0.3}), "ndcg@100").columns] == plain
    best = ["vs best", "vs best, 95 %", "p vs best"]
    assert [column.name for column in metric_table(compared({"a": 0.3, "b": 0.2}), "ndcg@100").columns] == plain + best


def test_costs_name_the_settings_that_the_fits_chose() -> None:
    found = [result("a", 0.3, seed=seed, chosen={"l2": 3.0 - seed, "kind": "x"}, fit_seconds=1.5) for seed in (0, 1)]
    table = cost_table(Comparison.of(found))
    assert table.texts() == [["a", "1,234", "–", "–", "1.50", "0.10", "kind = x; l2 = 2 to 3"]]
    assert "all 2 fits add up to 3.0 seconds" in table.note
    nested = {"weights": [{"ease": 0.25, "other": "x"}, {"ease": 0.5}]}
    assert chosen_text(nested) == "ease 0.25 to 0.5"


def test_the_documents_hold_every_table() -> None:
    found = beside_the_paper()
    text = results_markdown(found)
    assert text.startswith(
        "# Results on ml-1m\n\nData: ml-1m (659 users, 2,078 items, 44,413 interactions); protocol 9acf6762abbd; "
        "seeds 0, 1, 2.\n\n- Top-K"
    )
    for table in result_tables(found):
        assert f"## {table.title}\n" in text
    assert results_latex(found).count(r"\begin{tabular}") == 1 + len(result_tables(found)) == 6
    lines = [line for line in csv.DictReader(io.StringIO(results_csv(found))) if line["table"] == "ndcg@100"]
    assert [(line["model"], line["paper"]) for line in lines] == [("ease", "42.24"), ("bspm", "")]
    assert float(lines[1]["vs ease"]) == pytest.approx(-13, abs=1e-4)
    assert lines[1]["p vs ease"][0].isdigit()


def test_a_title_and_a_note_stand_above_the_tables() -> None:
    found = Comparison.of([result("a", 0.3)], title="My title", note="Quick.")
    assert results_markdown(found).startswith("# My title\n\n**Quick.**\n\nData: ")


def test_models_of_older_and_of_unknown_code_are_marked_in_every_format() -> None:
    old = result("ease", 0.3, code="0" * 16, commit="abc123")
    found = Comparison.of([old, result("slim", 0.2, code=""), result("popularity", 0.1), result("theirs", 0.05)])
    assert [model.code for model in found.models.values()] == ["stale", "unknown", "current", "unknown"]
    for table in result_tables(found):
        assert [row[0] for row in table.rows] == ["ease †", "slim ‡", "popularity", "theirs"]
        assert table.note.endswith(
            "†: fitted by older code than that of this version. ‡: not known to be fitted by the code of this version."
        )
    assert "ease † &" in results_latex(found)
    assert "slim ‡ &" in results_latex(found)
    lines = list(csv.DictReader(io.StringIO(results_csv(found))))
    assert [(line["model"], line["code"]) for line in lines[-4:]] == [
        ("ease", "stale"),
        ("slim", "unknown"),
        ("popularity", "current"),
        ("theirs", "unknown"),
    ]


def test_only_marks_that_are_used_are_explained() -> None:
    unknown = results_markdown(Comparison.of([result("slim", 0.2, code=""), result("popularity", 0.1)]))
    assert "‡:" in unknown
    assert "†" not in unknown
    current = results_markdown(Comparison.of([result("slim", 0.2), result("theirs", 0.1)]))
    assert not {"†", "‡"} & set(current)


def test_one_record_adds_a_column_to_the_page_and_to_every_file(monkeypatch: pytest.MonkeyPatch) -> None:
    column = ModelColumn("letters", lambda model: len(model.label))
    monkeypatch.setattr(main_table, "COLUMNS", (*main_table.COLUMNS, column))
    found = Comparison.of([result("ease", 0.3), result("popularity", 0.2)])
    assert "| letters |\n" in results_markdown(found)
    assert "| 10 |\n" in results_markdown(found)
    assert r" & letters \\" in results_latex(found)
    assert [line["letters"] for line in csv.DictReader(io.StringIO(results_csv(found)))][:2] == ["4", "10"]
    assert '<th scope="col" class="cost">Letters</th>' in render(found)
    assert '<td class="cost" data-value="10">10</td>' in render(found)


@pytest.mark.parametrize("name", FEW)
def test_a_committed_table_is_what_its_results_give(name: str) -> None:
    (store,) = [store for store in SCRIPT["stores"]() if store.stem == name]
    table = SCRIPT["table_path"](store)
    assert table.read_text(encoding="utf-8") == SCRIPT["table"](store), "run scripts/regenerate_tables.py"


def test_latex_begins_with_one_table_of_models_and_metrics_with_marks() -> None:
    results = [result(label, mean, seed=seed) for label, mean in (("ease", 0.3), ("slow", 0.2)) for seed in (0, 1)]
    text = results_latex(Comparison.of(results))
    first = text.split(r"\end{table}")[0]
    assert "recall@20 & ndcg@100" in first
    assert "& 30.00 (29.65 to 30.36)" in first
    assert "& 20.00* (19.65 to 20.36)" in first
    assert "significantly below the best" in first
