"""The taste map, why-not, bars, curves and images in a real browser."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import polars as pl
import pytest
from axe_playwright_python.sync_playwright import Axe
from browsing import HISTORY, Visit, go, ids_shown, link, settled
from playwright.sync_api import Page, Route, expect

import recfusion as rf
from recfusion.data.interactions import Interactions
from recfusion.data.load import load
from recfusion.data.options import Preparation
from recfusion.inference.request import ListRequest
from recfusion.inference.why_not import why_not
from recfusion.server.config import Settings
from running import running
from shop import shop

pytestmark = pytest.mark.usefixtures("no_problems")

CDN = "https://pictures.example"


@pytest.fixture(scope="module")
def folder(groups: Interactions, tmp_path_factory: pytest.TempPathFactory) -> Path:
    bundle = shop(groups)
    points = {f"{at:g}": {"mean": 0.4 - 0.1 * abs(at), "users": 9, "popularity": 20.0} for at in (-1.0, 0.0, 1.0)}
    table = bundle.items.with_columns(
        pl.Series("image_url", [f"{CDN}/{n}.png" if n % 2 else f"https://other.example/{n}.png" for n in range(40)]),
        pl.Series("description", ["A long text about it. " * 30] * 40),
    )
    bundle = replace(bundle, items=table, metrics=bundle.metrics | {"control popularity": points})
    return bundle.save(tmp_path_factory.mktemp("map") / "shop")


def mapped(page: Page) -> None:
    """Wait until the map is drawn."""
    page.locator(".chart canvas").wait_for()
    settled(page)
    page.wait_for_function("document.querySelector('.chart canvas').width > 300")


def ink(page: Page) -> int:
    """Return the number of pixels of the canvas that differ from its corner."""
    count = page.evaluate(
        """() => { const at = document.querySelector(".chart canvas");
        const { data } = at.getContext("2d").getImageData(0, 0, at.width, at.height);
        const words = new Uint32Array(data.buffer); return words.filter((one) => one !== words[0]).length }"""
    )
    return int(count)


def history(page: Page) -> list[str]:
    return re.findall(r"history=([^&]+)", page.url)


def test_the_map_shows_all_items_and_lists_that_say_the_same(visit: Visit) -> None:
    with visit.at(link(HISTORY, view="map"), reduced_motion="reduce") as page:
        mapped(page)
        page.wait_for_timeout(100)
        assert ink(page) > 2000
        expect(page.locator(".chart canvas")).to_have_attribute("aria-label", re.compile("Map of 40 items"))
        go(page, link(HISTORY))
        wanted = ids_shown(page)[:12]
        go(page, link(HISTORY, view="map"))
        named = page.locator(".brief .name").all_inner_texts()
        assert len(named) == len(wanted) == 12
        assert "because of" in named[0]
        page.get_by_role("button", name="Tea", exact=True).last.click()  # of the legend
        expect(page.locator(".swatch[aria-pressed=true]")).to_have_text("Tea")


def test_a_lasso_makes_its_items_the_history_and_back_undoes_it(visit: Visit) -> None:
    with visit.at(link(view="map"), reduced_motion="reduce") as page:
        mapped(page)
        page.get_by_role("button", name="Lasso").click()
        page.locator(".chart").scroll_into_view_if_needed()
        box = page.locator(".chart canvas").bounding_box()
        assert box is not None
        left, top, wide, high = box["x"], box["y"], box["width"], box["height"]
        page.mouse.move(left + 2, top + 2)
        page.mouse.down()
        for x, y in ((0.99, 0.01), (0.99, 0.99), (0.01, 0.99), (0.01, 0.02)):
            page.mouse.move(left + x * wide, top + y * high, steps=4)
        page.mouse.up()
        expect(page.get_by_text("The 12 most popular of 40 items in the lasso are your history now.")).to_be_visible()
        settled(page)
        assert len(history(page)) == 12
        page.go_back()
        expect(page.locator(".entries li")).to_have_count(0)


def test_the_map_works_with_the_keyboard_alone(visit: Visit) -> None:
    with visit.at(link(view="map"), reduced_motion="reduce") as page:
        mapped(page)
        page.locator(".chart canvas").focus()
        for key in ("+", "+", "+", "ArrowLeft", "ArrowUp"):
            page.keyboard.press(key)
        expect(page.get_by_role("heading", name="In view")).to_be_visible()
        chips = page.locator(".lists .chips .chip").count()
        assert 0 < chips <= 12
        page.get_by_role("button", name="Make these my history").focus()
        page.keyboard.press("Enter")
        settled(page)
        assert len(history(page)) == chips
        page.locator(".chart canvas").focus()
        page.keyboard.press("0")
        expect(page.get_by_role("heading", name="All items")).to_be_visible()


def position(page: Page, found: dict[str, Any], place: int) -> tuple[float, float]:
    """Return where a dot of the whole map is on the screen."""
    page.locator(".chart").scroll_into_view_if_needed()
    box = page.locator(".chart canvas").bounding_box()
    assert box is not None
    least = 0.94 * min(box["width"], box["height"])
    wide, high = (min(1.4 * least, 0.94 * length) for length in (box["width"], box["height"]))
    x, y = (found["x"][place] - 0.5) * wide + box["width"] / 2, (found["y"][place] - 0.5) * high + box["height"] / 2
    return box["x"] + x, box["y"] + y


def test_a_dot_that_is_clicked_can_be_added(visit: Visit) -> None:
    with visit.at(link(HISTORY, view="map"), reduced_motion="reduce") as page:
        mapped(page)
        found = page.request.get(f"{visit.address}/map").json()
        place = next(n for n, item in enumerate(found["items"]) if item not in HISTORY.split(","))
        page.mouse.click(*position(page, found, place))
        chosen = page.locator(".chosen")
        expect(chosen).to_contain_text("users")
        chosen.get_by_role("button", name="Add").click()
        expect(page.locator(".entries li")).to_have_count(4)


def test_the_map_answers_why_an_item_is_not_in_the_list(visit: Visit) -> None:
    with visit.at(link(HISTORY, view="map", k="1"), reduced_motion="reduce") as page:
        mapped(page)
        found = page.request.get(f"{visit.address}/map").json()
        answer = page.request.post(f"{visit.address}/recommend", data={"history": HISTORY.split(","), "k": 1}).json()
        listed = [*HISTORY.split(","), *(one["item"] for one in answer["items"])]
        place = next(n for n, item in enumerate(found["items"]) if item not in listed)
        page.mouse.click(*position(page, found, place))
        page.locator(".chosen").get_by_role("button", name="Why is").click()
        expect(page.locator("nav [aria-current]")).to_have_text("List")
        expect(page.locator(".decision")).to_be_in_viewport()
        expect(page.locator(".decision")).to_contain_text(found["names"][place])


def test_thinning_is_animated_on_the_map_step_by_step(visit: Visit) -> None:
    eight = ",".join(f"i0{n}" for n in range(8))
    with visit.at(link(eight, view="map")) as page:
        mapped(page)
        page.get_by_role("button", name="Thinning").click()
        slider = page.get_by_role("slider", name="Step")
        expect(slider).to_have_attribute("aria-valuetext", "2 of 7")  # it plays
        page.get_by_role("button", name="Pause").click()
        before = page.locator(".chart canvas").screenshot()
        slider.press("End")
        expect(page.locator(".map .lead").last).to_contain_text("removed items restored")
        page.wait_for_timeout(300)
        assert page.locator(".chart canvas").screenshot() != before
        page.get_by_role("button", name="Thinning").click()
        expect(slider).to_have_count(0)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"items": []} | {"note": "This model folder has no map: train the model again to get one."}, "no map"),
        ({"columns": []}, "Size is popularity"),
        ({"without": 199_960}, "199,960 items without a place"),
    ],
)
def test_the_map_says_what_it_cannot_show(visit: Visit, change: dict[str, Any], words: str) -> None:
    def answer(route: Route) -> None:
        route.fulfill(json=route.fetch().json() | change)

    with visit.at(link(HISTORY, view="map"), routes={"map?*": answer}, reduced_motion="reduce") as page:
        expect(page.locator(".map")).to_contain_text(words)


def test_a_map_of_twenty_thousand_items_with_hostile_titles(visit: Visit) -> None:
    n = 20_000

    def answer(route: Route) -> None:
        numbers = range(n)
        many: dict[str, Any] = {"items": [f"x{k}" for k in numbers], "names": ["<img src=x onerror=hack()>" * 20] * n}
        many |= {
            "x": [k % 141 / 141 for k in numbers],
            "y": [k / n for k in numbers],
            "users": [n - k for k in numbers],
        }
        columns = [{"name": "kind", "values": ["<b>", "c"], "of": [k % 3 - 1 for k in numbers]}]
        route.fulfill(json=route.fetch().json() | many | {"columns": columns})

    with visit.at(link(HISTORY, view="map"), routes={"map?*": answer}, reduced_motion="reduce") as page:
        mapped(page)
        expect(page.get_by_text("The 12 most popular of 20,000.")).to_be_visible()
        page.get_by_role("button", name="Zoom in").click()
        expect(page.get_by_role("heading", name="In view")).to_be_visible()
        assert page.locator(".map img").count() == 0


@pytest.mark.parametrize("items", [1, 2])
def test_a_catalogue_of_one_or_two_items(visit: Visit, tmp_path: Path, items: int) -> None:
    rows = pl.DataFrame({"user": [f"u{n}" for n in range(6) for _ in range(items)], "item": [*range(items)] * 6})
    data = load(rows, Preparation(min_items_per_user=1, min_users_per_item=1), name="small")
    path = rf.train("popularity", data, all_users=True).save(tmp_path / "one")
    with running(Settings(folder=path, events=tmp_path / "e.sqlite")) as client:
        small = Visit(visit.browser, f"http://127.0.0.1:{client.port}", visit.problems)
        with small.at(link("0", view="map"), reduced_motion="reduce") as page:
            expect(page.locator(".map .lead")).to_have_text(
                "This model finds no items similar, so there is no map of them."
            )
            for view in ("list", "compare", "complete", "steps", "model"):
                go(page, link("0", view=view))
                settled(page)
    visit.problems[:] = [one for one in visit.problems if "422" not in one]


def test_why_not_gives_the_rank_and_a_remedy_that_works(visit: Visit, folder: Path) -> None:
    bundle = rf.Bundle.load(folder)
    with visit.at(link(HISTORY, k="5")) as page:
        shown = ids_shown(page)
        page.get_by_text("Why is an item not in the list?").click()
        page.get_by_label("Its title").fill("Item 35")
        page.locator(".whynot .chip").first.click()
        found = why_not(bundle, "i35", ListRequest(history=HISTORY.split(","), k=5))
        expect(page.locator(".decision")).to_contain_text(f"It has rank {found.rank}, and the list has 5 places.")
        assert "i35" not in shown
        page.get_by_role("button", name=f"Show {found.rank} items").click()
        expect(page.locator(".decision")).to_contain_text(f"in the list, at rank {found.rank}")
        assert "i35" in ids_shown(page)
    only = quote(json.dumps({"only": {"kind": {"Tea": True}}}))
    with visit.at(link(HISTORY, current=only)) as page:
        page.get_by_text("Why is an item not in the list?").click()
        page.get_by_label("Its title").fill("Item 35")
        page.locator(".whynot .chip").first.click()
        expect(page.locator(".decision")).to_contain_text("left out by a filter")
        page.get_by_role("button", name="Remove the filters").click()
        settled(page)
        assert "current" not in page.url


def test_bars_draw_all_reasons_and_their_lengths_add_up(visit: Visit) -> None:
    five = "i00,i02,i13,i04,i25"
    with visit.at(link(five)) as page:
        ids_shown(page)
        answer = page.request.post(
            f"{visit.address}/recommend", data={"history": five.split(","), "k": 20, "why": 5}
        ).json()["items"]
        for n in (0, 1, 2):
            row, one = page.locator(".row").nth(n), answer[n]
            parts = row.locator(".bar span:not(.rest):not(.against)")
            assert parts.count() == len(one["because"])
            widths = [float(str(part.get_attribute("style")).split("width:")[1].strip(" %;")) for part in parts.all()]
            whole = sum(reason["weight"] for reason in one["because"]) + max(one["other"], 0)
            assert widths == pytest.approx([100 * reason["weight"] / whole for reason in one["because"]], abs=0.1)
            assert row.locator(".against").count() == int(one["other"] < -0.005 * whole)


def test_re_ranking_says_what_it_changed_and_sliders_what_they_cost(visit: Visit) -> None:
    lower = quote(json.dumps({"popularity": -1}))
    with visit.at(link(HISTORY, current=lower, k="5")) as page:
        settled(page)
        expect(page.locator(".changes")).to_contain_text("not in the list without re-ranking. Median popularity:")
        expect(page.locator(".curve")).to_have_count(1)
        expect(page.locator(".curve")).to_have_attribute("aria-label", re.compile("at -1 lists are 75 % as accurate"))


def test_images_come_from_allowed_origins_only_and_missing_ones_leave_no_gap(visit: Visit, folder: Path) -> None:
    pixel = bytes.fromhex(
        "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de0000000c49444154789c63f8cfc000000301"
        "0100c9fe92ef0000000049454e44ae426082"
    )

    def picture(route: Route) -> None:
        lost = route.request.url.endswith("1.png")
        route.abort() if lost else route.fulfill(body=pixel, content_type="image/png")

    with visit.at(link(HISTORY)) as page:
        ids_shown(page)
        assert page.locator(".picture").count() == 0  # without the option
    settings = Settings(folder=folder, events=folder.with_name("i.sqlite"), image_origin=(CDN,))
    with running(settings) as client:
        shown = Visit(visit.browser, f"http://127.0.0.1:{client.port}", [])
        _check_images(shown, picture)
    assert {one for one in shown.problems if CDN not in one} <= {
        "console error: Failed to load resource: net::ERR_FAILED"
    }


def _check_images(visit: Visit, picture: Callable[[Route], None]) -> None:
    with visit.at(link(HISTORY), routes={"*.png": picture}) as page:
        ids_shown(page)
        page.locator(".picture").first.wait_for(state="attached")
        assert 0 < page.locator(".picture").count() < 20
        assert all(str(one.get_attribute("src")).startswith(CDN) for one in page.locator(".picture").all())
        heights = [row.bounding_box() for row in page.locator(".row").all()]
        assert max(box["height"] for box in heights if box) < 150  # a title, a price and two lines
        expect(page.locator(".price").first).to_be_visible()
        go(page, link(view="model"))
        expect(page.locator(".roles")).to_contain_text("image")
        expect(page.locator(".roles")).to_contain_text("image_url")
        page.unroute_all(behavior="wait")  # a picture may still be on its way


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_against_the_map_and_why_not(visit: Visit, scheme: Any) -> None:
    with visit.at(link(HISTORY, view="map"), color_scheme=scheme, reduced_motion="reduce") as page:
        mapped(page)
        page.get_by_role("button", name="Thinning").click()
        page.get_by_role("slider", name="Step").wait_for()
        first = Axe().run(page).response["violations"]
        go(page, link(HISTORY, k="5"))
        page.get_by_text("Why is an item not in the list?").click()
        page.get_by_label("Its title").fill("Item 35")
        page.locator(".whynot .chip").first.click()
        page.locator(".decision").wait_for()
        found = [*first, *Axe().run(page).response["violations"]]
        assert [(one["id"], one["nodes"][0]["html"]) for one in found] == []
