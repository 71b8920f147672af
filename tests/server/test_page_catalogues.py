"""The page of a catalogue of 200,000 items without titles and categories, by a model without similarity."""

import re
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from browsing import VIEWS, Visit, go, link, settled
from playwright.sync_api import expect

import recfusion as rf
from recfusion.data.options import Preparation

N = 200_000


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    items = np.concatenate([np.arange(N), np.arange(0, N, 1000)])
    rows = pl.DataFrame({"user": np.concatenate([np.arange(N) % 50, np.full(N // 1000, 50)]), "item": items})
    data = rf.load(rows, Preparation(min_items_per_user=1, min_users_per_item=1))
    return rf.train("popularity", data, all_users=True).save(tmp_path_factory.mktemp("large") / "shop")


def test_each_view_of_a_large_plain_catalogue_says_what_it_cannot_show(visit: Visit) -> None:
    with visit.at(link("7"), reduced_motion="reduce") as page:
        settled(page)
        expect(page.get_by_text("knows 200,000 items")).to_be_visible()
        expect(page.locator(".row")).to_have_count(20)
        expect(page.get_by_role("heading", name="Filters and preferences")).to_have_count(0)
        page.get_by_label("Search titles").fill("199999")
        expect(page.get_by_role("option", name="199999")).to_be_visible()
        page.keyboard.press("Escape")
        page.locator(".row").first.get_by_role("button", name="Similar to").click()
        expect(page.locator(".similar")).to_contain_text("Nothing else is similar to it.")
        page.keyboard.press("Escape")
        expect(page.locator(".similar")).to_have_count(0)
        for view in VIEWS:
            go(page, link("7", view=view))
            expect(page.locator("main h2").first).to_be_visible()
            assert page.evaluate("document.querySelectorAll('*').length") < 3000, view
        go(page, link("7", view="map"))
        expect(page.locator(".map .lead")).to_have_text(
            "This model finds no items similar, so there is no map of them."
        )
    assert [one for one in visit.problems if not re.search("422|400", one)] == []
