"""The map of the items over HTTP, and compressed answers."""

import gzip
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import recfusion as rf
from recfusion.data.interactions import Interactions
from recfusion.server.compression import _accepts
from recfusion.server.item_map import item_map
from running import Client, running, settings_for
from shop import shop

GZIP = {"Accept-Encoding": "gzip, deflate, br"}


@pytest.fixture(scope="module")
def folder(groups: Interactions, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shop(groups).save(tmp_path_factory.mktemp("map") / "shop")


@pytest.fixture(scope="module")
def client(folder: Path) -> Iterator[Client]:
    with running(settings_for(folder)) as found:
        yield found


def test_the_map_has_a_place_a_name_and_a_category_for_each_item(client: Client, folder: Path) -> None:
    found, bundle = client.get("/map").json, rf.Bundle.load(folder)
    assert found["model"] == "shop"
    assert found["note"] is None
    assert found["without"] == 0
    assert sorted(found["items"]) == sorted(bundle.items["item"].to_list())
    assert found["users"] == sorted(bundle.counts.tolist(), reverse=True)
    assert all(0 <= value <= 1 for value in [*found["x"], *found["y"]])
    (kind,) = [one for one in found["columns"] if one["name"] == "kind"]
    words = dict(zip(found["items"], kind["of"], strict=True))
    assert kind["values"][words["i05"]] == "Tea"
    assert kind["values"][words["i13"]] == "Coffee"  # rarer than Gift
    assert words["i09"] == -1  # has none
    assert client.get("/map?model=none").status == 422


def test_answers_that_all_clients_share_are_compressed(client: Client) -> None:
    unchecked = Client(client.port)  # which does not read compressed answers as JSON
    for path in ("/static/main.js", "/map", "/"):
        plain, packed = client.get(path), unchecked.get(path, GZIP)
        assert "content-encoding" not in plain.headers
        assert packed.headers["vary"] == "Accept-Encoding"
        if len(plain.body) > 500:
            assert packed.headers["content-encoding"] == "gzip"
            assert len(packed.body) < 0.6 * len(plain.body)
            assert gzip.decompress(packed.body) == plain.body
    assert not client.get("/model", GZIP).headers.get("content-encoding")
    assert [_accepts(text) for text in ("gzip", "br, GZIP;q=0.5", "*", "", "br", "gzip;q=0", "gzip; q=0.000")] == [
        *[True] * 3,
        *[False] * 4,
    ]


def test_a_model_without_a_map_says_why(groups: Interactions, folder: Path) -> None:
    bundle = rf.Bundle.load(folder)
    assert "train the model again" in item_map(replace(bundle, layout=None), "m")["note"]
    alone = rf.Bundle.load(shop(groups, "popularity").save(folder.with_name("popular")))
    found = item_map(alone, "m")
    assert found["note"] == "This model finds no items similar, so there is no map of them."
    assert found["items"] == []
    assert found["without"] == 40
    json.dumps(found, allow_nan=False)
