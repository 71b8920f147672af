"""The workbench in a browser: a key, numbers, an edit with a live count, undo, and no accessibility violations."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from browsing import launched
from playwright.sync_api import Browser, Page, expect, sync_playwright

from recfusion.data.interactions import Interactions
from running import running, settings_for
from shop import shop

KEY = "the key of the admin"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        found = launched(playwright)
        yield found
        found.close()


@pytest.fixture
def page(browser: Browser, groups: Interactions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Page]:
    monkeypatch.setenv("ADMIN", KEY)
    folder = shop(groups).save(tmp_path / "shop")
    placements = {"home": {"k": 2, "where": "stock > 0", "reranking": {"diversity": 0.5}}}
    placements |= {"basket": {"kind": "complete"}, "product": {"kind": "similar"}}
    with running(settings_for(folder, admin_key_env="ADMIN", placements=placements)) as client:
        client.post("/recommend", {"history": ["i01"], "placement": "home"})
        found = browser.new_page(viewport={"width": 390, "height": 844})
        problems: list[str] = []
        found.on("pageerror", lambda error: problems.append(str(error)))
        found.goto(f"http://127.0.0.1:{client.port}/workbench")
        yield found
        found.close()
        assert problems == []


def test_a_placement_is_edited_counted_saved_and_undone(page: Page) -> None:
    page.get_by_label("Admin key").fill("a wrong key that is long")
    page.get_by_role("button", name="Open").click()
    expect(page.get_by_role("alert")).to_have_text("This key does not open the workbench.")
    page.get_by_label("Admin key").fill(KEY)
    page.get_by_role("button", name="Open").click()
    expect(page.get_by_role("heading", name="Lists per day")).to_be_visible()
    expect(page.locator(".keeps")).to_have_text([re.compile("^keeps .* of 40$")] * 3)
    one = page.locator(".placement").first
    before = one.locator(".keeps").inner_text()
    one.get_by_label("Only items where").fill("")
    expect(one.locator(".keeps")).to_have_text("keeps 40 of 40")
    one.get_by_role("button", name="stock", exact=True).click()
    one.get_by_role("button", name=">", exact=True).click()
    one.get_by_label("Only items where").press_sequentially("0")
    expect(one.locator(".keeps")).to_have_text(before)
    one.get_by_label("Only items where").fill("colour = 1")
    expect(one.locator(".keeps")).to_contain_text("colour")
    one.get_by_label("Only items where").fill("")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("Version 2 is in use.")).to_be_visible()
    page.get_by_role("button", name="Undo the last version").click()
    expect(one.get_by_label("Only items where")).to_have_value("stock > 0")
    expect(one.locator("textarea")).to_have_value('{\n "reranking": {\n  "diversity": 0.5\n }\n}')
    found = Axe().run(page)
    assert found.violations_count == 0, found.generate_report()
