"""The page: well formed, complete, safe to open, and no wider than the screen."""

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from stored import write_store

from recfusion.core.errors import InputError
from recfusion.report.document import metric_names, read_document
from recfusion.report.page import finding, render, write_page

VOID = {"meta", "link", "wbr", "br", "hr", "img", "input"}
EVIL = "<script>alert(1)</script> & \"quoted\" 'text'"


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


def summary(mean: float, half: float | None = 0.03, n_splits: int = 3) -> dict[str, Any]:
    interval = None if half is None else [max(0.0, mean - half), mean + half]
    return {"mean": mean, "ci95": interval, "median": mean, "iqr": [mean, mean], "splits": [mean] * n_splits}


def model(mean: float, **others: Any) -> dict[str, Any]:
    costs = {"title": "a title", "settings": {"l2": 5.0}, "parameters": 1234, "fit_seconds": 0.5, "score_seconds": 0.1}
    return {**costs, "recall@20": summary(mean / 2), "ndcg@100": summary(mean), **others}


def against(a: str, b: str, difference: float, p: float, metric: str = "ndcg@100") -> dict[str, Any]:
    interval = [difference - 0.01, difference + 0.01]
    return {"metric": metric, "a": a, "b": b, "difference": difference, "ci95": interval, "p": p, "p_holm": p}


def document(**others: Any) -> dict[str, Any]:
    protocol = {
        "name": "ml-latest-small",
        "hash": "9acf6762abbd",
        "users": 659,
        "items": 2078,
        "interactions": 44413,
        "read": {"missing": 17, "unparsable": 3, "notes": ["A note of the reader."]},
        "steps": [{"step": "rows as read", "users": 671, "items": 9066, "interactions": 100004}],
        "assumptions": [f"Assumption {i}." for i in range(6)],
        "licence": "a licence",
        "citation": "a citation",
    }
    models = {"slim": model(0.322), "ease": model(0.361), "near": model(0.36)}
    tests = [against("ease", "slim", 0.039, 0.003), against("ease", "near", 0.001, 0.3)]
    return {"protocol": protocol, "seeds": [0, 1, 2], "models": models, "tests": tests, **others}


EXAMPLE = {
    "user": "42",
    "history": [f"Film {i}" for i in range(42)],
    "lists": {"ease": [{"title": "Found", "hit": True}, {"title": None, "hit": False}], "slim": []},
}


def test_the_page_is_well_formed_and_holds_every_model_metric_and_section() -> None:
    page = Page(render(document(examples=[EXAMPLE], command="recfusion compare", versions={"numpy": "2.1"})))
    for text in ("slim", "ease", "recall@20", "ndcg@100", "36.1", "33.1–39.1", "1,234", "0.50", "Made by recfusion"):
        assert text in page.text
    for text in ("Assumption 5.", "A note of the reader.", "17 with missing", "3 not parsable", "100,004", "a licence"):
        assert text in page.text
    for text in ("a citation", "9acf6762abbd", "0, 1, 2", "recfusion compare", "numpy 2.1", "l2 = 5.0"):
        assert text in page.text
    assert page.text.count("×100") == 1
    assert [len(page.all(tag)) for tag in ("h1", "h2", "svg", "table", "caption")] == [1, 6, 4, 3, 2]
    assert all(head.get("scope") in ("col", "row") for head in page.all("th"))


def test_the_page_needs_nothing_from_outside() -> None:
    text = render(document(examples=[EXAMPLE]))
    addresses = [value for _, found in Page(text).found for key, value in found.items() if key in ("src", "href")]
    assert addresses == ["data:,"]
    assert "url(" not in text
    assert "@import" not in text


def test_html_in_any_text_is_shown_as_it_stands() -> None:
    evil = document(command=EVIL, versions={EVIL: EVIL}, tests=[])
    evil["models"] = {EVIL: model(0.3, title=EVIL, settings={EVIL: EVIL}), "b": model(0.2)}
    evil["examples"] = [{"user": EVIL, "history": [EVIL], "lists": {EVIL: [{"title": EVIL, "hit": True}]}}]
    evil["protocol"] |= dict.fromkeys(("name", "hash", "licence", "citation", "fingerprint"), EVIL)
    evil["protocol"] |= {"assumptions": [EVIL], "read": {"notes": [EVIL]}}
    text = render(evil)
    page = Page(text)
    assert len(page.all("script")) == 1
    assert page.text.count(EVIL) > 15
    assert EVIL not in text


def test_the_best_is_bold_and_what_is_not_told_apart_from_it_has_a_sign() -> None:
    text = render(document())
    assert "<b>36.1</b>" in text
    assert re.search(r"36\.0<span class=\"sign\" aria-hidden=\"true\">=</span>", text)
    assert re.search(r"32\.2<span class=\"sign\"></span>", text)


def test_popularity_and_coverage_have_no_best_and_are_not_the_main_metric() -> None:
    more = {"popularity@20": summary(0.2), "coverage@20": summary(0.5, None)}
    text = render(document(models={"a": model(0.3, **more), "b": model(0.2, **more)}, tests=[]))
    assert "ndcg@100 against fit time" in Page(text).text
    assert text.count('class="best"') == 2
    assert "popularity@20 and coverage@20 describe the lists" in Page(text).text


def test_the_finding_names_the_lead_and_how_sure_it_is() -> None:
    models, tests = {"slim": model(0.322), "ease": model(0.361)}, [against("ease", "slim", 0.039, 0.003)]
    best, rest = finding(models, tests, "ndcg@100")
    expected = "ease is best by ndcg@100: 36.1 (95 % interval 33.1–39.1), 3.9 points ahead of slim (p = .003)."
    assert (best + rest).replace("\u00a0", " ") == expected


@pytest.mark.parametrize(("difference", "p"), [(0.02, 0.05), (0.009, 0.01)])
def test_a_large_p_or_an_interval_with_zero_in_it_is_noise(difference: float, p: float) -> None:
    models = {"b": model(0.3), "a": model(0.3 + difference)}
    _, rest = finding(models, [against("a", "b", difference, p)], "ndcg@100")
    assert "within the noise" in rest
    assert "is best" not in rest


def test_a_tested_runner_up_does_not_hide_another_model_within_the_noise() -> None:
    models = {"a": model(0.36), "b": model(0.35), "c": model(0.34)}
    tests = [against("a", "b", 0.01, 0.001), against("a", "c", 0.02, 0.2)]
    tests[0]["ci95"] = [0.005, 0.015]
    assert "over c is within the noise" in finding(models, tests, "ndcg@100")[1]


def test_the_finding_says_so_where_nothing_was_tested_or_compared_or_all_is_equal() -> None:
    two = {"a": model(0.3), "b": model(0.2)}
    assert finding(two, [], "ndcg@100")[1].endswith("10.0 points ahead of b; the difference was not tested.")
    assert "No other model" in finding({"a": model(0.3)}, [], "ndcg@100")[1]
    same = {"a": model(0.3), "b": model(0.3)}
    assert finding(same, [against("a", "b", 0.0, 1.0)], "ndcg@100")[1].endswith("but so has b.")


def test_metrics_are_what_has_a_mean() -> None:
    assert metric_names({"a": model(0.1), "b": {"mrr@5": summary(0.2), "map@5": {"mean": float("nan")}}}) == [
        "recall@20",
        "ndcg@100",
        "mrr@5",
    ]


def test_a_document_without_models_is_refused() -> None:
    with pytest.raises(InputError, match="compare models first"):
        render({"models": {}})


def test_a_bare_document_is_enough() -> None:
    page = Page(render({"models": {"a": {"ndcg@100": {"mean": 0.0, "ci95": None}}}}))
    assert "a reaches 0.00 by ndcg@100" in page.text
    assert "nan" not in page.text


def strange() -> dict[str, Any]:
    """Return a document with thirty models, names without end, zeros, gaps and one split."""
    models: dict[str, Any] = {f"model{i}" + "_x" * i * 4: model(i / 40, title=None, fit_seconds=0.0) for i in range(29)}
    models["unbroken" * 12] = {"title": "word " * 80, "ndcg@100": summary(0.5, None, 1), "parameters": None}
    found = document(models=models, tests=[], examples=[{**EXAMPLE, "lists": {name: [] for name in models}}])
    found["protocol"]["name"] = "unbroken" * 20
    found["command"] = "x" * 500
    return found


def test_strange_documents_still_make_a_page() -> None:
    page = Page(render(strange()))
    assert "At the left edge, being 0: model0" in page.text
    assert "Not known for unbroken" in page.text
    assert not re.search(r"\b(nan|inf|None)\b", page.text)


def test_a_long_history_is_cut_and_hits_are_marked_with_a_sign() -> None:
    text = render(document(examples=[EXAMPLE]))
    page = Page(text)
    assert "Film 11" in page.text
    assert "Film 12" not in page.text
    assert "and 30 more" in page.text
    assert "1 of 2" in page.text
    assert "✓hit: Found" in page.text
    assert "untitled item" in page.text


def test_the_page_is_written_whole_and_its_path_returned(tmp_path: Path) -> None:
    path = write_page(document(), str(tmp_path / "report.html"))
    assert path == tmp_path / "report.html"
    assert path.read_text(encoding="utf-8") == render(document())
    assert list(tmp_path.iterdir()) == [path]


def luminance(colour: str) -> float:
    digits = colour[1:] if len(colour) == 7 else "".join(2 * digit for digit in colour[1:])
    parts = [int(digits[i : i + 2], 16) / 255 for i in (0, 2, 4)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_text_has_enough_contrast_in_light_and_in_dark() -> None:
    themes = re.findall(r":root \{(.*?)\}", render(document()), re.DOTALL)
    assert len(themes) == 3
    for theme in themes:
        colours = dict(re.findall(r"--(\w+): (#\w+);", theme))
        for text in ("ink", "soft", "accent"):
            for ground in ("paper", "wash"):
                low, high = sorted((luminance(colours[text]), luminance(colours[ground])))
                assert (high + 0.05) / (low + 0.05) >= 4.5


def test_a_note_stands_above_everything_else_and_is_no_more_than_text() -> None:
    text = render(document(note=f"This is the quick version {EVIL}"))
    assert "This is the quick version" in Page(text).text
    assert text.index('class="banner"') < text.index('class="facts"')
    assert EVIL not in text
    assert 'class="banner"' not in render(document())


def test_splits_are_a_column_where_models_have_different_numbers_of_them() -> None:
    assert ">Splits</th>" not in render(document())
    fewer = document(tests=[])
    fewer["models"]["slim"] = model(0.322, n_splits=1)
    text = render(fewer)
    assert ">Splits</th>" in text
    assert '<td class="cost" data-value="1">1</td>' in text


def test_the_paper_s_values_stand_beside_ours_with_the_difference() -> None:
    paper = {"table": "ml1m", "title": "ML-1M", "models": {"ease": {"ndcg@100": 0.4224}}}
    page = Page(render(document(paper=paper)))
    assert "Beside the paper" in page.text
    for shown in ("42.24", "36.10", "−6.14"):
        assert shown in page.text
    assert "Beside the paper" not in Page(render(document())).text


def test_results_of_a_store_show_slices_curves_and_how_to_run_them_again(tmp_path: Path) -> None:
    text = render(read_document(write_store(tmp_path / "tried.jsonl")))
    page = Page(text)
    for heading in ("By activity of the user", "By popularity of the item", "Training", "How to run again"):
        assert heading in page.text
    assert "recfusion run again.toml" in page.text
    assert "[models.small]" in page.text
    assert text.count('class="curve"') == 2  # one network on two splits
    assert "--shade:34" in text
    assert "numpy" in page.text


def test_what_a_document_does_not_say_is_left_out() -> None:
    page = Page(render(document()))
    for heading in ("By activity", "Training", "Examples", "again.toml"):
        assert heading not in page.text
