"""The page in a real browser: user actions and what the page then shows."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from axe_playwright_python.sync_playwright import Axe
from browsing import EVIL, HISTORY, VIEWS, Visit, go, ids_shown, link, settled, shop_models, strongly_low, visiting
from playwright.sync_api import Page, Route, expect

import recfusion as rf
from recfusion.data.interactions import Interactions
from recfusion.server.config import Settings
from running import running

pytestmark = pytest.mark.usefixtures("no_problems")


@pytest.fixture(scope="module")
def models(groups: Interactions, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return shop_models(groups, tmp_path_factory.mktemp("page"))


@pytest.fixture(scope="module")
def visit(models: tuple[Path, Path]) -> Iterator[Visit]:
    """A service with two models, and a browser."""
    folder, also = models
    events = folder.with_name("events.sqlite")
    with visiting(Settings(folder=folder, also=also, also_share=0, events=events)) as found:
        yield found


def expected(models: tuple[Path, Path], history: str, k: int = 20, **more: Any) -> list[str]:
    """Return the ids that the library recommends."""
    found = rf.recommend(rf.Bundle.load(models[0]), history.split(","), k, **more)
    return found.to_frame()["item"].to_list()


def settings(**values: Any) -> str:
    return quote(json.dumps(values, separators=(",", ":")))


def slide(page: Page, name: str, value: float) -> None:
    """Move a slider as a hand does, which ends in an input event."""
    page.locator(f"#{name}").evaluate(
        "(at, value) => { at.value = value; at.dispatchEvent(new Event('input')) }", str(value)
    )


def test_a_title_with_a_typo_is_found_picked_and_changes_the_list(visit: Visit, models: tuple[Path, Path]) -> None:
    with visit.at() as page:
        expect(page.get_by_role("heading", name="Most popular items")).to_be_visible()
        page.get_by_label("Search titles").fill("itm 13")
        page.get_by_role("option", name="Item 13").click()
        expect(page.locator(".entries li")).to_have_text(["Item 13×"])
        assert ids_shown(page) == expected(models, "i13")
        expect(page.locator("#status")).to_contain_text("20 items; first")  # announced to screen readers


def test_a_slider_gives_the_list_that_the_library_gives(visit: Visit, models: tuple[Path, Path]) -> None:
    with visit.at(link(HISTORY)) as page:
        assert ids_shown(page) == expected(models, HISTORY)
        slide(page, "popularity", -1)
        expect(page.locator(".lead")).to_have_text(strongly_low(page, visit.address, "popularity"))
        assert ids_shown(page) == expected(models, HISTORY, reranking=rf.Reranking(popularity=-1.0))
        page.get_by_role("button", name="Reset all").click()
        assert ids_shown(page) == expected(models, HISTORY)


def test_controls_are_drawn_from_what_the_service_declares(visit: Visit) -> None:
    """A control that no JavaScript names gets a slider, bounds, a default, words, and a place in requests and links."""
    control: dict[str, Any] = {
        "name": "freshness",
        "kind": "weight",
        "title": "Freshness",
        "low": "classics",
        "high": "new items",
    }
    control |= {"help": "Prefer new items.", "min": -2, "max": 2, "default": 1}
    sent: list[dict[str, Any]] = []

    def declare(route: Route) -> None:
        model = route.fetch().json()
        kept = [one for one in model["controls"] if one["kind"] != "weight"]
        route.fulfill(json=model | {"controls": [control, *kept]})

    def answer(route: Route) -> None:  # as a service that knows the control
        body: dict[str, Any] = route.request.post_data_json or {}
        sent.extend([body.pop("reranking")] if "reranking" in body else [])
        route.continue_(post_data=json.dumps(body))

    routes = {"model": declare, "recommend": answer}
    with visit.at(link(HISTORY, current=settings(freshness=9, popularity=-1)), routes=routes) as page:
        settled(page)
        slider = page.get_by_role("slider", name="Freshness")
        assert [slider.get_attribute(name) for name in ("min", "max")] == ["-2", "2"]
        expect(slider).to_have_value("1")  # 9 is outside the bounds, so the default stays
        expect(page.locator(".controls .slider")).to_have_count(1)
        expect(page.locator(".lead")).to_have_text("No filters or re-ranking.")
        slide(page, "freshness", -2)
        expect(page.locator(".lead")).to_have_text("Strongly towards classics.")
        settled(page)
        assert sent[0] == {}
        assert {"freshness": -2} in sent[-2:]  # beside the list without re-ranking
        page.wait_for_url(re.compile("current=.*freshness"))


def test_a_link_sets_the_history_both_settings_and_the_view(visit: Visit, models: tuple[Path, Path]) -> None:
    both = "current=" + settings(popularity=-0.5) + "&saved=" + settings(diversity=0.5)
    with visit.at(f"#history=i00&history=i02&{both}&view=compare") as page:
        settled(page)
        expect(page.locator(".entries li")).to_have_count(2)
        expect(page.locator("#popularity")).to_have_value("-0.5")
        shown = page.locator(".side:first-child .name").all_inner_texts()
        bundle, knobs = rf.Bundle.load(models[0]), rf.Reranking(diversity=0.5)
        assert shown == rf.recommend(bundle, ["i00", "i02"], 20, reranking=knobs).to_frame()["title"].to_list()
        page.wait_for_url(re.compile("#history=i00&history=i02&current=.*&saved=.*&view=compare"))


def test_a_slider_in_motion_makes_no_queue_and_the_last_position_counts(
    visit: Visit, models: tuple[Path, Path]
) -> None:
    with visit.at(link(HISTORY)) as page:
        ids_shown(page)
        asked: list[str] = []
        page.on("request", lambda request: asked.extend([request.url] * request.url.endswith("recommend")))
        page.locator("#adventurousness").evaluate(
            """at => {
                for (const n of Array(20).keys()) { at.value = (n + 1) / 20; at.dispatchEvent(new Event("input")) }
            }"""
        )
        assert ids_shown(page) == expected(models, HISTORY, reranking=rf.Reranking(adventurousness=1.0))
        assert len(asked) == 3  # the first position, the last, and the list without re-ranking


def test_chips_set_weights_shares_and_filters(visit: Visit, models: tuple[Path, Path]) -> None:
    with visit.at(link(HISTORY)) as page:
        tea = page.get_by_role("button", name=re.compile("^Tea(:|$)"))
        tea.click()
        tea.click()
        expect(tea).to_have_text("++Tea")
        assert ids_shown(page) == expected(models, HISTORY, reranking=rf.Reranking(wish={"kind": {"Tea": 1.0}}))
        page.get_by_text("only", exact=True).click()
        tea.click()
        where = "kind == 'Tea'"  # and not Tea Cups
        assert ids_shown(page) == expected(models, HISTORY, filters=rf.Filters(where=where))
        page.get_by_text("none of", exact=True).click()
        tea.click()
        assert ids_shown(page) == expected(models, HISTORY, filters=rf.Filters(where=f"not {where}"))
        page.get_by_text("a share", exact=True).click()
        tea.click()
        assert ids_shown(page) == expected(models, HISTORY, reranking=rf.Reranking(shares={"kind": {"Tea": 0.3}}))


def test_filters_come_from_the_columns_of_the_item_table(visit: Visit, models: tuple[Path, Path]) -> None:
    with visit.at(link(HISTORY)) as page:
        page.get_by_label("price from").fill("3.5")
        page.get_by_label("price to").fill("14")
        page.get_by_label("title with").fill("item")
        page.get_by_label("new", exact=True).select_option("yes")
        page.locator(".most select").select_option("2")
        where = "price >= 3.5 and price <= 14 and title contains 'item' and new == true"
        assert ids_shown(page) == expected(models, HISTORY, filters=rf.Filters(where=where, at_most={"kind": 2}))
        page.get_by_label("title with").fill("nothing is called so")
        expect(page.get_by_role("alert")).to_have_text("The filters leave none of 40 items: relax one of them.")
        expect(page.locator(".row")).to_have_count(0)  # an older list would not pass the filters
        page.get_by_role("button", name="Remove the filters").click()
        expect(page.get_by_role("alert")).to_have_count(0)
        expect(page.get_by_label("price from")).to_have_value("")
        expect(page.get_by_role("button", name="Reset all")).to_be_hidden()
        assert ids_shown(page) == expected(models, HISTORY)
    visit.problems[:] = [problem for problem in visit.problems if "422" not in problem]  # logged by the browser itself


def test_every_item_says_why_and_what_is_similar_and_can_be_hidden(visit: Visit, models: tuple[Path, Path]) -> None:
    with visit.at(link(HISTORY), reduced_motion="reduce") as page:  # bars have their widths at once
        found = rf.recommend(rf.Bundle.load(models[0]), HISTORY.split(","), 20, why=3).to_frame()
        settled(page)
        first = page.locator(".row").first
        texts = [reason["text"] for reason in found["because"][0]]
        assert [part.strip() for part in first.locator(".part").all_inner_texts()] == texts
        widths = first.locator(".bar span").evaluate_all("all => all.map(one => one.getBoundingClientRect().width)")
        weights = [reason["weight"] for reason in found["because"][0]]
        assert widths[1] / widths[0] == pytest.approx(weights[1] / weights[0], rel=0.1)
        first.get_by_role("button", name="Similar to").click()
        settled(page)
        like = rf.similar(rf.Bundle.load(models[0]), found["item"][0], 8)["title"].to_list()
        shown = [text.removeprefix("+") for text in page.locator(".similar .chip").all_inner_texts()]
        assert [text.strip() for text in shown] == [
            name for name in like if name not in ("Item 0", "Item 2", "Item 13")
        ]
        first.get_by_role("button", name="Hide ").click()
        assert found["item"][0] not in ids_shown(page)
        page.get_by_role("button", name="Show 1 hidden item").click()
        assert ids_shown(page)[0] == found["item"][0]


def test_two_settings_stand_side_by_side_with_their_differences(visit: Visit, models: tuple[Path, Path]) -> None:
    with visit.at(link(HISTORY, view="compare", k="8")) as page:
        expect(page.locator(".lead")).to_contain_text("The two lists are the same")
        page.get_by_role("button", name=re.compile("^Coffee")).dblclick()
        expect(page.locator(".lead")).to_contain_text("in both lists")
        settled(page)
        plain = expected(models, HISTORY, 8)
        other = expected(models, HISTORY, 8, reranking=rf.Reranking(wish={"kind": {"Coffee": 1.0}}))
        assert page.locator(".side:first-child .alone").count() == len(set(plain) - set(other)) > 0
        assert page.locator(".side:last-child .mark", has_text="new").count() == len(set(other) - set(plain))
        assert page.locator(".lines path").count() == len(set(plain) & set(other))
        ups = [item for item in other if item in plain and plain.index(item) > other.index(item)]
        assert page.locator(".side:last-child .mark", has_text="↑").count() == len(ups)


def test_two_models_stand_side_by_side(visit: Visit, models: tuple[Path, Path]) -> None:
    with visit.at(link(HISTORY, view="compare")) as page:
        page.locator(".side:last-child select").select_option("popularity")
        expect(page.locator(".lead")).to_contain_text("in both lists")
        settled(page)
        popular = rf.recommend(rf.Bundle.load(models[1]), HISTORY.split(","), 20).to_frame()["title"].to_list()
        assert page.locator(".side:last-child .name").all_inner_texts() == popular


def test_the_history_is_completed_by_three_sets(visit: Visit, models: tuple[Path, Path]) -> None:
    with visit.at(link(HISTORY, view="complete")) as page:
        expect(page.locator(".sets section")).to_have_count(3)
        found = rf.complete(rf.Bundle.load(models[0]), HISTORY.split(","), 4, alternatives=3)
        assert page.locator(".sets strong").all_inner_texts() == found["title"].to_list()
        page.get_by_role("button", name="Add all 4 to the history").first.click()
        expect(page.locator(".entries li")).to_have_count(7)


def test_the_reverse_process_is_drawn_step_by_step(visit: Visit) -> None:
    history = ",".join(f"i0{n}" for n in range(8))
    with visit.at(link(history, view="steps"), reduced_motion="reduce") as page:
        expect(page.locator(".stages > li")).to_have_count(8)  # the history, the items left of it, six steps
        expect(page.locator(".stages > li").first.locator(".known")).to_have_count(8)
        left = page.locator(".stages > li").nth(1).locator(".known").count()
        last = page.locator(".stages > li").last.locator("svg")
        assert 1 <= left < 8
        assert last.locator(".known, .back, .other").count() == 8  # as many as there were
        expect(page.locator(".steps .lead").last).to_contain_text(f"of {8 - left} removed items restored")
    with visit.at(link(history, view="steps")) as page:  # with motion they come one after the other
        expect(page.locator(".stages > li")).to_have_count(1)
        expect(page.locator(".stages > li")).to_have_count(2)
        page.get_by_role("button", name="Pause").click()
        page.get_by_role("slider", name="Step").press("End")
        expect(page.locator(".stages > li")).to_have_count(8)


def test_the_model_view_shows_a_card_per_model(visit: Visit) -> None:
    with visit.at(link(view="model")) as page:
        expect(page.locator(".card")).to_have_count(2)
        expect(page.locator(".card").first).to_contain_text("Limitations")


@pytest.mark.parametrize("judged_on", ["test", "validation"])
def test_the_evaluation_of_a_model_is_shown(visit: Visit, judged_on: str) -> None:
    metric = {
        "metric": "recall@20",
        "judged_on": judged_on,
        "users": 50,
        "mean": 0.3,
        "ci95": [0.2, 0.4],
        "words": "W.",
    }

    def judged(route: Route) -> None:
        model = route.fetch().json()
        model["models"][0]["metrics"] = [metric]
        route.fulfill(json=model)

    with visit.at(link(view="model"), routes={"model": judged}) as page:
        card = page.locator(".card").first
        expect(card.locator(".metric")).to_contain_text("probably be 20 to 40 in 100")
        expect(card.locator(".metric .full")).to_have_count(30)
        expect(card.get_by_text("not been evaluated")).to_have_count(0)
        expect(card.get_by_text("slightly lower")).to_have_count(int(judged_on == "validation"))


def test_the_page_works_with_the_keyboard_alone(visit: Visit, models: tuple[Path, Path]) -> None:
    with visit.at() as page:
        expect(page.locator(".row").first).to_be_visible()
        page.keyboard.press("/")
        page.keyboard.type("Item 1")
        expect(page.locator("#found li").first).to_be_visible()
        settled(page)  # the answer to a later letter takes the choice back
        page.keyboard.press("ArrowDown")
        page.keyboard.press("ArrowDown")
        page.keyboard.press("ArrowUp")
        chosen = page.locator("[aria-selected=true]")
        assert page.get_by_label("Search titles").get_attribute("aria-activedescendant") == chosen.get_attribute("id")
        name = chosen.inner_text()
        page.keyboard.press("Enter")
        expect(page.locator(".entries .name")).to_have_text([name])
        for _ in range(40):  # by Tab alone to the slider of popularity, and to its end
            page.keyboard.press("Tab")
            if page.evaluate("document.activeElement.id") == "popularity":
                break
        page.keyboard.press("Home")
        expect(page.locator(".lead")).to_have_text(strongly_low(page, visit.address, "popularity"))
        shown = ids_shown(page)
        for _ in range(80):
            page.keyboard.press("Tab")
            if page.evaluate("document.activeElement.dataset.spot") == "add-2":
                break
        page.keyboard.press("Enter")
        expect(page.locator(".entries .name")).to_have_count(2)
        ids_shown(page)
        assert shown[1] in page.url
        assert page.evaluate("document.activeElement.dataset.spot") == "add-2"  # the focus is where it was


def test_the_address_holds_the_view_and_back_undoes(visit: Visit) -> None:
    with visit.at(link(HISTORY, current=settings(popularity=-0.5, only={"kind": {"Tea": True}}))) as page:
        before = ids_shown(page)
        page.locator(".row").first.get_by_role("button", name="Add").click()
        expect(page.locator(".entries li")).to_have_count(4)
        after, url = ids_shown(page), page.url
        page.go_back()
        expect(page.locator(".entries li")).to_have_count(3)
        assert ids_shown(page) == before
    with visit.at(url.partition("/#")[2] and "#" + url.partition("#")[2]) as page:
        assert ids_shown(page) == after
        expect(page.locator("#popularity")).to_have_value("-0.5")


@pytest.mark.parametrize(
    "fragment",
    [
        "#current=%7B",
        "#"
        + "&".join(["history=nothing", "k=1e9", "view=evil", "n=-3", "seed=x", "together=NaN", "similar=no%20such"]),
        "#current="
        + settings(popularity=9, wish={"kind": {"Tea": "x"}}, range={"price": [1, "x"]}, at_most={"kind": 0}),
        "#now=" + settings(model=["x"], wish=7, shares=None, only={"kind": 3}, contains={"title": {}}),
    ],
)
def test_a_link_of_nonsense_opens_the_page(visit: Visit, fragment: str) -> None:
    with visit.at(fragment) as page:
        expect(page.locator(".row").first).to_be_visible()
    visit.problems[:] = [problem for problem in visit.problems if not re.search("404|422", problem)]


def test_titles_of_html_are_titles(visit: Visit) -> None:
    history = ",".join(EVIL)
    with visit.at(reduced_motion="reduce") as page:
        for view in VIEWS:
            go(page, link(history, view=view, similar="i01"))
            expect(page.locator(".entries .name")).to_have_text(list(EVIL.values()))
            settled(page)
            assert page.evaluate("window.hacked") is None
            assert page.locator("img, #app script").count() == 0
        go(page, "")
        page.get_by_label("Search titles").fill("<img")
        expect(page.locator("#found li").first).to_have_text(EVIL["i01"])


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_is_wider_than_a_phone_and_colours_follow_the_scheme(visit: Visit, scheme: Any) -> None:
    with visit.at(width=390, color_scheme=scheme, reduced_motion="reduce") as page:
        for view in VIEWS:
            go(page, link(HISTORY + ",i01", view=view))
            assert page.evaluate("document.documentElement.scrollWidth") <= 390, view
            ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
            assert (sum(map(int, re.findall(r"\d+", ground)[:3])) > 600) == (scheme == "light")


def test_on_a_phone_the_list_is_visible_while_a_slider_moves(visit: Visit) -> None:
    with visit.at(link(HISTORY), width=390) as page:
        expect(page.locator("#popularity")).to_be_hidden()
        page.get_by_text("Re-ranking and filters").click()
        expect(page.locator("#popularity")).to_be_in_viewport()
        page.locator(".row").first.evaluate("row => row.scrollIntoView({ block: 'nearest' })")
        sheet, row = page.locator(".controls").bounding_box(), page.locator(".row").first.bounding_box()
        assert sheet is not None
        assert row is not None
        assert row["y"] + row["height"] <= sheet["y"] + 1


def test_a_service_with_a_key_opens_by_its_token_which_is_in_no_link(
    visit: Visit, models: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    from recfusion.server.keys import Keys

    monkeypatch.setenv("PAGE_KEY", "a key of more than sixteen characters")
    settings = Settings(
        folder=models[0], events=models[0].with_name("keyed.sqlite"), page_secret="s", api_key_env="PAGE_KEY"
    )
    with running(settings) as client:
        keyed = Visit(visit.browser, f"http://127.0.0.1:{client.port}", visit.problems)
        with keyed.at(f"#token={Keys.of(settings).token()}&history=i00") as page:
            expect(page.locator(".row").first).to_be_visible()
            assert page.url.endswith("/#history=i00")
            page.reload()
            expect(page.locator(".row").first).to_be_visible()
        with keyed.at("#token=wrong") as page:
            expect(page.get_by_role("alert")).to_contain_text("needs a token")
    visit.problems[:] = [problem for problem in visit.problems if "401" not in problem]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_against_the_page(visit: Visit, scheme: Any) -> None:
    current = settings(
        wish={"kind": {"Tea": 0.5, "Gift": -1}}, only={"kind": {"Books": True}}, never={"kind": {"Cups": True}}
    )
    with visit.at(color_scheme=scheme, reduced_motion="reduce") as page:
        for view in VIEWS:
            go(page, link(HISTORY, current=current, view=view, similar="i00"))
            rules = {} if scheme == "light" else {"runOnly": ["color-contrast"]}  # all that the scheme can change
            found = Axe().run(page, options=rules).response["violations"]
            assert [(view, one["id"], one["nodes"][0]["html"]) for one in found] == []
