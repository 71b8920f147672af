"""Slices, curves and the box plot: what they show of a document."""

import re
from typing import Any
from xml.etree import ElementTree

import numpy as np
from matplotlib.figure import Figure
from stored import stored_rows

from recfusion.report.curves import curve_panel, known_epochs
from recfusion.report.document import store_document
from recfusion.report.figure_boxes import draw_boxes
from recfusion.report.sections import DEEPEST, curve_panels, example_lists, slice_tables

SLICES = {
    "activity": {
        "sizes": [[4, 9], [10, 10]],
        "users": [21, 20],
        "models": {"a": {"m@5": [0.5, 0.25]}, "b": {"m@5": [0.25, None]}},
    },
    "popularity": {
        "groups": ["head", "tail"],
        "items": [3, 1200],
        "models": {"a": {"recall@5": [0.4, 0.1], "recall@9": [0.9, 0.9]}, "b": {"recall@5": [0.2, 0.2]}},
    },
}
CURVE = {"seed": 3, "epoch": [1, 2, 3], "metric": [0.1, None, 0.3]}


def test_a_slice_has_a_column_with_its_size_and_the_best_is_marked_and_deepest() -> None:
    activity, popularity = slice_tables({"slices": SLICES}, ["b", "a"], "m@5")
    assert activity.heads == (("4–9", "items"), ("10", "items"))
    assert [(name, [cell.text for cell in cells]) for name, cells in activity.rows] == [
        ("b", ["25.0", "–"]),
        ("a", ["50.0", "25.0"]),
    ]
    (low, _), (best, alone) = (cells for _, cells in activity.rows)
    assert (best.mark, best.shade, alone.mark) == ("best", DEEPEST, "best")
    assert (low.mark, low.shade) == ("", round(DEEPEST / 8))
    assert popularity.heads == (("head", "3 items"), ("tail", "1,200 items"))
    assert [cell.text for cell in popularity.rows[1][1]] == ["40.0", "10.0"]  # the shortest list
    assert "first 5" in popularity.note


def test_a_document_without_slices_or_epochs_has_no_tables_and_panels() -> None:
    assert slice_tables({}, ["a"], "m@5") == []
    assert curve_panels({"curves": {"a": [{"seed": 0, "epoch": [1], "metric": [None]}]}}, ["a"]) == []


def test_epochs_that_were_not_judged_are_passed_over() -> None:
    assert known_epochs(CURVE) == [(1, 10.0), (3, 30.0)]


def test_a_curve_rises_to_its_best_epoch_where_it_has_a_dot() -> None:
    root = ElementTree.fromstring(curve_panel([CURVE], ident="c", title="a < b", top=30.0))
    line, dot = next(root.iter("polyline")), next(root.iter("circle"))
    first, last = (tuple(map(float, pair.split(","))) for pair in line.attrib["points"].split())
    assert last[0] > first[0]
    assert last[1] < first[1]  # y runs down
    assert (float(dot.attrib["cx"]), float(dot.attrib["cy"])) == last
    assert "split 3: best 30.00 in epoch 3 of 3" in "".join(root.itertext())


def test_panels_stand_in_the_order_of_the_models_and_share_a_scale() -> None:
    other = {"seed": 0, "epoch": [1, 2], "metric": [0.05, 0.04]}
    panels = curve_panels({"curves": {"a": [CURVE], "b": [other]}}, ["b", "none", "a"])
    assert [panel.name for panel in panels] == ["b", "a"]
    for panel in panels:
        *scale, _first, _last = re.findall(r'class="tick"[^>]*>(\d+)</text>', panel.svg)
        assert scale == ["0", "10", "20", "30"]


def texts(figure: Figure) -> list[str]:
    return [label.get_text() for axes in figure.axes for label in (*axes.get_yticklabels(), axes.xaxis.label)]


def test_the_box_plot_has_a_panel_for_each_metric_and_says_who_has_fewer_splits() -> None:
    document = store_document(list(stored_rows()), "a store")
    figure = draw_boxes(document)
    assert [axes.get_xlabel() for axes in figure.axes] == ["recall@5", "ndcg@10"]
    shown = texts(figure)
    assert {"small", "popularity", "ease (1 split)"} <= set(shown)


def test_the_box_plot_marks_the_paper_s_values_and_leaves_random_out() -> None:
    def entry(model: str, *splits: float) -> dict[str, Any]:
        return {"model": model, "n_splits": len(splits), "ndcg@100": {"mean": sum(splits) / 2, "splits": list(splits)}}

    models = {"ease": entry("ease", 0.4, 0.44), "random": entry("random", 0.01, 0.02)}
    figure = draw_boxes({"models": models, "paper": {"models": {"ease": {"ndcg@100": 0.4224}}}})
    (axes,) = figure.axes
    marks = [line for line in axes.lines if line.get_marker() == "D"]
    assert [np.asarray(line.get_xdata()).tolist() for line in marks] == [[42.24]]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["ease"]


def test_examples_show_the_best_models_and_the_reference() -> None:
    order = ["a", "b", "c", "d", "ease", "f"]
    example = {"user": "7", "history": ["x"] * 20, "more": 3, "lists": dict.fromkeys(reversed(order), ())}
    (shown,) = example_lists({"examples": [example]}, order)
    assert list(shown.lists) == ["a", "b", "c", "ease"]
    assert (len(shown.history), shown.more) == (12, 11)
    (shown,) = example_lists({"examples": [example]}, ["ease", *order[:4]])
    assert list(shown.lists) == ["ease", "a", "b", "c"]
    assert example_lists({}, order) == []
    assert example_lists({"examples": [example]}, ["other"]) == []
