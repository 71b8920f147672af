"""The page with slow answers, outages, long tables, small screens and other scripts."""

import itertools
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from axe_playwright_python.sync_playwright import Axe
from browsing import HISTORY, VIEWS, Visit, go, ids_shown, link, settled
from playwright.sync_api import Page, Route, expect

import recfusion as rf
import recfusion.server
from recfusion.data.interactions import Interactions
from recfusion.server.config import Settings
from running import running
from shop import shop

pytestmark = pytest.mark.usefixtures("no_problems")

SLOW = 1500  # milliseconds
LONG = "A long description of a product that nobody reads to its end. " * 12


@pytest.fixture(scope="module")
def folder(groups: Interactions, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A shop with pictures, long texts, Arabic titles and prices in single precision."""
    bundle = shop(groups)
    titles = bundle.items["title"].to_list()
    titles[3], titles[4] = "كتاب الشاي (2024)", "T" * 10_000
    table = bundle.items.with_columns(
        pl.Series("title", titles),
        pl.Series("price", [1.65] * 40, dtype=pl.Float32),
        pl.Series("image_url", [f"https://shop.example/pictures/{n}.jpg?width=200" for n in range(40)]),
        pl.Series("picture", [f"pictures/{n}.webp" for n in range(40)]),
        pl.Series("description", [LONG] * 40),
    )
    return replace(bundle, items=table).save(tmp_path_factory.mktemp("faults") / "shop")


def expect_failures(visit: Visit) -> None:
    """Forget what the browser itself logs about failed requests."""
    visit.problems[:] = [one for one in visit.problems if not re.search(r"Failed to load resource", one)]


def names(page: Page) -> list[str]:
    return page.locator(".entries .name").all_inner_texts()


def test_enter_waits_for_the_titles_of_the_query_that_was_typed(visit: Visit) -> None:
    with visit.at(delay=SLOW) as page:
        settled(page)
        page.get_by_label("Search titles").fill("Item 13")
        expect(page.get_by_role("option", name="Item 13")).to_be_visible()
        page.get_by_label("Search titles").fill("Item 27")
        page.keyboard.press("Enter")
        assert names(page) == []  # not the title that is still shown
        expect(page.locator(".entries .name")).to_have_text(["Item 27"])
        page.get_by_label("Search titles").fill("Item 1")
        assert page.get_by_text("No matching title.").count() == 0


def test_a_slow_page_claims_nothing_before_it_knows(visit: Visit) -> None:
    with visit.at(delay=SLOW) as page:
        expect(page.get_by_role("heading", name="Most popular items")).to_be_visible()
        page.locator(".row").first.get_by_role("button", name="Add").click()
        expect(page.locator(".entries li")).to_have_count(1)
        assert page.get_by_text("knows none of the items").count() == 0  # at once: later it would be gone anyway
        page.get_by_role("heading", name="Based on 1 item").wait_for()


def test_the_page_recovers_from_an_outage_by_itself(visit: Visit, folder: Path, tmp_path: Path) -> None:
    settings = Settings(folder=folder, events=tmp_path / "events.sqlite")
    with running(settings) as client:
        port = client.port
        mortal = Visit(visit.browser, f"http://127.0.0.1:{port}", visit.problems)
        opened = mortal.at(link(HISTORY))
        page = opened.__enter__()
        before = ids_shown(page)
    page.locator(".row").first.get_by_role("button", name="Hide").click()
    expect(page.get_by_role("alert")).to_contain_text("does not answer")
    page.get_by_label("Search titles").fill("Item 13x")
    expect(page.locator(".found")).to_contain_text("The search failed. The service does not answer.")
    assert page.locator(".row").count() == len(before)  # the last good list
    with running(settings, port):
        expect(page.get_by_role("alert")).to_have_count(0)
        assert ids_shown(page)[0] == before[1]
        expect(page.get_by_role("option").first).to_be_visible()
        opened.__exit__(None, None, None)
    expect_failures(visit)


def test_a_page_that_opens_in_an_outage_loads_later(visit: Visit) -> None:
    answers = iter([503, 503])

    def busy(route: Route) -> None:
        status = next(answers, None)
        if status is None:
            route.continue_()
        else:
            route.fulfill(status=status, json={"error": "The service is busy: try again in a second.", "field": ""})

    with visit.at(link(HISTORY), routes={"model": busy}) as page:
        expect(page.get_by_role("alert")).to_contain_text("busy")
        expect(page.locator(".row").first).to_be_visible()
    expect_failures(visit)


def test_names_arrive_after_a_503(visit: Visit) -> None:
    failed: list[str] = []

    def first_fails(route: Route) -> None:
        if "allow" in (route.request.post_data_json or {}) and not failed:
            failed.append("names")
            return route.fulfill(status=503, json={"error": "The service is busy.", "field": ""})
        return route.continue_()

    with visit.at(link(HISTORY), routes={"recommend": first_fails}) as page:
        expect(page.locator(".entries .name")).to_have_text(["Item 0", "Item 2", "Item 13"])
    assert failed == ["names"]
    expect_failures(visit)


def test_a_list_that_fails_says_so_and_loads_no_longer(visit: Visit) -> None:
    wrong = "current=%7B%22range%22%3A%7B%22price%22%3A%5B99%2Cnull%5D%7D%7D"  # prices from 99: none
    with visit.at(f"{link(HISTORY)}&{wrong}") as page:
        expect(page.get_by_role("alert")).to_contain_text("none of 40 items")
        expect(page.get_by_text("Loading")).to_have_count(0)
        go(page, f"{link(HISTORY, view='compare')}&{wrong}")
        expect(page.get_by_text("Loading")).to_have_count(0)
    expect_failures(visit)


def test_bars_are_as_long_as_scores_and_a_colour_is_an_item(visit: Visit, folder: Path) -> None:
    """The bars of a list fall with its ranks; parts and the hatched rest add up; an item has one colour everywhere."""
    history = "i00,i02,i13,i21,i05"
    found = rf.recommend(rf.Bundle.load(folder), history.split(","), 20).to_frame()
    width = "one => one.getBoundingClientRect().width"
    with visit.at(link(history), reduced_motion="reduce") as page:
        settled(page)
        bars = page.locator(".row .bar")
        open_part = "bar => bar.offsetWidth - (bar.querySelector('.against')?.offsetWidth ?? 0)"  # not crossed out
        lengths = [bar.evaluate(open_part) for bar in bars.all()]
        expected = [lengths[0] * score / found["score"][0] for score in found["score"]]
        assert lengths == pytest.approx(expected, abs=4)
        for row in page.locator(".row").all()[:5]:
            parts = row.locator(".bar span:not(.against)")
            assert sum(parts.evaluate_all(f"all => all.map({width})")) == pytest.approx(
                row.locator(".bar").evaluate(width), abs=5
            )
            assert row.locator(".bar .rest, .bar .against").count() == 1
        colours: dict[str, set[str]] = {}
        for part in page.locator(".part").all():
            colour = part.evaluate("one => getComputedStyle(one, '::before').backgroundColor")
            colours.setdefault(part.inner_text().strip(), set()).add(colour)
        assert all(len(own) == 1 for own in colours.values())
        assert len(set.union(*colours.values())) == len(colours) > 2
        page.locator("#popularity").evaluate("at => { at.value = -1; at.dispatchEvent(new Event('input')) }")
        ids_shown(page)
        lengths = [bar.evaluate(open_part) for bar in bars.all()]
        assert all(one >= other - 1 for one, other in itertools.pairwise(lengths))


def test_colours_of_bars_differ_for_colour_blind_people() -> None:
    """In both schemes, with the three kinds of colour blindness (Machado 2009), by CIE distance; 3:1 on the ground."""
    css = (Path(recfusion.server.__file__).parent / "page/style.css").read_text(encoding="utf-8")
    blind = {
        "none": np.eye(3),
        "protanopia": np.array([[0.1523, 1.0526, -0.2049], [0.1145, 0.7863, 0.0992], [-0.0039, -0.0481, 1.0520]]),
        "deuteranopia": np.array([[0.3673, 0.8606, -0.2280], [0.2801, 0.6725, 0.0474], [-0.0118, 0.0429, 0.9689]]),
        "tritanopia": np.array([[1.2555, -0.0767, -0.1788], [-0.0784, 0.9308, 0.1476], [0.0047, 0.6914, 0.3039]]),
    }

    def linear(text: str) -> Any:
        values = np.array([int(text[at : at + 2], 16) for at in (1, 3, 5)]) / 255
        return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)

    def lab(rgb: Any) -> Any:
        to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
        xyz = to_xyz @ np.clip(rgb, 0, 1) / (0.9505, 1, 1.089)
        f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
        return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])

    palettes = re.findall(r"--c\d: (#[0-9a-f]{6})", css)
    grounds = re.findall(r"--paper: (#[0-9a-f]{3,6})", css)
    assert (len(palettes), grounds) == (12, ["#fff", "#14171b"])
    for ground, palette in zip(("#ffffff", "#14171b"), (palettes[:6], palettes[6:]), strict=True):
        luminance = [float(linear(one) @ (0.2126, 0.7152, 0.0722)) + 0.05 for one in (ground, *palette)]
        assert all(max(one, luminance[0]) / min(one, luminance[0]) >= 3 for one in luminance[1:])
        for kind, matrix in blind.items():
            for one, other in itertools.combinations(palette, 2):
                distance = np.linalg.norm(lab(matrix @ linear(one)) - lab(matrix @ linear(other)))
                assert distance > 25, (kind, one, other)


def test_back_undoes_one_change_and_keeps_the_history(visit: Visit) -> None:
    with visit.at() as page:
        settled(page)
        for title in ("Item 13", "Item 27"):
            page.get_by_label("Search titles").fill(title)
            page.get_by_role("option", name=title).click()
        settled(page)
        page.locator("#popularity").evaluate("at => { at.value = -1; at.dispatchEvent(new Event('input')) }")
        page.wait_for_url(re.compile("current="))
        page.go_back()
        expect(page.locator("#popularity")).to_have_value("0")
        assert names(page) == ["Item 13", "Item 27"]
        page.get_by_role("link", name="Compare").click()
        page.go_back()
        assert names(page) == ["Item 13", "Item 27"]
        page.goto("about:blank")
        page.go_back()
        expect(page.locator(".entries .name")).to_have_text(["Item 13", "Item 27"])


def test_a_change_that_is_saved_late_does_not_undo_back(visit: Visit) -> None:
    """Back changes the address before its event: a slider that is saved in between must not push the old view."""
    with visit.at(link(HISTORY)) as page:
        settled(page)
        late = """() => {
            const at = document.getElementById("popularity");
            at.value = -1;
            at.dispatchEvent(new Event("input"));
            history.replaceState(null, "", "#history=i00&view=compare");
        }"""
        page.evaluate(late)
        page.wait_for_timeout(600)
        assert page.evaluate("location.hash") == "#history=i00&view=compare"
        page.evaluate("dispatchEvent(new HashChangeEvent('hashchange'))")
        expect(page.get_by_role("heading", name="Side by side")).to_be_visible()
        expect(page.locator("#popularity")).to_have_value("0")


def test_a_history_of_one_item_has_no_steps(visit: Visit) -> None:
    with visit.at(link("i00", view="steps")) as page:
        expect(page.locator(".steps .lead")).to_have_text("A single item cannot be removed: add a few more.")
        expect(page.locator(".stages")).to_have_count(0)


def test_long_titles_of_examples_end_with_a_whole_line(visit: Visit) -> None:
    examples = {"examples": [{"items": [{"item": f"i0{n}", "name": "A long title " * 30} for n in range(4)]}]}
    with visit.at(routes={"examples*": lambda route: route.fulfill(json=examples)}) as page:
        card = page.locator(".starts .plain").first
        card.wait_for()
        text = card.locator("span").evaluate("at => at.clientHeight / parseFloat(getComputedStyle(at).lineHeight)")
        assert abs(text - 5) < 0.1


def test_steps_count_only_items_that_the_model_knows(visit: Visit) -> None:
    history = ",".join([*(f"i0{n}" for n in range(6)), "nothing", "nobody"])
    with visit.at(link(history, view="steps"), reduced_motion="reduce") as page:
        expect(page.locator(".stages > li").first.locator("circle:not(.none)")).to_have_count(6)
        left = int(re.findall(r"\d+", page.locator(".when span").nth(1).inner_text())[0])
        expect(page.locator(".steps > .lead").last).to_contain_text(f" of {6 - left} removed items restored")
        expect(page.get_by_text("Without 2 items of your history")).to_be_visible()


def test_steps_of_two_hundred_items_fit(groups: Interactions, visit: Visit, tmp_path: Path) -> None:
    """Dots in several rows stay visible, and a step names a dozen of its items."""
    rng = np.random.default_rng(0)
    users = [rng.permutation(300)[:60] for _ in range(120)]
    rows = {"user": np.repeat(np.arange(120), 60).tolist(), "item": np.concatenate(users).tolist()}
    rf.train("ease", rf.load(pl.DataFrame(rows))).save(tmp_path / "large")
    items = [str(n) for n in range(200)]
    with running(Settings(folder=tmp_path / "large", events=tmp_path / "events.sqlite")) as client:
        large = Visit(visit.browser, f"http://127.0.0.1:{client.port}", visit.problems)
        for width in (1280, 390):
            with large.at(link(",".join(items), view="steps"), width=width, reduced_motion="reduce") as page:
                expect(page.locator(".stages > li")).to_have_count(8)
                sizes = (
                    page.locator(".stages > li")
                    .last.locator("circle")
                    .evaluate_all("all => all.map(one => one.getBoundingClientRect().width)")
                )
                assert len(sizes) >= 200
                assert min(size for size in sizes if size) >= 4
                assert page.evaluate("document.documentElement.scrollWidth") <= width
                assert page.locator(".stages > li").nth(3).locator(".chip").count() <= 12


def test_compared_titles_are_whole(visit: Visit) -> None:
    with visit.at(link("i00", view="compare"), width=390) as page:
        settled(page)
        clipped = "all => all.filter(one => one.scrollHeight > one.clientHeight + 1).length"
        assert page.locator(".side .name").evaluate_all(clipped) == 0
        page.locator(".lines path").first.wait_for(state="attached")
        ends = page.locator(".lines path").evaluate_all("all => all.map(one => one.getAttribute('d'))")
        assert all(re.match(r"M0 \d+C", one) for one in ends)


def test_the_focus_stays_near_what_was_removed(visit: Visit) -> None:
    focused = "document.activeElement.getAttribute('aria-label') ?? document.activeElement.id"
    with visit.at(link(HISTORY)) as page:
        settled(page)
        page.get_by_role("button", name="Remove Item 2 from").focus()
        page.keyboard.press("Enter")
        expect(page.locator(".entries li")).to_have_count(2)
        assert page.evaluate(focused) == "Remove Item 13 from the history"
        page.keyboard.press("Enter")
        expect(page.locator(".entries li")).to_have_count(1)
        assert page.evaluate(focused) == "Remove Item 0 from the history"
        page.keyboard.press("Enter")
        expect(page.locator(".entries li")).to_have_count(0)
        assert page.evaluate(focused) == "query"


def test_escape_closes_similar_items_and_returns_to_their_button(visit: Visit) -> None:
    with visit.at(link(HISTORY)) as page:
        settled(page)
        opener = page.locator(".row").nth(1).get_by_role("button", name="Similar to")
        opener.focus()
        page.keyboard.press("Enter")
        expect(page.locator(".similar .chip").first).to_be_visible()
        page.keyboard.press("Tab")
        page.keyboard.press("Escape")
        expect(page.locator(".similar")).to_have_count(0)
        expect(opener).to_be_focused()
        page.locator(".entries .name").first.click()
        page.locator(".similar").get_by_role("button", name="Close").click()
        expect(page.locator(".entries .name").first).to_be_focused()


@pytest.mark.parametrize(("width", "height"), [(390, 844), (360, 640), (640, 422)])  # phones, and 1280 at 200 %
def test_an_open_sheet_leaves_rows_visible(visit: Visit, width: int, height: int) -> None:
    with visit.at(link(HISTORY), width=width, height=height) as page:
        settled(page)
        page.get_by_text("Re-ranking and filters").click()
        expect(page.locator("#popularity")).to_be_visible()
        sheet = page.locator(".controls").bounding_box()
        row = page.locator(".row").first.bounding_box()
        assert sheet is not None
        assert row is not None
        assert -1 <= row["y"] < sheet["y"] - 60
        page.locator("#popularity").evaluate("at => { at.value = -1; at.dispatchEvent(new Event('input')) }")
        ids_shown(page)
        row = page.locator(".row").first.bounding_box()
        assert row is not None
        assert -1 <= row["y"] < sheet["y"] - 60
        page.wait_for_url(re.compile("current="))
        for view in VIEWS:
            go(page, link(HISTORY, view=view))
            assert page.evaluate("document.documentElement.scrollWidth") <= width, view


def test_rows_of_a_table_with_pictures_and_long_texts_stay_short(visit: Visit) -> None:
    with visit.at(link("i00,i01"), width=1280) as page:
        settled(page)
        about = page.locator(".row .about").first
        expect(page.locator(".row .price").first).to_have_text("1.65")
        assert "http" not in about.inner_text()
        assert ".webp" not in about.inner_text()
        assert LONG[:20] in about.inner_text()
        heights = page.locator(".row .about").evaluate_all("all => all.map(one => one.getBoundingClientRect().height)")
        assert max(heights) <= 45  # two lines
        tall = page.locator(".row").evaluate_all("all => all.map(one => one.getBoundingClientRect().height)")
        assert max(tall) < 180
        assert page.evaluate("document.documentElement.scrollWidth") <= 1280


def test_titles_from_right_to_left_keep_their_order(visit: Visit) -> None:
    """The year of an Arabic title stands left of it, also inside of a page in English."""
    with visit.at(link("i03,i00")) as page:
        settled(page)
        assert page.locator(".entries .name").first.evaluate("one => getComputedStyle(one).direction") == "rtl"
        assert page.locator(".entries .name").last.evaluate("one => getComputedStyle(one).direction") == "ltr"
        page.get_by_label("Search titles").fill("كتاب")
        expect(page.get_by_text("It is in your history.")).to_be_visible()


def test_the_description_of_the_routes_opens_with_the_token_of_the_page(
    visit: Visit, folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PAGE_KEY", "a key of more than sixteen characters")
    settings = Settings(folder=folder, events=tmp_path / "keyed.sqlite", api_key_env="PAGE_KEY")
    with running(settings) as client:
        keyed = Visit(visit.browser, f"http://127.0.0.1:{client.port}", visit.problems)
        with keyed.at("#token=a%20key%20of%20more%20than%20sixteen%20characters&history=i00") as page:
            expect(page.locator(".row").first).to_be_visible()
            page.get_by_role("link", name="Routes of the service").click()
            expect(page.get_by_role("heading", name="POST /recommend", exact=True)).to_be_visible()
            assert Axe().run(page).response["violations"] == []


def test_an_evaluated_model_shows_its_evaluation(visit: Visit) -> None:
    with visit.at(link(view="model")) as page:
        expect(page.locator(".metric").first).to_be_visible()
        expect(page.get_by_text("not been evaluated")).to_have_count(0)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_axe_finds_nothing_against_a_full_page(visit: Visit, scheme: Any, width: int) -> None:
    with visit.at(color_scheme=scheme, reduced_motion="reduce", width=width) as page:
        for view in VIEWS:
            go(page, link("i03,i04,i00,i13,nothing", view=view, similar="i00"))
            found = Axe().run(page).response["violations"]
            assert [(view, one["id"], one["nodes"][0]["html"][:300]) for one in found] == []
        page.get_by_label("Search titles").fill("Item")
        expect(page.get_by_role("option").first).to_be_visible()
        assert [one["id"] for one in Axe().run(page).response["violations"]] == []


def test_a_catalogue_of_one_item_opens(groups: Interactions, visit: Visit, tmp_path: Path) -> None:
    rows = pl.DataFrame({"user": [f"u{n}" for n in range(30)], "item": ["only"] * 30})
    data = rf.load(rows, rf.Preparation(min_items_per_user=1))
    rf.train("popularity", data, all_users=True).save(tmp_path / "one")
    with running(Settings(folder=tmp_path / "one", events=tmp_path / "events.sqlite")) as client:
        single = Visit(visit.browser, f"http://127.0.0.1:{client.port}", visit.problems)
        with single.at() as page:
            for view in VIEWS:
                go(page, link(view=view))
                expect(page.locator("main h2").first).to_be_visible()


def test_the_first_click_gives_a_personal_list(visit: Visit, folder: Path) -> None:
    bundle = rf.Bundle.load(folder)
    with visit.at() as page:
        starts = page.get_by_role("button", name=re.compile("^Start with"))
        expect(starts).to_have_count(3)
        texts = starts.first.inner_text().split(" · ")
        starts.first.click()
        expect(page.locator(".entries .name")).to_have_text(texts)
        history = [bundle.names[[name for _, name in bundle.names].index(text)][0] for text in texts]
        assert ids_shown(page) == rf.recommend(bundle, history, 20).to_frame()["item"].to_list()
        page.go_back()
        page.get_by_role("button", name="Surprise me").click()
        expect(page.get_by_role("heading", name=re.compile("^Based on"))).to_be_visible()
        page.get_by_role("button", name="Clear").click()
        page.get_by_role("button", name="Surprise me").wait_for()
        settled(page)
        page.get_by_role("button", name="Surprise me").click()
        settled(page)
        assert names(page)
