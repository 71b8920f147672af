"""The charts: their numbers, hints and classes; texts do not overlap and are escaped."""

import re
from importlib import resources
from itertools import combinations
from xml.etree import ElementTree

import pytest
from markupsafe import Markup
from stored import EVIL, MADE, compared, evil, ordinary, result, single

from recfusion.experiments.comparison import Comparison
from recfusion.report.charts import cost_chart, curve_charts, difference_chart, mean_charts, near_reach
from recfusion.report.svg import Scale, shorten
from recfusion.training.epoch import Curve


def charts(comparison: Comparison) -> list[Markup]:
    first = difference_chart(comparison)
    return [
        *([first] if first else []),
        *mean_charts(comparison).values(),
        cost_chart(comparison),
        *curve_charts(comparison).values(),
    ]


@pytest.fixture(scope="module", params=MADE)
def drawn(request: pytest.FixtureRequest) -> list[Markup]:
    return charts(MADE[request.param]())


def parsed(chart: Markup | None) -> ElementTree.Element:
    assert chart is not None
    return ElementTree.fromstring(chart)


def texts(chart: Markup | None) -> list[str]:
    return [element.text or "" for element in parsed(chart).iter("text")]


def hints(chart: Markup | None) -> list[str]:
    """Return the hover texts of the rows."""
    return [group.findtext("title") or "" for group in parsed(chart).iter("g")]


def row(chart: Markup | None, name: str) -> ElementTree.Element:
    """Return the row of a model."""
    (found,) = [group for group in parsed(chart).iter("g") if (group.findtext("title") or "").startswith(f"{name}:")]
    return found


def classes(element: ElementTree.Element) -> set[str]:
    return set((element.get("class") or "").split())


def test_only_the_style_sheet_has_colours_and_fonts_and_it_has_every_class(drawn: list[Markup]) -> None:
    sheet = resources.files("recfusion.report").joinpath("templates", "style.css").read_text(encoding="utf-8")
    rules = "".join(line for line in sheet.splitlines() if line.startswith("svg "))
    styled = set(re.findall(r"\.([a-z]+)", rules)) | {"tick", "head", "limits", "mean"}  # these look like any text
    allowed = {"class", "id", "viewBox", "role", "aria-labelledby", "text-anchor", "points", "x", "y", "cx", "cy", "r"}
    for element in (element for chart in drawn for element in parsed(chart).iter()):
        assert set(element.attrib) <= allowed | {"width", "height"}
        assert classes(element) <= styled
        assert element.tag in {"svg", "title", "desc", "g", "text", "polyline", "circle", "rect"}


def test_charts_have_a_title_and_a_description_for_screen_readers(drawn: list[Markup]) -> None:
    for chart in drawn:
        root = parsed(chart)
        assert [child.tag for child in root[:2]] == ["title", "desc"]
        assert root.get("role") == "img"
        assert root.get("aria-labelledby") == f"{root[0].get('id')} {root[1].get('id')}"
        assert "width" not in root.attrib
        assert not re.search(r"\b(nan|inf|None)\b", chart)


def test_names_of_elements_are_used_and_occur_once_on_a_page(drawn: list[Markup]) -> None:
    found = [element.get("id") for chart in drawn for element in parsed(chart).iter() if element.get("id")]
    assert len(found) == len(set(found))
    used = set(re.findall(r'#(\w+)|aria-labelledby="(\S+) (\S+)"', "".join(drawn)))
    assert set(found) <= {word for words in used for word in words}


def extent(element: ElementTree.Element) -> tuple[float, float, float]:
    """Return the left end, the right end and the height of a text, in a font with wide letters."""
    size = 11 if classes(element) & {"name", "value"} else 10  # as in the style sheet
    wide = sum(1.0 if ord(char) > 0x2E80 else 0.62 for char in element.text or "") * size
    x, y = float(element.get("x") or "nan"), float(element.get("y") or "nan")
    left = x - {"start": 0.0, "middle": 0.5, "end": 1.0}[element.get("text-anchor") or ""] * wide
    return left, left + wide, y


def test_texts_stay_inside_their_chart_and_do_not_meet(drawn: list[Markup]) -> None:
    for chart in drawn:
        root = parsed(chart)
        _, _, width, height = (float(number) for number in (root.get("viewBox") or "").split())
        boxes = [(extent(element), element.text) for element in root.iter("text") if (element.text or "").strip()]
        for (left, right, y), text in boxes:
            assert left > -8, text
            assert right < width + 8, text
            assert 0 < y <= height
        for ((left, right, y), text), ((other_left, other_right, other_y), other) in combinations(boxes, 2):
            assert abs(y - other_y) > 8 or right <= other_left or other_right <= left, (text, other)


def test_the_same_comparison_makes_the_same_charts() -> None:
    assert charts(ordinary()) == charts(ordinary())


def test_html_in_names_is_text_in_charts() -> None:
    for chart in charts(evil()):
        assert EVIL not in chart
        assert EVIL in "".join(parsed(chart).itertext())


def test_differences_stand_in_their_order_with_numbers_and_tests() -> None:
    chart = difference_chart(ordinary())
    assert [text for text in texts(chart) if text in ("ease", "near", "slim")] == ["ease", "near", "slim"]
    assert {"−0.10", "−3.90", "← below ease"} <= set(texts(chart))
    assert hints(chart)[0] == "ease: the model that the others are compared with"
    assert hints(chart)[2].startswith("slim: −3.90 (−4.0")
    assert hints(chart)[2].endswith(", p at most .001, 3 splits")


def test_a_single_test_user_is_drawn_without_lines_and_said_to_be_no_test() -> None:
    chart = difference_chart(single())
    assert hints(chart)[1] == "popularity: −10.00, not tested: there is one test user, 2 splits"
    assert not any(" to " in text for text in texts(chart))


def test_significant_differences_are_filled_and_coloured_and_others_open() -> None:
    chart = difference_chart(ordinary())
    assert [classes(row(chart, name)) for name in ("ease", "near", "slim")] == [
        {"row", "base"},
        {"row", "open"},
        {"row", "below"},
    ]
    assert "above" in classes(row(difference_chart(compared({"a": 0.4, "ease": 0.3})), "a"))


def test_without_a_reference_differences_are_to_the_best_and_alone_there_are_none() -> None:
    chart = difference_chart(compared({"a": 0.2, "b": 0.3}))
    assert chart is not None
    assert parsed(chart).findtext("title") == "ndcg@100: differences to b"
    assert "−10.00" in texts(chart)
    assert difference_chart(compared({"ease": 0.3})) is None


def test_far_models_are_arrows_with_their_numbers_and_do_not_squash_the_scale() -> None:
    chart = difference_chart(compared({"a": 0.45, "b": 0.42, "ease": 0.43, "random": 0.01}))
    assert {"−42.00", "−42.00 to −42.00"} <= set(texts(chart))
    marks = [float(text.replace("−", "-")) for text in texts(chart) if re.fullmatch(r"[+−]?[\d.]+", text)]
    assert min(mark for mark in marks if mark not in (-42.0, -1.0, 2.0)) >= -1.5
    positive = difference_chart(compared({"popularity": 0.2, "x": 0.21, "ease": 0.2, "mine": 0.6}))
    assert "+40.00 to +40.00" in texts(positive)


@pytest.mark.parametrize(
    ("reaches", "expected"),
    [
        ([5.0], 5.0),
        ([2.0, 20.0], 2.0),
        ([1.0, 2.5], 2.5),  # the whole scale is less than four times as wide
        ([0.1, 1.0, 1.2, 1.5], 1.5),  # too few would be left
        ([0.5, 0.6, 3.0, 20.0, 37.0], 3.0),  # the last gap counts
        ([2.0, 21.0, 41.0], 2.0),
    ],
)
def test_a_scale_reaches_to_the_last_wide_gap(reaches: list[float], expected: float) -> None:
    assert near_reach(reaches) == expected
    assert near_reach(reaches[::-1]) == expected


def test_means_have_a_chart_per_metric_with_splits_and_from_five_on_a_box() -> None:
    made = mean_charts(ordinary())
    assert list(made) == ["ndcg@100", "recall@20"]
    main = made["ndcg@100"]
    assert hints(main)[0].startswith("ease: 37.1 (3")
    assert [classes(row(main, name)) for name in ("ease", "near", "slim")] == [
        {"row", "best"},
        {"row", "tied", "open"},
        {"row"},
    ]
    three, five = (Comparison.of([result("a", 0.3, seed=seed) for seed in range(n)]) for n in (3, 5))
    drawn = [next(iter(mean_charts(found).values())) for found in (three, five)]
    assert [chart.count('class="split"') for chart in drawn] == [3, 5]
    assert [chart.count('class="quartiles"') for chart in drawn] == [0, 1]


def test_costs_mark_those_that_no_better_model_undercuts() -> None:
    made = {"best": (0.4, 100.0, 50), "same": (0.39, 100.0, 9), "cheap": (0.3, 2.0, 0), "bad": (0.2, 3.0, 10)}
    found = [result(label, mean, fit_seconds=cost, parameters=n) for label, (mean, cost, n) in made.items()]
    chart = cost_chart(Comparison.of(found))
    dots = {name: [classes(dot) - {"dot"} for dot in row(chart, name).iter("circle")] for name in made}
    marked = {"cheapest"}
    assert dots == {
        "best": [marked, marked],
        "same": [set(), marked],
        "cheap": [marked, {"cheapest", "open"}],  # no parameters: an open dot at the edge
        "bad": [set(), set()],
    }
    assert {"1 s", "100 s", "40.0"} <= set(texts(chart))
    assert hints(chart)[0] == "best: 40.0, 100.00 s to fit, 50 parameters"


def test_curves_show_the_epochs_that_were_judged_and_the_best_of_them() -> None:
    curve = Curve((1, 2, 3), (0.5, None, 0.4), (0.1, None, 0.3), (1.0, 1.0, 1.0))
    unjudged = Curve((1,), (0.5,), (None,), (1.0,))
    found = [result("a", 0.3, seed=3, curve=curve), result("b", 0.2, seed=3, curve=unjudged), result("c", 0.4, seed=3)]
    ((label, chart),) = curve_charts(Comparison.of(found)).items()
    assert label == "a"
    assert hints(chart) == ["split 3: best 30.00 in epoch 3 of 3"]
    assert {"1", "3", "0", "20"} <= set(texts(chart))


@pytest.mark.parametrize(
    ("low", "high", "spacing", "expected"),
    [
        (0.0, 10.0, 20.0, [0, 2, 4, 6, 8, 10]),
        (23.1, 52.9, 25.0, [30, 40, 50]),
        (-0.12, 0.31, 20.0, [-0.1, 0, 0.1, 0.2, 0.3]),
    ],
)
def test_ticks_are_round_numbers_with_room_for_their_labels(
    low: float, high: float, spacing: float, expected: list[float]
) -> None:
    scale = Scale(low, high, 0, 100)
    assert scale.ticks(spacing) == pytest.approx(expected)
    assert (scale(low), scale(high)) == (0, 100)


def test_names_are_cut_in_the_middle_and_cleared_of_what_cannot_be_drawn() -> None:
    assert shorten("recfusion (paper)") == "recfusion (paper)"
    assert shorten("recfusion (paper, 60 epochs)") == "recfusion (…, 60 epochs)"
    assert shorten("長い" * 30).startswith("長い長い")
    assert len(shorten("長い" * 30)) <= 12
    assert shorten("a\x08b") == "a b"
