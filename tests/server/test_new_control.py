"""A re-ranking control that is added as one field and one scoring term is everywhere at once."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from named_tests import ROOT
from recfusion.data.interactions import Interactions
from shop import shop

FIELD = """    thrift: Share = Field(
        0.0, title="Bargains", description="prefer cheap items", json_schema_extra={"low": "any", "high": "cheap"}
    )
"""
TERM = """    "thrift": lambda bundle, weight: [("cheap", -weight * bundle.items["price"].fill_null(99).to_numpy())],
"""
SERVICE = """
import json, sys
from pathlib import Path
from running import running, settings_for
with running(settings_for(Path(sys.argv[1]))) as client:
    lists = {
        thrift: client.post("/recommend", {"history": ["i01"], "k": 5, "why": 1, "reranking": {"thrift": thrift}}).json
        for thrift in (0, 1, 2)
    }
    found = {"openapi": client.get("/openapi.json").json, "model": client.get("/model").json, "lists": lists}
    print(json.dumps(found | {"port": client.port}), flush=True)
    sys.stdin.read()
"""


def insert(path: Path, before: str, text: str) -> None:
    """Insert a text before the only line that begins so."""
    old = path.read_text(encoding="utf-8")
    assert old.count(before) == 1
    path.write_text(old.replace(before, text + before), encoding="utf-8")


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a copy of the source with one more control."""
    source = tmp_path_factory.mktemp("copied") / "src"
    shutil.copytree(ROOT / "src", source, ignore=shutil.ignore_patterns("__pycache__"))
    insert(source / "recfusion/inference/request.py", "    calibration: Share = Field(", FIELD)
    insert(source / "recfusion/inference/reranking.py", '    "popularity": _popularity,\n', TERM)
    return os.environ | {"PYTHONPATH": os.pathsep.join([str(source), str(ROOT / "tests")]), "COLUMNS": "200"}


@pytest.fixture(scope="module")
def service(
    environment: dict[str, str], groups: Interactions, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Any]:
    folder = shop(groups).save(tmp_path_factory.mktemp("served") / "shop")
    command = [sys.executable, "-c", SERVICE, str(folder)]
    with subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        yield json.loads(process.stdout.readline())
        process.stdin.close()


def test_the_control_is_an_option(environment: dict[str, str]) -> None:
    command = [sys.executable, "-m", "recfusion", "recommend", "--help"]
    printed = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    line = next(line for line in printed.splitlines() if "--thrift" in line)
    assert "Prefer cheap items." in line


def test_the_control_is_in_the_openapi_document_and_in_the_model(service: Any) -> None:
    declared = service["openapi"]["components"]["schemas"]["Reranking"]["properties"]["thrift"]
    assert (declared["minimum"], declared["maximum"], declared["description"]) == (0, 1, "prefer cheap items")
    control = next(one for one in service["model"]["controls"] if one["name"] == "thrift")
    assert control == {
        "name": "thrift",
        "kind": "weight",
        "title": "Bargains",
        "low": "any",
        "high": "cheap",
        "help": "prefer cheap items",
        "min": 0,
        "max": 1,
        "default": 0.0,
    }


def test_the_control_changes_lists_and_is_validated(service: Any) -> None:
    plain, thrifty, wrong = (service["lists"][thrift] for thrift in ("0", "1", "2"))
    prices = [[item["columns"]["price"] for item in found["items"]] for found in (plain, thrifty)]
    assert None not in prices[1]
    assert prices[1] == sorted(prices[1])
    assert prices[0] != prices[1]
    assert wrong["field"] == "reranking.thrift"


def page_names_controls() -> bool:
    """Return whether the page has a list of controls of its own, instead of those of /model."""
    pages = (ROOT / "src/recfusion/server/page").glob("*.js")
    return any('name: "adventurousness"' in path.read_text(encoding="utf-8") for path in pages)


@pytest.mark.skipif(page_names_controls(), reason="the page does not read the controls of /model")
def test_the_control_is_a_slider_on_the_page(service: Any) -> None:
    pytest.importorskip("playwright")
    from browsing import launched
    from playwright.sync_api import expect, sync_playwright

    with sync_playwright() as playwright:
        browser = launched(playwright)
        page = browser.new_page()
        page.goto(f"http://127.0.0.1:{service['port']}/")
        slider = page.locator("#thrift")
        expect(slider).to_be_attached()
        expect(page.get_by_text("Bargains").first).to_be_attached()
        assert (slider.get_attribute("min"), slider.get_attribute("max")) == ("0", "1")
        browser.close()
