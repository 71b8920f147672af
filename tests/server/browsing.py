"""Helpers for browser tests: a browser, a shop of forty items with hostile titles, and visits to its page."""

import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from playwright.sync_api import Browser, Page, Playwright, Route, expect, sync_playwright

from recfusion.data.interactions import Interactions
from recfusion.server.config import Settings
from running import running
from shop import shop

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
SWITCHES = (
    "headless no-sandbox disable-gpu disable-quic no-first-run disable-background-networking disable-component-update "
    "disable-sync"
)
HISTORY = "i00,i02,i13"  # of the shop
VIEWS = ("list", "map", "compare", "complete", "steps", "model")
PATIENCE = 60_000  # milliseconds: the machine may be busy
EVIL = {
    "i01": '<img src=x onerror="window.hacked=1">',
    "i11": "\"'><script>window.hacked=1</script>",
    "i21": "`${window.hacked=1}` & \u202e",
}


def launched(playwright: Playwright) -> Browser:
    """Return the browser of this machine; skip the test if there is none."""
    expect.set_options(timeout=PATIENCE)
    found = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip(f"no browser found: looked for {', '.join(BROWSERS)}")
    return playwright.chromium.launch(executable_path=found, args=[f"--{switch}" for switch in SWITCHES.split()])


def shop_models(groups: Interactions, folder: Path) -> tuple[Path, Path]:
    """Save two models of a shop with hostile titles; the name of one kind is part of the name of another."""
    paths = []
    for name in ("ease", "popularity"):
        bundle = shop(groups, name)
        titles = [EVIL.get(item, title) for item, title in bundle.items.select("item", "title").iter_rows()]
        kinds = bundle.items["kind"].replace({"Cups": "Tea Cups"})
        bundle = replace(bundle, items=bundle.items.with_columns(pl.Series("title", titles), kinds))
        paths.append(folder / name)
        bundle.save(paths[-1])
    return paths[0], paths[1]


@dataclass
class Visit:
    """Pages of a service, and the problems that were seen on them."""

    browser: Browser
    address: str
    problems: list[str]

    @contextmanager
    def at(
        self,
        fragment: str = "",
        *,
        width: int = 1280,
        height: int = 844,
        delay: int = 0,
        routes: Mapping[str, Callable[[Route], None]] = {},
        **context: Any,
    ) -> Iterator[Page]:
        """Open the page in a fresh browser context; functions of `routes` answer requests to their paths.

        Requests of the page wait for `delay` milliseconds first.
        """
        fresh = self.browser.new_context(viewport={"width": width, "height": height}, **context)
        page = fresh.new_page()
        if delay:
            page.add_init_script(
                "const sent = window.fetch; window.fetch = async (...all) => "
                f"(await new Promise((done) => setTimeout(done, {delay})), sent(...all));"
            )
        page.set_default_timeout(PATIENCE)
        page.on("console", lambda message: self.problems.append(f"console {message.type}: {message.text}"))
        page.on("pageerror", lambda error: self.problems.append(f"error: {error}"))
        page.on("request", lambda request: self._check_address(request.url))
        for path, handler in routes.items():
            page.route(f"**/{path}", handler)
        page.goto(f"{self.address}/{fragment}")
        yield page
        fresh.close()

    def _check_address(self, url: str) -> None:
        if not url.startswith(self.address):
            self.problems.append(f"request: {url}")


@contextmanager
def visiting(settings: Settings) -> Iterator[Visit]:
    """Run a service and a browser for it."""
    with sync_playwright() as playwright:
        browser = launched(playwright)
        with running(settings) as client:
            yield Visit(browser, f"http://127.0.0.1:{client.port}", [])
        browser.close()


def settled(page: Page) -> None:
    """Wait until no request is open."""
    page.locator("main[aria-busy=false]").wait_for()


def go(page: Page, fragment: str) -> None:
    """Follow a link within the page."""
    page.evaluate("fragment => { location.hash = fragment }", fragment)
    expect(page.locator("nav [aria-current]")).to_have_attribute("href", page.evaluate("location.hash || '#'"))
    settled(page)


def ids_shown(page: Page) -> list[str]:
    """Return the ids of the list in its order, once no request is open."""
    settled(page)
    return [str(row.get_attribute("data-flip")) for row in page.locator(".row").all()]


def strongly_low(page: Page, address: str, name: str) -> str:
    """Return the sentence of the page when a slider is at its lower end, in the words of the service."""
    controls = page.request.get(f"{address}/model").json()["controls"]
    return next(f"Strongly towards {one['low']}." for one in controls if one["name"] == name)


def link(history: str = "", **more: str) -> str:
    """Return a fragment; `history` holds ids with commas between them."""
    parts = [f"history={item}" for item in history.split(",") if item]
    return "#" + "&".join([*parts, *(f"{name}={value}" for name, value in more.items() if value != "list")])
