"""The page: well formed, complete, safe to open, and no wider than the screen."""

import json
import re
from base64 import b64decode
from dataclasses import replace
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from stored import EVIL, MADE, compared, example, ordinary, protocol, result

from recfusion.evaluation.metrics import is_descriptive
from recfusion.experiments.comparison import Comparison
from recfusion.paper.tables import METRICS as PAPER_METRICS
from recfusion.report.page import render, write_page
from recfusion.report.tables import results_csv

VOID = {"meta", "link", "wbr", "br", "hr", "img", "input"}


class Page(HTMLParser):
    """The elements and the text of a page; raises where an element is closed that is not open."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.found: list[tuple[str, dict[str, str]]] = []
        self.text = ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, {key: value or "" for key, value in attrs}))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, {key: value or "" for key, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("style", "script"):
            self.text += data

    def all(self, tag: str) -> list[dict[str, str]]:
        return [attributes for name, attributes in self.found if name == tag]


@cache
def rendered(name: str) -> str:
    """Return the page of one of the comparisons that several tests look at, made once."""
    return render(MADE[name]())


def test_the_page_is_well_formed_and_holds_every_model_metric_and_section() -> None:
    page = Page(rendered("ordinary"))
    for text in ("slim", "ease", "recall@20", "ndcg@100", "37.1", "1,234", "0.50", "a title", "Made by recfusion"):
        assert text in page.text
    for text in ("Strong generalization", "A note of the reader.", "17 with missing", "3 not parsable", "100,004"):
        assert text in page.text
    for text in ("a licence", "a citation", "9acf6762abbd", "0, 1, 2", "recfusion compare", "numpy 2.1", "l2 = 5.0"):
        assert text in page.text
    assert page.text.count("×100") == 1
    assert [len(page.all(tag)) for tag in ("h1", "svg", "caption")] == [1, 4, 2]
    assert all(head.get("scope") in ("col", "row") for head in page.all("th"))


def test_contents_lead_to_every_section_and_the_last_fit_has_a_date() -> None:
    page = Page(rendered("ordinary"))
    heads = [found["id"] for found in page.all("h2")]
    assert heads == ["differences", "results", "metrics", "costs", "slices", "protocol", "again"]
    assert [found["href"] for found in page.all("a") if found["href"].startswith("#")] == [f"#{name}" for name in heads]
    assert "2025-03-09" in page.text


def test_the_data_behind_the_page_can_be_saved() -> None:
    links = {found["download"]: found["href"] for found in Page(rendered("ordinary")).all("a") if "download" in found}
    texts = {name: b64decode(address.partition(";base64,")[2]).decode() for name, address in links.items()}
    assert json.loads(texts["results.json"]) == ordinary().document()
    assert texts["results.csv"] == results_csv(ordinary())


@pytest.mark.parametrize("name", MADE)
def test_the_page_needs_nothing_from_outside(name: str) -> None:
    text = rendered(name)
    page = Page(text)
    addresses = [value for _, found in page.found for key, value in found.items() if key in ("src", "href")]
    assert all(address.startswith(("#", "data:")) for address in addresses)
    assert all(address.startswith("#") for address in re.findall(r"url\(([^)]*)", text))
    assert "@import" not in text
    (policy,) = [found["content"] for found in page.all("meta") if "http-equiv" in found]
    assert policy.startswith("default-src 'none';")


def test_html_in_any_text_is_shown_as_it_stands() -> None:
    text = rendered("evil")
    page = Page(text)
    assert len(page.all("script")) == 1
    assert page.text.count(EVIL) > 25
    assert EVIL not in text


def test_the_best_is_bold_and_what_is_not_told_apart_from_it_has_a_sign() -> None:
    text = rendered("ordinary")
    assert "<b>37.1</b>" in text
    assert re.search(r"37\.0<span class=\"sign\" aria-hidden=\"true\">=</span>", text)
    assert re.search(r"33\.2<span class=\"sign\"></span>", text)


def test_differences_stand_beside_the_main_metric_and_say_to_whom() -> None:
    text = rendered("ordinary")
    assert "ndcg@100 vs ease" in Page(text).text
    assert re.search(r'<td class="below" data-value="-3\.[89]\d*">−3\.90', text)
    assert "less ease" not in text
    assert "vs b" in Page(render(compared({"a": 0.2, "b": 0.3}))).text


def test_popularity_and_coverage_have_no_best_and_are_not_the_main_metric() -> None:
    metrics = ("ndcg@100", "popularity@20", "coverage@20")
    more = {"ndcg@100": np.full(40, 0.3), "popularity@20": np.full(40, 0.5)}
    others: dict[str, Any] = {"protocol": protocol(metrics=metrics), "test": more, "overall": {"coverage@20": 0.4}}
    text = render(Comparison.of([result("a", 0.3, **others), result("b", 0.3, **others)]))
    assert all(is_descriptive(metric) for metric in metrics[1:])
    assert text.count('class="best"') == 1 + text.count('--shade:34" class="best"')
    assert "popularity@20 and coverage@20 describe the lists" in Page(text).text


def test_strange_comparisons_still_make_a_page() -> None:
    page = Page(rendered("strange"))
    assert "A comparison of 30 recommenders" in page.text
    assert "untitled item" in page.text
    assert "no history" in page.text
    assert not re.search(r"\b(nan|inf|None)\b", page.text)


def test_one_model_with_one_metric_is_enough() -> None:
    card = protocol(metrics=("ndcg@100",))
    page = Page(render(Comparison.of([result("a", 0.0, protocol=card, test={"ndcg@100": np.zeros(40)})])))
    assert "Use a: its ndcg@100 is 0.00, and there is no other model to compare it with." in page.text
    assert "Differences" not in page.text
    assert "nan" not in page.text


def test_users_of_examples_have_numbers_unless_their_ids_may_be_shown() -> None:
    shown = (example(1, {"Found": True, "Missed": False}), example(2, {"Found": False}, user="u42"))
    page = Page(render(Comparison.of([result("ease", 0.3, examples=shown)])))
    for text in ("User 1", "User u42", "Film 1; Film 2", "and 30 more", "1 of 2", "✓hit: Found"):
        assert text in page.text
    assert "User 2" not in page.text


def test_the_page_is_written_whole_and_its_path_returned(tmp_path: Path) -> None:
    path = write_page(ordinary(), str(tmp_path / "report.html"))
    assert path == tmp_path / "report.html"
    assert path.read_text(encoding="utf-8") == rendered("ordinary")
    assert list(tmp_path.iterdir()) == [path]


def luminance(colour: str) -> float:
    digits = colour[1:] if len(colour) == 7 else "".join(2 * digit for digit in colour[1:])
    parts = [int(digits[i : i + 2], 16) / 255 for i in (0, 2, 4)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_text_has_enough_contrast_in_light_and_in_dark() -> None:
    themes = re.findall(r":root \{(.*?)\}", rendered("ordinary"), re.DOTALL)
    assert len(themes) == 3
    for theme in themes:
        colours = dict(re.findall(r"--(\w+): (#\w+);", theme))
        for text in ("ink", "soft", "accent", "below"):
            for ground in ("paper", "wash"):
                low, high = sorted((luminance(colours[text]), luminance(colours[ground])))
                assert (high + 0.05) / (low + 0.05) >= 4.5


def test_a_note_stands_above_everything_else() -> None:
    text = render(replace(compared({"a": 0.3}), note="This is the quick version."))
    assert "This is the quick version." in Page(text).text
    assert text.index('class="banner"') < text.index('class="facts"')
    assert 'class="banner"' not in rendered("ordinary")


def test_splits_are_a_column_where_models_have_different_numbers_of_them() -> None:
    assert ">Splits</th>" not in rendered("ordinary")
    text = rendered("real")
    assert ">Splits</th>" in text
    assert '<td class="cost" data-value="1">1</td>' in text


def test_the_paper_s_values_stand_beside_ours_with_the_difference() -> None:
    card = protocol(name="ml-1m", metrics=PAPER_METRICS)
    test = {metric: np.full(40, 0.25) for metric in PAPER_METRICS}
    made = [result(label, 0.3, protocol=card, test=test, settings={}) for label in ("ease", "recfusion-bin", "bspm")]
    page = Page(render(Comparison.of(made)))
    for shown in ("Comparison with the paper", "42.24", "−17.24", "21.94", "+3.06"):
        assert shown in page.text
    assert "Comparison with the paper" not in Page(rendered("ordinary")).text


def test_real_results_show_slices_curves_and_how_to_run_them_again() -> None:
    text = rendered("real")
    page = Page(text)
    for heading in ("By activity of the user", "By popularity of the item", "Training", "How to run it again"):
        assert heading in page.text
    assert "recfusion run again.toml" in page.text
    assert "[models.small]" in page.text
    assert page.text.count("of 3; split 1: best ") == 1  # one network on two splits
    assert "--shade:34" in text
    assert "User 1" in page.text
    assert "u1" not in page.text  # ids stay at home


def test_models_of_older_and_of_unknown_code_are_marked_and_the_details_name_the_code() -> None:
    old = result("ease", 0.3, code="0" * 16, commit="abc123+")
    page = Page(render(Comparison.of([old, result("slim", 0.2, code=""), result("popularity", 0.1)])))
    assert "ease †" in page.text
    assert "slim ‡" in page.text
    assert not re.search("popularity [†‡]", page.text)
    assert "†: fitted by older code than that of this version." in page.text
    assert "‡: not known to be fitted by the code of this version." in page.text
    assert f"code: {'0' * 16} (commit abc123+) (stale)" in page.text
    assert "code: unknown" in page.text
    assert not {"†", "‡"} & set(Page(rendered("ordinary")).text)
