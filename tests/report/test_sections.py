"""The main table's cells, groups, slices, examples and the box plot: what they show of a comparison."""

from dataclasses import replace

import numpy as np
import pytest
from matplotlib.figure import Figure
from stored import compared, example, ordinary, protocol, real, result

from recfusion.evaluation.evaluate import PopularitySlices
from recfusion.experiments.comparison import Comparison
from recfusion.paper.tables import METRICS
from recfusion.report.figures import draw_boxes
from recfusion.report.sections import (
    DEEPEST,
    difference_cells,
    example_lists,
    metric_cells,
    significance_groups,
    slice_tables,
)


def test_the_best_and_what_is_not_told_apart_from_it_are_marked() -> None:
    cells = metric_cells(ordinary(), "ndcg@100")
    assert {label: (cell.text, cell.mark) for label, cell in cells.items()} == {
        "ease": ("37.1", "best"),
        "near": ("37.0", "same"),
        "slim": ("33.2", ""),
    }
    assert cells["ease"].interval.count("–") == 1
    (alone,) = metric_cells(compared({"a": 0.3}), "ndcg@100").values()
    assert alone.mark == ""


def test_differences_are_to_the_reference_which_has_none_itself() -> None:
    cells = difference_cells(ordinary())
    assert [(cells[label].text, cells[label].mark) for label in ("slim", "near", "ease")] == [
        ("−3.90", "below"),
        ("−0.10", ""),
        ("–", ""),
    ]
    assert cells["ease"].value == 0  # sorts among the others
    assert difference_cells(compared({"a": 0.3})) == {}


def test_models_are_grouped_by_what_was_told_apart_from_the_reference() -> None:
    assert significance_groups(ordinary()) == {"No significant difference to ease": ["near"], "Below ease": ["slim"]}
    found = significance_groups(compared({"b": 0.2, "a": 0.4, "c": 0.3, "ease": 0.1}))
    assert found == {"Above ease": ["a", "c", "b"]}


def test_a_slice_has_a_column_with_its_size_and_the_best_is_marked_and_deepest() -> None:
    sizes, hits = np.repeat([4, 10, 20, 30], 10), PopularitySlices((3, 40, 1200), (10, 10, 0), {20: (8, 1, 0)})
    found = Comparison.of([result("a", 0.2, history_size=sizes), result("b", 0.4, history_size=sizes, slices=hits)])
    activity, popularity = slice_tables(found)
    assert activity.heads == (("4", "items"), ("10", "items"), ("20", "items"), ("30", "items"))
    assert [label for label, _ in activity.rows] == ["b", "a"]
    best, other = (cells[0] for _, cells in activity.rows)
    assert (best.best, best.shade) == (True, DEEPEST)
    assert not other.best
    assert other.shade < DEEPEST / 7
    assert popularity.heads == (("head", "3 items"), ("middle", "40 items"), ("tail", "1,200 items"))
    assert [cell.text for cell in popularity.rows[0][1]] == ["80.0", "10.0", "–"]
    assert [cell.text for cell in popularity.rows[1][1]] == ["40.0", "20.0", "10.0"]
    assert "first 20" in popularity.note


def test_examples_show_the_best_models_and_the_reference() -> None:
    means = {"f": 0.1, "ease": 0.2, "d": 0.3, "c": 0.4, "b": 0.5, "a": 0.6}
    shown = (example(1, {"x": True}),)
    found = Comparison.of([result(label, mean, examples=shown) for label, mean in means.items()])
    assert [list(one.lists) for one in example_lists(found)] == [["a", "b", "c", "ease"]]
    assert [list(one.lists) for one in example_lists(replace(found, reference=None))] == [["a", "b", "c", "d"]]
    assert example_lists(ordinary()) == []


def test_the_box_plot_has_a_panel_for_each_metric_and_says_who_has_fewer_splits() -> None:
    figure = draw_boxes(real())
    assert [axes.get_xlabel() for axes in figure.axes] == ["recall@5", "ndcg@10"]
    assert {"small", "popularity", "ease (1 split)"} <= set(names(figure))


def test_the_box_plot_marks_the_paper_s_values_and_leaves_random_out() -> None:
    card = protocol(name="ml-1m", metrics=METRICS)
    test = {metric: np.full(40, 0.4) for metric in METRICS}
    made = [result(label, 0.4, seed=seed, protocol=card, test=test) for label in ("ease", "random") for seed in (0, 1)]
    figure = draw_boxes(Comparison.of(made))
    marks = [line for line in figure.axes[-1].lines if line.get_marker() == "D"]
    assert [np.asarray(line.get_xdata()).tolist() for line in marks] == [[pytest.approx(42.24)]]
    assert names(figure) == ["ease"]


def names(figure: Figure) -> list[str]:
    return [label.get_text() for label in figure.axes[0].get_yticklabels()]
