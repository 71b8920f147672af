"""The charts: what they show, in the page's colours, with texts that neither meet nor can do harm."""

import re
from itertools import combinations
from xml.etree import ElementTree

import pytest
from stored import EVIL, MADE, compared, evil, ordinary, result, single

from recfusion.experiments.comparison import Comparison
from recfusion.report.charts import Chart, cost_chart, curve_charts, difference_chart, mean_charts, near_reach
from recfusion.report.drawing import shorten
from recfusion.training.epoch import Curve


def charts(comparison: Comparison) -> list[Chart]:
    first = difference_chart(comparison)
    return [*([first] if first else []), *mean_charts(comparison), cost_chart(comparison), *curve_charts(comparison)]


@pytest.fixture(scope="module", params=MADE)
def drawn(request: pytest.FixtureRequest) -> list[Chart]:
    return charts(MADE[request.param]())


def parsed(chart: Chart | None) -> ElementTree.Element:
    assert chart is not None
    return ElementTree.fromstring(chart.svg)


def texts(chart: Chart | None) -> list[str]:
    return [element.text or "" for element in parsed(chart).iter("text")]


def told(chart: Chart | None) -> list[str]:
    """Return what pointing at marks says, each once."""
    root = parsed(chart)
    return list(dict.fromkeys(title.text or "" for title in root.iter("title") if title is not root[0]))


def styles_of(chart: Chart | None, name: str) -> str:
    """Return the styles of everything that has the hover title of a model."""
    groups = [group for group in parsed(chart).iter("g") if (group.findtext("title") or "").startswith(f"{name}:")]
    return " ".join(element.get("style") or "" for group in groups for element in group.iter() if element.tag != "text")


def test_charts_have_the_page_s_colours_and_say_what_they_show(drawn: list[Chart]) -> None:
    for chart in drawn:
        root = parsed(chart)
        styles = " ".join(element.get("style") or "" for element in root.iter())
        assert "#" not in styles
        assert "font-family" not in styles
        assert set(re.findall(r"var\(--(\w+)\)", styles)) <= {"ink", "soft", "rule", "accent", "below", "paper"}
        assert [child.tag for child in root[:2]] == ["title", "desc"]
        assert root.get("role") == "img"
        assert root.get("aria-labelledby") == f"{root[0].get('id')} {root[1].get('id')}"
        assert "width" not in root.attrib
        assert not any(element.tag in ("style", "metadata", "script") for element in root.iter())
        assert not re.search(r"\b(nan|inf|None)\b", str(chart.svg))


def test_names_of_elements_are_used_and_occur_once_on_a_page(drawn: list[Chart]) -> None:
    found = [element.get("id") for chart in drawn for element in parsed(chart).iter() if element.get("id")]
    assert len(found) == len(set(found))
    used = set(re.findall(r'#(\w+)|aria-labelledby="(\S+) (\S+)"', "".join(chart.svg for chart in drawn)))
    assert set(found) <= {word for words in used for word in words}


def extent(element: ElementTree.Element) -> tuple[float, float, float]:
    """Return the left, the right and the base line of a text, its letters as wide as those of wide fonts are."""
    style = element.get("style") or ""
    size = float(re.findall(r"font-size: ([\d.]+)px|([\d.]+)px", style)[0][0] or 11)
    wide = sum(1.0 if ord(char) > 0x2E80 else 0.62 for char in element.text or "") * size
    x, y = float(element.get("x") or "nan"), float(element.get("y") or "nan")
    left = x - {"start": 0.0, "middle": 0.5, "end": 1.0}[re.findall(r"text-anchor: (\w+)", style)[0]] * wide
    return left, left + wide, y


def test_texts_stay_inside_their_chart_and_do_not_meet(drawn: list[Chart]) -> None:
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
    assert [chart.svg for chart in charts(ordinary())] == [chart.svg for chart in charts(ordinary())]


def test_html_in_names_is_text_in_charts() -> None:
    for chart in charts(evil()):
        assert EVIL not in chart.svg
        assert EVIL in "".join(parsed(chart).itertext())


def test_differences_stand_in_their_order_with_numbers_and_tests() -> None:
    chart = difference_chart(ordinary())
    assert [text for text in texts(chart) if text in ("ease", "near", "slim")] == ["ease", "near", "slim"]
    assert {"−0.10", "−3.90", "← below ease"} <= set(texts(chart))
    assert told(chart)[0] == "ease: what the others are compared with"
    assert told(chart)[2].startswith("slim: −3.90 (−4.0")
    assert told(chart)[2].endswith(", p at most .001, 3 splits")


def test_a_single_test_user_is_drawn_without_lines_and_said_to_be_no_test() -> None:
    chart = difference_chart(single())
    assert told(chart)[1] == "popularity: −10.00, not tested: there is one test user, 2 splits"
    assert not any(" to " in text for text in texts(chart))


def test_models_told_apart_are_in_colour_and_others_open() -> None:
    chart = difference_chart(ordinary())
    assert "var(--below)" in styles_of(chart, "slim")
    assert "var(--paper)" not in styles_of(chart, "slim")
    assert {"var(--soft)", "var(--paper)"} <= set(re.findall(r"var\(--\w+\)", styles_of(chart, "near")))
    above = difference_chart(compared({"a": 0.4, "ease": 0.3}))
    assert "var(--accent)" in styles_of(above, "a")


def test_without_a_reference_differences_are_to_the_best_and_alone_there_are_none() -> None:
    chart = difference_chart(compared({"a": 0.2, "b": 0.3}))
    assert chart is not None
    assert chart.title == "ndcg@100: differences to b"
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
    main, other = mean_charts(ordinary())
    assert (main.title, other.title) == ("ndcg@100", "recall@20")
    assert told(main)[0].startswith("ease: 37.1 (3")
    assert "var(--accent)" in styles_of(main, "ease")
    assert "var(--paper)" in styles_of(main, "near")  # open: not told apart
    three, five = (Comparison.of([result("a", 0.3, seed=seed) for seed in range(n)]) for n in (3, 5))
    counts = [len(re.findall("opacity: 0.45", mean_charts(found)[0].svg)) for found in (three, five)]
    boxes = [mean_charts(found)[0].svg.count("stroke-width: 0.7") for found in (three, five)]
    assert boxes == [0, 1]
    assert counts[0] >= 3


def test_costs_mark_those_that_no_better_model_undercuts() -> None:
    made = {"best": (0.4, 100.0, 50), "same": (0.39, 100.0, 9), "cheap": (0.3, 2.0, 0), "bad": (0.2, 3.0, 10)}
    found = [result(label, mean, fit_seconds=cost, parameters=n) for label, (mean, cost, n) in made.items()]
    chart = cost_chart(Comparison.of(found))
    marked = {name: "var(--accent)" in styles_of(chart, name) for name in made}
    assert marked == {"best": True, "same": True, "cheap": True, "bad": False}  # same: by its parameters
    assert {"1 s", "100 s", "40.0"} <= set(texts(chart))
    assert told(chart)[0] == "best: 40.0, 100.00 s to fit, 50 parameters"
    assert "var(--paper)" in styles_of(chart, "cheap")  # no parameters at all: open, at the edge


def test_curves_show_the_epochs_that_were_judged_and_the_best_of_them() -> None:
    curve = Curve((1, 2, 3), (0.5, None, 0.4), (0.1, None, 0.3), (1.0, 1.0, 1.0))
    unjudged = Curve((1,), (0.5,), (None,), (1.0,))
    found = [result("a", 0.3, seed=3, curve=curve), result("b", 0.2, seed=3, curve=unjudged), result("c", 0.4, seed=3)]
    (chart,) = curve_charts(Comparison.of(found))
    assert chart.title == "a"
    assert told(chart) == ["split 3: best 30.00 in epoch 3 of 3"]
    assert {"1", "3", "0", "20"} <= set(texts(chart))


def test_names_are_cut_in_the_middle_and_cleared_of_what_cannot_be_drawn() -> None:
    assert shorten("recfusion (paper)") == "recfusion (paper)"
    assert shorten("recfusion (paper, 60 epochs)") == "recfusion (…, 60 epochs)"
    assert shorten("長い" * 30).startswith("長い長い")
    assert len(shorten("長い" * 30)) <= 12
    assert shorten("a\x08b") == "a b"
