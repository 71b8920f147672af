"""Reloading: a new model replaces the old one in one step; a damaged one is refused."""

import json
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from recfusion.data.interactions import Interactions
from recfusion.experiments.train import train
from recfusion.inference.bundle import Bundle
from recfusion.models.linear.ease import EASE
from running import Client, running, settings_for
from shop import shop


@pytest.fixture(scope="module")
def bundle(groups: Interactions) -> Bundle:
    return shop(groups)


@pytest.fixture(scope="module")
def other(groups: Interactions) -> Bundle:
    return train(EASE(l2=3.0), groups)


def eventually(happens: Callable[[], bool]) -> None:
    until = time.monotonic() + 20
    while not happens():
        assert time.monotonic() < until, "it did not happen"
        time.sleep(0.02)


def version(client: Client) -> str:
    found: str = client.get("/ready").json["models"][0]["version"]
    return found


def test_no_request_fails_while_models_are_exchanged(bundle: Bundle, other: Bundle, tmp_path: Path) -> None:
    folder = bundle.save(tmp_path / "shop")
    failed, versions, ended = [], set(), threading.Event()
    with running(settings_for(folder)) as client:

        def ask() -> None:
            while not ended.is_set():
                reply = client.post("/recommend", {"history": ["i01", "i02"]})
                if reply.status != 200:
                    failed.append(reply)
                else:
                    versions.add(reply.json["version"])

        threads = [threading.Thread(target=ask) for _ in range(2)]
        for thread in threads:
            thread.start()
        for new in (other, bundle, other):
            new.save(folder)
            reply = client.post("/admin/reload", {})
            assert reply.status == 200
            assert reply.json["processes"] == {"loaded": 1, "of": 1}
            assert version(client) == reply.json["models"][0]["version"]
        ended.set()
        for thread in threads:
            thread.join()
    assert failed == []
    assert len(versions) >= 2


def test_a_damaged_model_is_not_served_and_the_old_one_goes_on(bundle: Bundle, other: Bundle, tmp_path: Path) -> None:
    folder = bundle.save(tmp_path / "shop")
    with running(settings_for(folder)) as client:
        before = client.post("/recommend", {"history": ["i01"]}).json["items"]
        weights = folder / "model.safetensors"
        whole = weights.read_bytes()
        weights.unlink()
        weights.write_bytes(whole[:-100])
        reply = client.post("/admin/reload", {})
        assert (reply.status, reply.json["field"]) == (409, "model")
        ready = client.get("/ready").json
        assert ready["ready"]
        assert "model.safetensors" in ready["trouble"]
        assert str(tmp_path) not in json.dumps(ready) + reply.body.decode()
        assert client.post("/recommend", {"history": ["i01"]}).json["items"] == before
        other.save(folder)
        assert client.post("/admin/reload", {}).status == 200
        assert client.get("/ready").json["trouble"] is None


def test_a_watched_folder_is_loaded_when_it_changes(bundle: Bundle, other: Bundle, tmp_path: Path) -> None:
    folder = bundle.save(tmp_path / "shop")
    with running(settings_for(folder, watch=True)) as client:
        first = version(client)
        other.save(folder)
        eventually(lambda: version(client) != first)
        shutil.rmtree(folder)
        eventually(lambda: client.get("/ready").json["trouble"] is not None)
        assert client.post("/recommend", {"history": ["i01"]}).status == 200
        bundle.save(folder)
        eventually(lambda: client.get("/ready").json["trouble"] is None)


def test_changed_columns_lie_over_a_new_model_too(bundle: Bundle, tmp_path: Path) -> None:
    folder = bundle.save(tmp_path / "shop")
    asked = {"history": ["i05"], "where": "stock == 77"}
    with running(settings_for(folder)) as client:
        client.ask("PUT", "/items", {"items": [{"item": "i01", "columns": {"stock": 77}}]})
        bundle.save(folder)
        client.post("/admin/reload", {})
        assert [one["item"] for one in client.post("/recommend", asked).json["items"]] == ["i01"]


def test_a_share_of_the_users_gets_the_other_model_and_always_the_same(
    bundle: Bundle, other: Bundle, tmp_path: Path
) -> None:
    folder, also = bundle.save(tmp_path / "shop"), other.save(tmp_path / "new")
    with running(settings_for(folder, also=also, also_share=0.3)) as client:
        asked = [{"user": f"user {n}", "k": 1} for n in range(100)]
        first, second = (
            [answer["model"] for answer in client.post("/recommend/batch", {"requests": asked}).json["answers"]]
            for _ in range(2)
        )
        assert first == second
        assert 15 <= first.count("new") <= 45
        assert client.post("/recommend", {"history": ["i01"]}).json["model"] == "shop"
        assert client.post("/recommend", {"history": ["i01"], "model": "new"}).json["model"] == "new"
        assert [one["name"] for one in client.get("/model").json["models"]] == ["shop", "new"]
