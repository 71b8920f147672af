"""The charts: scales that can be checked by hand, and nothing outside the view box."""

import re
from itertools import combinations, pairwise
from xml.etree import ElementTree

import pytest

from recfusion.report.charts import (
    DOT_WIDTH,
    Box,
    Point,
    Row,
    decades,
    dot_plot,
    place_labels,
    reach,
    scatter,
    shorten,
    ticks,
)

ROWS = [
    Row("slim", 32.0, "32.0", (29.0, 35.0), 32.0, (31.0, 33.0), (30.0, 31.0, 32.0, 33.0, 34.0)),
    Row("ease", 36.0, "36.0", (33.0, 39.0), 36.0, (35.0, 37.0), (34.0, 35.0, 36.0, 37.0, 40.0), "best"),
]


def elements(svg: str, tag: str, css: str = "") -> list[ElementTree.Element]:
    return [e for e in ElementTree.fromstring(svg).iter(tag) if not css or css in (e.get("class") or "").split()]


def coordinates(svg: str) -> list[tuple[float, float]]:
    """Return every point that the elements of a chart name."""
    found = []
    for element in ElementTree.fromstring(svg).iter():
        for x, y in (("x", "y"), ("x1", "y1"), ("x2", "y2"), ("cx", "cy")):
            if element.get(x) is not None:
                found.append((float(element.get(x) or "nan"), float(element.get(y) or "nan")))
    return found


def assert_inside(svg: str) -> None:
    left, top, width, height = (float(n) for n in (ElementTree.fromstring(svg).get("viewBox") or "").split())
    assert not re.search(r"\b(nan|inf)\b", svg)
    assert coordinates(svg)
    for x, y in coordinates(svg):
        assert left <= x <= width
        assert top <= y <= height


@pytest.mark.parametrize(
    ("top", "expected"),
    [
        (36.0, [0, 10, 20, 30, 40]),
        (1.2, [0, 0.5, 1, 1.5]),
        (0.3, [0, 0.1, 0.2, 0.3]),
        (100.0, [0, 20, 40, 60, 80, 100]),
        (0.0, [0, 0.2, 0.4, 0.6, 0.8, 1]),
    ],
)
def test_ticks_are_round_and_run_from_zero_past_the_top(top: float, expected: list[float]) -> None:
    assert ticks(top) == expected


def test_ticks_of_any_size_are_few_even_and_enclose_the_top() -> None:
    for top in (3e-7, 0.0101, 0.99, 1.0, 9.99, 55.5, 123456.0):
        marks = ticks(top)
        assert 2 <= len(marks) <= 6
        assert marks[-2] < top <= marks[-1] * (1 + 1e-9)
        assert all(b - a == pytest.approx(marks[1]) for a, b in pairwise(marks))


def test_decades_enclose_positive_values_and_pass_over_zeros() -> None:
    assert decades([0.0, 0.02, 30.0]) == (-2, 2)
    assert decades([10.0]) == (1, 2)
    assert decades([1.0, 1000.0]) == (0, 3)
    assert decades([0.0]) == decades([]) == (0, 1)


def test_reach_is_the_largest_of_means_intervals_and_splits() -> None:
    assert reach(ROWS) == 40.0
    assert reach([Row("zero", 0.0, "0")]) == reach([]) == 0.0


def test_a_dot_stands_where_its_mean_is_on_the_scale() -> None:
    svg = dot_plot(ROWS, ident="m", title="ndcg@100", top=40.0)
    ends = [float(e.get("x1") or "nan") for css in ("axis", "grid") for e in elements(svg, "line", css)]
    zero, forty = min(ends), max(ends)
    assert forty == DOT_WIDTH - 44
    best, second = (float(e.get("cx") or "nan") for e in elements(svg, "circle", "mean"))
    assert best == pytest.approx(zero + (forty - zero) * 36 / 40, abs=0.01)
    assert second == pytest.approx(zero + (forty - zero) * 32 / 40, abs=0.01)


def test_rows_are_sorted_by_value_and_the_best_is_marked() -> None:
    svg = dot_plot(ROWS, ident="m", title="ndcg@100", top=40.0)
    assert [e.text for e in elements(svg, "text", "name")] == ["ease", "slim"]
    assert [e.get("class") for e in elements(svg, "g")] == ["row best", "row"]


def test_a_box_is_drawn_from_five_splits_on_and_a_single_split_is_not_drawn() -> None:
    five = dot_plot(ROWS, ident="m", title="t", top=40.0)
    assert (len(elements(five, "rect", "box")), len(elements(five, "circle", "split"))) == (2, 10)
    three = dot_plot(
        [Row("a", 2.0, "2", splits=(1.0, 2.0, 3.0), iqr=(1.5, 2.5), median=2.0)], ident="m", title="t", top=3
    )
    assert (len(elements(three, "rect", "box")), len(elements(three, "circle", "split"))) == (0, 3)
    one = dot_plot([Row("a", 2.0, "2", splits=(2.0,), iqr=(2.0, 2.0), median=2.0)], ident="m", title="t", top=2.0)
    assert elements(one, "circle", "split") == []


@pytest.mark.parametrize("n", [0, 1, 30])
def test_dot_plots_stay_inside_their_view_box(n: int) -> None:
    names = ["a name that goes on and on " * 3, "長い長い長い長い長い名前です", "<b>&\"'"]
    rows = [Row(names[i % 3], float(i), str(i), (0.0, i + 1.0), i, (i, i), (float(i),) * 6) for i in range(n)]
    assert_inside(dot_plot(rows, ident="m", title="t", top=reach(rows)))


@pytest.mark.parametrize("n", [0, 1, 8, 30, 200])
def test_scatters_stay_inside_their_view_box(n: int) -> None:
    points = [Point(f"model {i}", 10.0 ** (i % 9 - 4) * (i % 7), i * 7 % 31, "said", (0.0, 33.0)) for i in range(n)]
    for seconds in (True, False):
        assert_inside(scatter(points, ident="s", title="t", y_name="y", x_name="x", seconds=seconds))


def test_a_cost_of_zero_stands_at_the_left_edge() -> None:
    points = [Point("none", 0.0, 1.0, "none"), Point("some", 0.1, 2.0, "some"), Point("much", 10.0, 3.0, "much")]
    svg = scatter(points, ident="s", title="t", y_name="y", x_name="x", seconds=True)
    much, some, none = (float(e.get("cx") or "nan") for e in elements(svg, "circle", "mean"))
    assert none == some < much
    assert [e.text for e in elements(svg, "text", "tick")][-3:] == ["100 ms", "1 s", "10 s"]


def test_names_that_have_no_room_are_counted() -> None:
    points = [Point(f"a long name {i}", 1.0, 1.0, "said") for i in range(100)]
    svg = scatter(points, ident="s", title="t", y_name="y", x_name="x", seconds=False)
    named = len(elements(svg, "text", "name"))
    assert 0 < named < 100
    assert f"{100 - named} more, no room for names" in svg


def overlap(a: Box, b: Box) -> bool:
    return min(a[2], b[2]) > max(a[0], b[0]) and min(a[3], b[3]) > max(a[1], b[1])


def test_labels_meet_neither_points_nor_each_other_nor_the_bounds() -> None:
    points = [(20.0 + 37 * i % 300, 20.0 + 53 * i % 200) for i in range(25)]
    bounds = (0.0, 0.0, 340.0, 240.0)
    boxes = [box for box in place_labels(points, [60.0] * 25, bounds) if box]
    assert len(boxes) > 15
    assert not any(overlap(a, b) for a, b in combinations(boxes, 2))
    assert not any(box[0] < x < box[2] and box[1] < y < box[3] for box in boxes for x, y in points)
    assert all(box[0] >= 0 and box[1] >= 0 and box[2] <= 340 and box[3] <= 240 for box in boxes)


def test_a_lonely_point_has_its_label_to_the_right() -> None:
    assert place_labels([(50.0, 50.0)], [30.0], (0, 0, 200, 100)) == [(59.0, 43.5, 89.0, 56.5)]


def test_a_label_goes_elsewhere_rather_than_between_two_points() -> None:
    (label, _) = place_labels([(50.0, 50.0), (95.0, 50.0)], [30.0, 30.0], (0, 0, 200, 100))
    assert label == (11.0, 43.5, 41.0, 56.5)


def test_text_is_escaped_and_charts_are_named_for_those_who_cannot_see_them() -> None:
    row = Row("<i>&", 1.0, "1.0")
    svg = dot_plot([row], ident="m", title="a < b", top=1.0)
    root = ElementTree.fromstring(svg)
    assert root.get("role") == "img"
    title, desc = root[0], root[1]
    assert root.get("aria-labelledby") == f"{title.get('id')} {desc.get('id')}" == "m-title m-desc"
    assert title.text == "a < b"
    assert desc.text == "Mean of each model, best first: <i>& 1.0."


def test_long_names_are_cut() -> None:
    assert shorten("popularity") == "popularity"
    assert shorten("abcdefghijklmnopqr") == "abcdefghijklmnopqr"
    assert shorten("abcdefghijklmnopqrs") == "abcdefghijklmnopq…"
    assert shorten("名" * 10) == "名" * 8 + "…"


def test_a_label_goes_further_rather_than_have_its_leader_cross_another_label() -> None:
    crowd = [(100.0 + 14 * (i % 3), 100.0 + 12 * (i // 3)) for i in range(9)]
    boxes = place_labels(crowd, [50.0] * 9, (0, 0, 400, 260))
    crossings = 0
    for (x, y), box in zip(crowd, boxes, strict=True):
        if box is None:
            continue
        end = (min(max(x, box[0]), box[2]), min(max(y, box[1]), box[3]))
        for other in boxes:
            if other is None or other is box:
                continue
            steps = [(x + (end[0] - x) * i / 20, y + (end[1] - y) * i / 20) for i in range(20)]
            crossings += any(other[0] < a < other[2] and other[1] < b < other[3] for a, b in steps)
    assert crossings == 0
