"""Pages of a shop: keys for browsers, the element <recfusion-list>, and the generated clients."""

import hashlib
import importlib.util
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from browsing import launched
from playwright.sync_api import Page, expect, sync_playwright

from recfusion.core.errors import InputError
from recfusion.data.interactions import Interactions
from recfusion.server.event_store import Store
from recfusion.server.keys import read_key_file
from running import Client, running, settings_for
from shop import shop

KEY, OPEN_KEY = "the key of the shop page", "the key of the engineer"
PAGE = """<!doctype html><html lang="de"><title>Shop</title>
<script type="module" src="{service}/static/recfusion-list.js"></script>
<recfusion-list placement="basket" history="i01,i02" key="{key}" heading="Passt dazu" link="/p/{{item}}">
</recfusion-list>
"""


def table(name: str, key: str, more: str) -> str:
    return f'[{name}]\nsha256 = "{hashlib.sha256(key.encode()).hexdigest()}"\n{more}\n'


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    """A web server of the shop, and its origin."""
    folder = tmp_path_factory.mktemp("pages")
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=folder)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield folder, f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture(scope="module")
def served(
    groups: Interactions, pages: tuple[Path, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Client, Path]]:
    base = tmp_path_factory.mktemp("served")
    limits = f'scopes = ["read", "events"]\nplacements = ["basket"]\norigins = ["{pages[1]}"]'
    (base / "keys.toml").write_text(table("page", KEY, limits) + table("own", OPEN_KEY, 'scopes = ["read", "events"]'))
    settings = settings_for(
        shop(groups).save(base / "shop"), key_file=base / "keys.toml", placements={"basket": {"k": 3}}
    )
    with running(settings) as client:
        yield client, settings.events


def test_a_key_for_browsers_works_only_from_its_pages(served: tuple[Client, Path], pages: tuple[Path, str]) -> None:
    client, body = served[0], {"history": ["i01"], "placement": "basket"}
    sent = {"Authorization": f"Bearer {KEY}", "Origin": pages[1]}
    answer = client.post("/recommend", body, sent)
    assert (answer.status, answer.headers["access-control-allow-origin"]) == (200, pages[1])
    asked = client.ask("OPTIONS", "/recommend", None, {"Origin": pages[1], "Access-Control-Request-Method": "POST"})
    assert asked.status == 204
    assert client.post("/recommend", body, {"Authorization": f"Bearer {KEY}"}).status == 403
    assert client.post("/recommend", body, sent | {"Origin": "http://elsewhere.example"}).status == 403
    assert client.post("/recommend", {"history": ["i01"]}, sent).status == 403
    private = client.post("/recommend", {"user": "somebody", "placement": "basket"}, sent)
    assert (private.status, private.json["field"]) == (403, "user")
    bought = client.post("/events", {"user": "u", "item": "i01", "kind": "purchase"}, sent)
    assert (bought.status, bought.json["field"]) == (403, "kind")
    assert client.post("/events", {"user": "u", "item": "i01", "kind": "click"}, sent).status == 201


@pytest.mark.parametrize(
    "more",
    [
        'scopes = ["read"]\norigins = ["https://shop.example"]',
        'scopes = ["read"]\nplacements = ["basket"]\norigins = ["shop.example"]',
        'scopes = ["read", "admin"]\nplacements = ["basket"]\norigins = ["https://shop.example"]',
    ],
)
def test_a_key_for_browsers_needs_placements_whole_origins_and_no_admin_scope(tmp_path: Path, more: str) -> None:
    (tmp_path / "keys.toml").write_text(table("page", KEY, more))
    with pytest.raises(InputError, match="key-file"):
        read_key_file(tmp_path / "keys.toml")


def test_the_element_shows_a_list_on_a_page_of_the_shop_and_records_a_click(
    served: tuple[Client, Path], pages: tuple[Path, str]
) -> None:
    client, events = served
    (pages[0] / "index.html").write_text(PAGE.format(service=f"http://127.0.0.1:{client.port}", key=KEY))
    with sync_playwright() as playwright:
        browser = launched(playwright)
        page = browser.new_page()
        page.goto(f"{pages[1]}/index.html")
        links = page.locator("recfusion-list a")
        expect(links).to_have_count(3)
        expect(page.locator("recfusion-list h2")).to_have_text("Passt dazu")
        first = str(links.first.get_attribute("href"))
        links.first.click()  # the page is left, and the event arrives all the same
        row = _first_event(events)
        changed = _items(page, pages[1])
        assert len(changed) == 3
        browser.close()
    assert row == (first.removeprefix("/p/"), "click")


def _first_event(events: Path) -> tuple[Any, ...]:
    until = time.monotonic() + 60
    with closing(Store(events)) as store:
        while time.monotonic() < until and not (
            rows := store.rows("SELECT item, kind FROM events WHERE recommendation IS NOT NULL")
        ):
            time.sleep(0.05)
    return rows[0]


def _items(page: Page, origin: str) -> list[str]:
    """Return the items after the history of the element has changed."""
    page.goto(f"{origin}/index.html")
    expect(page.locator("recfusion-list a")).to_have_count(3)
    page.evaluate("document.querySelector('recfusion-list').setAttribute('history', 'i30,i31')")
    page.wait_for_function(
        "!document.querySelector('recfusion-list').shadowRoot.querySelector('a').href.includes('i03')"
    )
    return [str(link.get_attribute("href")) for link in page.locator("recfusion-list a").all()]


def test_the_python_client_is_typed_and_answers_like_the_service(served: tuple[Client, Path], tmp_path: Path) -> None:
    client = served[0]
    own = {"Authorization": f"Bearer {OPEN_KEY}"}
    source = client.get("/static/client.py").body.decode()
    (tmp_path / "shop_client.py").write_text(source)
    spec = importlib.util.spec_from_file_location("shop_client", tmp_path / "shop_client.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    made = module.Client(f"http://127.0.0.1:{client.port}/", OPEN_KEY)
    found = made.recommend(history=["i01", "i02"], k=4, where="stock > 0")
    expected = client.post("/recommend", {"history": ["i01", "i02"], "k": 4, "where": "stock > 0"}, own).json
    assert found["items"] == expected["items"]
    assert (
        made.popular(k=2, deny=["i01", "i02"])["items"]
        == client.get("/popular?k=2&deny=i01&deny=i02", own).json["items"]
    )
    with pytest.raises(module.ServiceError, match="no such item") as caught:
        made.similar(item="?")
    assert (caught.value.status, caught.value.field) == (404, "item")


def test_the_javascript_client_answers_like_the_service(served: tuple[Client, Path]) -> None:
    client = served[0]
    script = """async (key) => {
        const { Client } = await import("/static/client.js");
        const made = new Client(location.origin, key);
        const wrong = await made.similar({ item: "?" }).catch((error) => [error.status, error.field]);
        const popular = await made.popular({ k: 2, deny: ["i01", "i02"] });
        return [popular.items, (await made.recommend({ history: ["i01"] })).items, wrong];
    }"""
    with sync_playwright() as playwright:
        browser = launched(playwright)
        page = browser.new_page()
        page.goto(f"http://127.0.0.1:{client.port}/docs")
        popular, listed, wrong = page.evaluate(script, OPEN_KEY)
        browser.close()
    own = {"Authorization": f"Bearer {OPEN_KEY}"}
    assert popular == client.get("/popular?k=2&deny=i01&deny=i02", own).json["items"]
    assert listed == client.post("/recommend", {"history": ["i01"]}, own).json["items"]
    assert wrong == [404, "item"]


def test_every_reading_route_can_be_tried_in_the_list_of_routes(groups: Interactions, tmp_path: Path) -> None:
    with running(settings_for(shop(groups).save(tmp_path / "shop"))) as client, sync_playwright() as playwright:
        browser = launched(playwright)
        page = browser.new_page()
        page.goto(f"http://127.0.0.1:{client.port}/docs")
        boxes = page.locator("details")
        expect(page.get_by_role("heading", name="GET /metrics")).to_be_visible()
        for number in range(boxes.count()):
            boxes.nth(number).locator("summary").click()
        answers = page.locator("details pre")
        expect(answers.first).to_contain_text("recommendation_id")
        page.wait_for_function("[...document.querySelectorAll('pre')].every((one) => one.textContent !== '…')")
        statuses = [text.split("\n")[0] for text in answers.all_text_contents()]
        assert set(statuses) == {"200", ""}  # routes that write wait for the button
        page.set_viewport_size({"width": 390, "height": 844})
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        lines = page.locator("td code").evaluate_all("all => all.map(one => one.getClientRects().length)")
        assert set(lines) == {1}  # names of fields are whole
        assert Axe().run(page).response["violations"] == []
        browser.close()


def test_the_request_of_a_list_is_shown_as_code_that_runs(groups: Interactions, tmp_path: Path) -> None:
    with running(settings_for(shop(groups).save(tmp_path / "shop"))) as client, sync_playwright() as playwright:
        browser = launched(playwright)
        page = browser.new_page()
        address = f"http://127.0.0.1:{client.port}"
        page.goto(f"{address}/#history=i01&history=i02&k=4")
        page.get_by_text("Show the request").click()
        shown = page.locator(".code pre").all_text_contents()
        expect(page.locator("main")).to_contain_text("Item 3")
        listed = page.locator("main").inner_text()
        browser.close()
        (tmp_path / "client.py").write_bytes(client.get("/static/client.py").body)
        python = subprocess.run(
            [sys.executable, "-c", shown[1]], cwd=tmp_path, capture_output=True, text=True, check=True
        )
        curl = subprocess.run(["bash", "-c", shown[0]], capture_output=True, text=True, check=True)
    found = [item["name"] for item in json.loads(curl.stdout)["items"]]
    assert python.stdout.strip() == str(found)
    assert len(found) == 4
    assert all(name in listed for name in found)
