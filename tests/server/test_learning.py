"""serve --learn: events update the weights beside scoring, and a forgotten user leaves them."""

import os
import signal
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import recfusion as rf
from recfusion.core.errors import InputError
from recfusion.core.files import file_digest
from recfusion.experiments.train import train
from recfusion.inference.bundle import Bundle
from recfusion.inference.bundle_files import CONFIG
from recfusion.inference.update import update
from recfusion.models.thinning.linear import ThinningLinear
from recfusion.server.event_store import Event, Store
from recfusion.server.learning import learn, must_unlearn
from recfusion.server.metrics import Metrics
from recfusion.server.service import Service
from running import Client, running, settings_for, two_workers

NEW = ["i00", "i01", "i02", "i03", "i04"]
LEARNING: dict[str, Any] = {"learn": True, "learn_every": 0.1}


@pytest.fixture(scope="module")
def bundle() -> Bundle:
    rng = np.random.default_rng(0)
    rows = [(f"u{u}", f"i{i:02}") for u in range(60) for i in 8 * (u % 2) + rng.choice(8, 6, replace=False)]
    frame = pl.DataFrame(rows, schema=["user", "item"], orient="row")
    model = ThinningLinear(l2=5.0, nu=0.3, kappa=0.5, b=0.5, c=0.2)
    return train(model, rf.load(frame), all_users=True, updatable=True)


def eventually(happens: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not happens():
        assert time.monotonic() < until, "it did not happen"
        time.sleep(0.05)


def same(one: Bundle, two: Bundle) -> bool:
    first, second = (bundle.model.weights_ for bundle in (one, two))  # type: ignore[attr-defined]
    return first.shape == second.shape and bool(np.abs(first - second).max() < 1e-5)


def is_saved(folder: Path, expected: Bundle) -> bool:
    try:
        return same(Bundle.load(folder), expected)
    except InputError:  # it was replaced while it was read
        return False


def version(client: Client) -> str:
    return str(client.get("/ready").json["models"][0]["version"])


def on_disk(folder: Path) -> str:
    return file_digest(folder / CONFIG)[:12]


def test_events_and_deletions_reach_the_weights_of_a_running_service(bundle: Bundle, tmp_path: Path) -> None:
    folder = bundle.save(tmp_path / "shop")
    with running(settings_for(folder, **LEARNING)) as client:
        first = version(client)
        for item in NEW:
            assert client.post("/events", {"user": "new", "item": item, "kind": "purchase"}).status == 201
        client.post("/events", {"user": "stranger", "item": "i00"})  # too few items for the preparation
        learned = update(bundle, {"new": NEW})
        eventually(lambda: is_saved(folder, learned))
        eventually(lambda: version(client) == on_disk(folder) != first)
        assert Bundle.load(folder).updates[-1].added == 1
        reply = client.post("/events/forget", {"user": "u3"})
        assert (reply.status, reply.json["unlearned"]) == (202, False)
        eventually(lambda: is_saved(folder, update(learned, forget=["u3"])))
        client.post("/events/forget", {"user": "new"})
        eventually(lambda: is_saved(folder, update(bundle, forget=["u3"])))
        assert client.get("/ready").json["trouble"] is None


def full_disk(*_: object) -> None:
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize(
    ("place", "fault", "reason"),
    [
        ("recfusion.inference.bundle.save_file", full_disk, "No space left on device"),
        ("recfusion.inference.update.TOLERANCE", 1e-12, "of the spread of scores, above 1e-12"),
    ],
)
def test_a_failed_update_leaves_the_old_model_in_use_and_says_why(
    bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, fault: object, reason: str
) -> None:
    folder = bundle.save(tmp_path / "shop")
    with running(settings_for(folder, **LEARNING)) as client, monkeypatch.context() as patch:
        first, before = version(client), {file.name: file.read_bytes() for file in folder.iterdir()}
        lists = client.post("/recommend", {"history": ["i00"]}).json
        patch.setattr(place, fault)
        client.post("/events/batch", {"events": [{"user": "new", "item": item} for item in NEW]})
        eventually(lambda: client.get("/ready").json["trouble"] is not None)
        assert client.get("/ready").json["trouble"].startswith("The model cannot learn.")
        assert reason in client.get("/ready").json["trouble"]
        assert version(client) == on_disk(folder) == first
        assert {file.name: file.read_bytes() for file in folder.iterdir()} == before
        assert client.post("/recommend", {"history": ["i00"]}).json["items"] == lists["items"]
        patch.undo()
        eventually(lambda: is_saved(folder, update(bundle, {"new": NEW})))
        eventually(lambda: client.get("/ready").json["trouble"] is None)


def test_every_worker_gets_the_update_and_a_killed_one_loses_nothing(bundle: Bundle, tmp_path: Path) -> None:
    folder = bundle.save(tmp_path / "shop")
    settings = settings_for(folder, **LEARNING)
    with two_workers(settings) as (workers, client):
        client.post("/events/batch", {"events": [{"user": "new", "item": item} for item in NEW]})
        os.kill(workers[0], signal.SIGKILL)
        learned = update(bundle, {"new": NEW})
        eventually(lambda: is_saved(folder, learned))

        def all_follow() -> bool:
            with closing(Store(settings.events)) as store:
                states = store.states("worker ")
                wanted = store.state("generation")
            alive = [loaded for name, loaded in states.items() if name != f"worker {workers[0]}"]
            return len(alive) >= 2 and set(alive) == {wanted} and version(client) == on_disk(folder)

        eventually(all_follow)


def test_a_process_that_is_killed_after_the_folder_is_replaced_repeats_the_step_without_harm(
    bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, events = bundle.save(tmp_path / "shop"), tmp_path / "events.sqlite"
    with closing(Store(events)) as store, store.writing():
        store.add([Event("new", item) for item in NEW])
        store.add([Event("u1", "i08", "return")])
        must_unlearn(store, bundle, "u3")

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Store, "set_state", killed)
        with pytest.raises(KeyboardInterrupt):
            learn(folder, bundle, on_disk(folder), events)
    once = Bundle.load(folder)
    assert once.train_users == bundle.train_users
    assert learn(folder, once, on_disk(folder), events)
    assert same(Bundle.load(folder), once)
    assert not learn(folder, Bundle.load(folder), on_disk(folder), events)


def test_returns_leave_the_history_in_the_weights(bundle: Bundle, tmp_path: Path) -> None:
    folder, events = bundle.save(tmp_path / "shop"), tmp_path / "events.sqlite"
    training = bundle.training
    assert training is not None
    row = training.rows.matrix[training.places(training.digests(["u0"]))]
    own = bundle.items["item"][row.indices[0].item()]
    with closing(Store(events)) as store, store.writing():
        store.add([Event("u0", own, "return")])
    assert learn(folder, bundle, on_disk(folder), events)
    rest = [bundle.items["item"][int(place)] for place in row.indices[1:]]
    assert same(Bundle.load(folder), update(bundle, {"u0": rest}, replace_histories=True))


def test_new_items_enter_once_enough_users_have_them(bundle: Bundle, tmp_path: Path) -> None:
    folder, events = bundle.save(tmp_path / "shop"), tmp_path / "events.sqlite"
    found = bundle
    for user in range(5):
        with closing(Store(events)) as store, store.writing():
            store.add([Event(f"u{user}", "i99")])
        learn(folder, found, on_disk(folder), events)
        found = Bundle.load(folder)
        assert ("i99" in found.items["item"].to_list()) == (user == 4)
    assert same(found, update(bundle, {f"u{user}": ["i99"] for user in range(5)}))


def test_events_that_get_the_numbers_of_deleted_ones_are_learned(bundle: Bundle, tmp_path: Path) -> None:
    folder, events = bundle.save(tmp_path / "shop"), tmp_path / "events.sqlite"
    found = bundle
    for user in ("first", "second"):
        with closing(Store(events)) as store, store.writing():
            store.add([Event(user, item) for item in NEW])
        assert learn(folder, found, on_disk(folder), events)
        found = Bundle.load(folder)
        with closing(Store(events)) as store, store.writing():
            must_unlearn(store, found, user)
            store.forget(user)
            store.add([Event("third", item) for item in NEW[:2]])
    assert learn(folder, found, on_disk(folder), events)
    assert same(Bundle.load(folder), bundle)


def test_a_folder_that_cannot_learn_is_refused_at_the_start(bundle: Bundle, tmp_path: Path) -> None:
    folder = replace(bundle, training=None).save(tmp_path / "shop")
    with pytest.raises(InputError, match=r"--learn: .* --updatable"):
        Service(settings_for(folder, **LEARNING), Metrics())


def test_a_replaced_folder_is_not_overwritten(bundle: Bundle, tmp_path: Path) -> None:
    folder, events = bundle.save(tmp_path / "shop"), tmp_path / "events.sqlite"
    with closing(Store(events)) as store, store.writing():
        store.add([Event("new", item) for item in NEW])
    old = on_disk(folder)
    update(bundle, forget=["u9"]).save(folder)
    with pytest.raises(InputError, match="was replaced"):
        learn(folder, bundle, old, events)
    assert Bundle.load(folder).updates[-1].forgotten == 1
