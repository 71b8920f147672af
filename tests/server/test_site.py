"""The built site in a browser: four of its pages have no faults that axe finds, and load nothing from the network.

`python scripts/build_docs.py` builds the site, which `.ci/run` does before it runs this test again.
"""

from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from browsing import PATIENCE, launched
from playwright.sync_api import sync_playwright

from named_tests import ROOT

SITE = ROOT / "build" / "docs"
PAGES = (
    "docs/index.html",
    "docs/tutorials/five-minutes.html",
    "docs/gallery/index.html",
    "docs/reference/generated/models.html",
)

pytestmark = pytest.mark.skipif(not (SITE / "llms.txt").is_file(), reason="the site is not built")


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 390)])
def test_the_site_is_accessible_fits_its_window_and_needs_no_network(scheme: Any, width: int) -> None:
    with sync_playwright() as playwright:
        browser = launched(playwright)
        page = browser.new_context(viewport={"width": width, "height": 844}, color_scheme=scheme).new_page()
        page.set_default_timeout(PATIENCE)
        problems, asked = list[str](), list[str]()
        page.on("pageerror", lambda error: problems.append(f"error: {error}"))
        page.on("request", lambda request: asked.append(request.url))
        for name in PAGES:
            page.goto((SITE / name).as_uri())
            assert page.locator("html").get_attribute("data-theme") == scheme
            found = Axe().run(page).response["violations"]
            problems += [f"{name}: {one['id']}: {node['html']}" for one in found for node in one["nodes"]]
            if page.evaluate("document.documentElement.scrollWidth > innerWidth"):
                problems.append(f"{name} is wider than {width} pixels")
        browser.close()
    assert problems == []
    assert [address for address in asked if not address.startswith("file:")] == []
