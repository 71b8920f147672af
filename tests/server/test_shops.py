"""Several shops in one service: each has its own models, events, keys, counters and page."""

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from recfusion.data.interactions import Interactions
from recfusion.server.config import Settings
from recfusion.server.event_reports import all_rows
from recfusion.server.event_store import Store
from recfusion.server.keys import Keys
from running import Client, process, running
from shop import shop

NAMES = ("books", "tea")
START = "from recfusion.cli.main import main; main()"
EVERY_ROUTE = [
    ("POST", "/recommend", {"history": ["1"]}),
    ("POST", "/recommend", {"user": "ann", "placement": "home"}),
    ("POST", "/recommend/batch", {"requests": [{"history": ["1"]}]}),
    ("POST", "/explain", {"history": ["1"], "item": "1"}),
    ("POST", "/similar", {"item": "1"}),
    ("POST", "/complete", {"history": ["1"]}),
    ("POST", "/steps", {"history": ["1"]}),
    ("GET", "/items", None),
    ("GET", "/popular", None),
    ("GET", "/examples", None),
    ("GET", "/model", None),
    ("GET", "/placements", None),
    ("GET", "/metrics", None),
    ("GET", "/openapi.json", None),
    ("GET", "/live", None),
    ("GET", "/ready", None),
    ("POST", "/events", {"user": "eve", "item": "1"}),
    ("POST", "/events/batch", {"events": [{"user": "eve", "item": "1"}]}),
    ("POST", "/events/forget", {"user": "ann"}),
    ("PUT", "/items", {"items": [{"item": "1", "columns": {"stock": 0}}]}),
    ("DELETE", "/items", None),
    ("POST", "/admin/reload", {}),
]


def key(name: str) -> str:
    return f"the only key of {name}"


def bearer(name: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key(name)}"}


@pytest.fixture(scope="module")
def files(groups: Interactions, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Write two shops whose item ids begin with their names, and return their files."""
    base, found, bundle = tmp_path_factory.mktemp("shops"), [], shop(groups)
    for name in NAMES:
        folder = base / name
        folder.mkdir()
        ids = pl.Series("item", [f"{name}-{row}" for row in range(len(bundle.items))])
        replace(bundle, items=bundle.items.with_columns(ids)).save(folder / "model")
        digest = hashlib.sha256(key(name).encode()).hexdigest()
        (folder / "keys.toml").write_text(f'[all]\nsha256 = "{digest}"\nscopes = ["read", "events", "admin"]\n')
        (folder / f"{name}.toml").write_text(
            'folder = "model"\norders = "orders.csv"\nevents = "events.sqlite"\n'
            f'[serve]\nkey_file = "keys.toml"\n[placements.home]\nallow = ["{name}-1", "{name}-2"]\n'
        )
        found.append(folder / f"{name}.toml")
    return found


@pytest.fixture(scope="module")
def arguments(files: list[Path]) -> list[str]:
    return [START, "serve", *(part for file in files for part in ("--config", str(file)))]


@pytest.fixture(scope="module")
def client(arguments: list[str]) -> Iterator[Client]:
    with process(arguments) as (_, found):
        yield found


def test_each_key_reads_its_own_shop(client: Client) -> None:
    for name in NAMES:
        for path in ("/recommend", "/popular", "/items", "/placements", "/model", "/ready", "/metrics"):
            method, body = ("POST", {"history": [f"{name}-3"]}) if path == "/recommend" else ("GET", None)
            answer = client.ask(method, f"/shops/{name}{path}", body, bearer(name))
            assert answer.status == 200, answer.body
            for other in set(NAMES) - {name}:
                assert other.encode() not in answer.body
        placed = client.post(f"/shops/{name}/recommend", {"user": "ann", "placement": "home"}, bearer(name)).json
        assert {item["item"] for item in placed["items"]} == {f"{name}-1", f"{name}-2"}


@pytest.mark.parametrize("headers", [bearer("books"), {}, {"Authorization": "Bearer something else, 16 signs"}])
def test_no_other_key_reads_or_changes_anything(client: Client, headers: dict[str, str]) -> None:
    for method, route, body in EVERY_ROUTE:
        answer = client.ask(method, f"/shops/tea{route}", body, headers)
        assert answer.status == 401, route
        assert b"tea" not in answer.body


def test_no_path_leads_to_another_shop(client: Client) -> None:
    for path in ("/shops/books/../tea/popular", "/shops/books/shops/tea/popular", "/shops/books//shops/tea/popular"):
        assert client.get(path, bearer("books")).status in (401, 404)
    for path in ("/popular", "/shops", "/shops/", "/shops/tea", "/shops/coffee/popular", "/shops//popular", "/metrics"):
        answer = client.get(path, bearer("books"))
        assert answer.status == 404
        assert b"books" not in answer.body


def test_the_health_of_the_service_names_no_shop(client: Client) -> None:
    assert (client.get("/live").json, client.get("/ready").json) == ({"live": True}, {"ready": True})


def test_the_page_of_a_shop_uses_paths_within_it(client: Client) -> None:
    page, docs = client.get("/shops/tea/"), client.get("/shops/tea/docs")
    assert page.status == docs.status == 200
    for text in (page.body, docs.body):
        assert b'="/' not in text
    assert client.get("/shops/tea/static/main.js").status == 200


def test_events_are_stored_in_separate_files(client: Client, files: list[Path]) -> None:
    for name in NAMES:
        event = {"user": f"{name} customer", "item": f"{name}-7", "kind": "purchase"}
        assert client.post(f"/shops/{name}/events", event, bearer(name)).status == 201
    for file in files:
        with closing(Store(file.with_name("events.sqlite"), create=False)) as store:
            assert all_rows(store)["user"].to_list() == [f"{file.stem} customer"]


def test_changed_items_counters_and_reloads_stay_in_their_shop(client: Client) -> None:
    changed = {"items": [{"item": f"{name}-1", "columns": {"stock": 77}} for name in NAMES]}
    answer = client.ask("PUT", "/shops/tea/items", changed, bearer("tea")).json
    assert answer["unknown"] == ["books-1"]
    found = client.get("/shops/books/popular?where=stock%20%3D%3D%2077", bearer("books"))
    assert (found.status, found.json["field"]) == (422, "where")
    before = client.get("/shops/books/metrics", bearer("books")).body
    assert client.post("/shops/tea/admin/reload", {}, bearer("tea")).json["processes"] == {"loaded": 1, "of": 1}
    after = client.get("/shops/books/metrics", bearer("books")).body
    assert b"recfusion_reloads_total{" not in after
    counted = 'recfusion_requests_total{route="/admin/reload",shop="tea",status="200"}'
    assert counted in client.get("/shops/tea/metrics", bearer("tea")).body.decode()
    assert b"tea" not in before + after


def test_counters_stay_apart_with_several_workers(arguments: list[str]) -> None:
    with process([*arguments, "--workers", "2"]) as (_, client):
        for _ in range(6):
            assert client.get("/shops/tea/popular", bearer("tea")).status == 200
        assert client.post("/shops/tea/admin/reload", {}, bearer("tea")).json["processes"]["loaded"] >= 1
        text = client.get("/shops/books/metrics", bearer("books")).body.decode()
        assert "tea" not in text
        assert 'route="/popular"' not in text
        assert (
            'route="/popular",shop="tea",status="200"} 6.0'
            in client.get("/shops/tea/metrics", bearer("tea")).body.decode()
        )


def test_a_token_of_a_page_opens_no_other_shop(files: list[Path]) -> None:
    shops = tuple(
        Settings(
            folder=file.with_name("model"),
            events=file.with_name("token.sqlite"),
            key_file=file.with_name("keys.toml"),
            shop=file.stem,
            page_secret=f"the secret of {file.stem}",
        )
        for file in files
    )
    token = Keys.of(shops[0]).token()
    with running(shops[0].model_copy(update={"shops": shops})) as client:
        sent = {"Authorization": f"Bearer {token}"}
        assert client.get("/shops/books/popular", sent).status == 200
        assert client.get("/shops/tea/popular", sent).status == 401


def serve(*arguments: str, **more: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-c", START, "serve", *arguments], capture_output=True, text=True, env=os.environ | more
    )
    return done.returncode, " ".join(done.stderr.split())


def test_shops_that_would_share_something_are_refused(files: list[Path], tmp_path: Path) -> None:
    books, tea = (str(file) for file in files)
    assert serve("--config", books, "--config", books)[1].count("different names") == 1
    assert "[serve]" in serve("--config", books, "--config", tea, "--key-file", "keys.toml")[1]
    same = files[0].with_name("same.toml")
    same.write_text(files[0].read_text().replace('"events.sqlite"', '"other.sqlite"'))
    assert "their own folder" in serve("--config", books, "--config", str(same))[1]
    same.write_text('folder = "../tea/model"\norders = "orders.csv"\nname = "third"\n')
    assert "Expected keys of the shop third" in serve("--config", books, "--config", str(same))[1]
    code, told = serve("model", "--config", books)
    assert (code, "got both" in told) == (2, True)


def test_unknown_keys_of_the_file_list_the_known_ones(files: list[Path], tmp_path: Path) -> None:
    file, start = tmp_path / "shop.toml", 'folder = "model"\norders = "orders.csv"\n'
    for text, known in (
        ("placement = {}\n", "placements"),
        ("[serve]\nkeyfile = 1\n", "key_file"),
        ("[placements.home]\nwere = 1\n", "where"),
        ("[placements.home.reranking]\nboots = 1\n", "boots"),
    ):
        file.write_text(start + text)
        code, told = serve("--config", str(file))
        assert (code, known in told, "Traceback" in told) == (2, True, False), told


def test_one_shop_is_served_at_the_root(files: list[Path]) -> None:
    with process([START, "serve", "--config", str(files[0])]) as (running_process, client):
        found = client.post("/recommend", {"user": "ann", "placement": "home"}, bearer("books")).json
        assert {item["item"] for item in found["items"]} == {"books-1", "books-2"}
        assert json.loads(client.get("/ready").body)["ready"]
        running_process.send_signal(signal.SIGTERM)
        until = time.monotonic() + 60
        while running_process.poll() is None and time.monotonic() < until:
            time.sleep(0.05)
        assert running_process.returncode == 0
