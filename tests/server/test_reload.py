"""Reloading: a new model replaces the old one in one step; a damaged one is refused."""

import asyncio
import json
import re
import shutil
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from recfusion.core.errors import InputError
from recfusion.data.interactions import Interactions
from recfusion.experiments.train import train
from recfusion.inference.bundle import Bundle
from recfusion.models.linear.ease import EASE
from recfusion.server.metrics import Metrics
from recfusion.server.service import Service
from running import Client, running, settings_for
from shop import shop


@pytest.fixture(scope="module")
def bundle(groups: Interactions) -> Bundle:
    return shop(groups)


@pytest.fixture(scope="module")
def other(groups: Interactions) -> Bundle:
    return train(EASE(l2=3.0), groups)


def eventually(happens: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not happens():
        assert time.monotonic() < until, "it did not happen"
        time.sleep(0.02)


def version(client: Client) -> str:
    found: str = client.get("/ready").json["models"][0]["version"]
    return found


def reloads(client: Client) -> int:
    """Return how often a service has loaded its files again."""
    found = re.search(r'recfusion_reloads_total\{outcome="loaded"\} (\d+)', client.get("/metrics").body.decode())
    return int(found[1]) if found else 0


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


def test_changed_columns_lie_over_a_new_model_with_the_same_item_table(bundle: Bundle, tmp_path: Path) -> None:
    bundle = replace(bundle, items_time=time.time() - 60)
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


def test_a_broken_histories_file_leaves_models_and_histories_as_they_are_and_is_named(
    bundle: Bundle, other: Bundle, tmp_path: Path
) -> None:
    folder, table = bundle.save(tmp_path / "shop"), tmp_path / "histories.csv"
    table.write_text("user,item\nann@example.org,i01\n", encoding="utf-8")
    with running(settings_for(folder, histories=table)) as client:
        before = client.get("/ready").json
        other.save(folder)
        table.write_text("broken", encoding="utf-8")
        reply = client.post("/admin/reload", {})
        assert (reply.status, reply.json["field"]) == (409, "model")
        assert "histories.csv" in reply.json["error"]
        assert str(tmp_path) not in reply.json["error"]
        after = client.get("/ready").json
        assert after == before | {"trouble": after["trouble"]}
        assert "histories.csv cannot be read" in after["trouble"]
        assert "ann@" not in json.dumps(after)
        assert client.post("/recommend", {"user": "ann@example.org"}).json["basis"] == "history"
        table.write_text("user,item\nbob,i01\n", encoding="utf-8")
        assert client.post("/admin/reload", {}).status == 200
        assert client.post("/recommend", {"user": "bob"}).json["basis"] == "history"
        assert client.post("/recommend", {"user": "ann@example.org"}).json["basis"] == "popularity"
        assert client.get("/ready").json["generation"] != before["generation"]


def test_a_missing_histories_file_is_one_sentence_at_the_start(bundle: Bundle, tmp_path: Path) -> None:
    settings = settings_for(bundle.save(tmp_path / "shop"), histories=tmp_path / "none.csv")
    with pytest.raises(InputError, match=r"Expected a file at .*none\.csv"):
        Service(settings, Metrics())


def test_a_watched_folder_is_loaded_after_a_slow_copy(bundle: Bundle, other: Bundle, tmp_path: Path) -> None:
    """The configuration arrives first, and the weights long after it."""
    folder, new = bundle.save(tmp_path / "shop"), other.save(tmp_path / "new")
    with running(settings_for(folder, watch=True)) as client:
        first = version(client)
        whole = (new / "model.safetensors").read_bytes()
        shutil.rmtree(folder)
        shutil.copytree(new, folder)
        (folder / "model.safetensors").write_bytes(whole[: len(whole) // 2])
        eventually(lambda: client.get("/ready").json["trouble"] is not None)
        assert version(client) == first
        with (folder / "model.safetensors").open("ab") as file:
            file.write(whole[len(whole) // 2 :])
        eventually(lambda: client.get("/ready").json["trouble"] is None)
        assert version(client) != first


def test_a_watched_histories_file_is_loaded_when_it_changes(bundle: Bundle, tmp_path: Path) -> None:
    folder, table = bundle.save(tmp_path / "shop"), tmp_path / "histories.csv"
    table.write_text("user,item\nann,i01\n", encoding="utf-8")
    with running(settings_for(folder, watch=True, histories=table)) as client:
        table.write_text("user,item\nbob,i01\n", encoding="utf-8")
        eventually(lambda: client.post("/recommend", {"user": "bob"}).json["basis"] == "history")


def test_a_process_that_could_not_follow_tries_again(bundle: Bundle, other: Bundle, tmp_path: Path) -> None:
    """Two services on one event store are as two worker processes; only one of them reads the histories."""
    folder, table = bundle.save(tmp_path / "shop"), tmp_path / "histories.csv"
    table.write_text("user,item\nann,i01\n", encoding="utf-8")
    with running(settings_for(folder)) as first, running(settings_for(folder, histories=table)) as second:
        old = version(second)
        other.save(folder)
        table.write_text("broken", encoding="utf-8")
        assert first.post("/admin/reload", {}).status == 200
        eventually(lambda: first.get("/ready").json["trouble"] is not None)  # each process knows
        assert version(second) == old
        table.write_text("user,item\nann,i02\n", encoding="utf-8")
        eventually(lambda: version(second) != old)
        eventually(lambda: second.get("/ready").json["trouble"] is None)
        loads = [reloads(one) for one in (first, second)]
        time.sleep(2)
        assert all(reloads(one) <= n + 1 for one, n in zip((first, second), loads, strict=True))  # not again and again


def test_a_change_of_columns_during_a_reload_does_not_bring_the_old_model_back(
    bundle: Bundle, other: Bundle, tmp_path: Path
) -> None:
    folder = bundle.save(tmp_path / "shop")
    service = Service(settings_for(folder), Metrics())
    late = threading.Event()

    async def overlap() -> None:
        blocked = asyncio.create_task(service.score(late.wait))  # the scoring thread is busy
        await service.write(lambda store: store.change({"i01": {"stock": 77}}))
        changing = asyncio.create_task(service.current())
        await asyncio.sleep(0)
        other.save(folder)
        await service._load()
        late.set()
        await asyncio.gather(blocked, changing)

    old = service.models.main.version
    asyncio.run(overlap())
    assert service.models.main.version != old
    assert service.models.main.change == 1
    service.close()
