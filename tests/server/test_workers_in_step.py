"""Two worker processes under reloads, broken files, events, item changes and kills, as a state machine.

Every answer must name a generation of files that was complete at some time, and agree with it: its model and its user
histories. Acknowledged events and item changes are never lost, and once the files are complete the processes agree.

RECFUSION_STEPS=50 RECFUSION_RUNS=200 makes it run for long.
"""

import os
import tempfile
import threading
import time
from contextlib import suppress
from dataclasses import replace
from http.client import HTTPException
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from recfusion.data.interactions import Interactions
from recfusion.experiments.train import train
from recfusion.inference.bundle import Bundle
from recfusion.models.linear.ease import EASE
from recfusion.server.event_store import Store
from recfusion.server.loaded_models import load_served
from running import settings_for
from shop import shop
from worker_process import Worker

USER = "ann"
WORKERS = st.integers(0, 1)
OWN = ("i01", "i11")  # the item that the user has in each of two histories files


class Workers(RuleBasedStateMachine):
    made: tuple[Bundle, ...]  # set by the test

    @initialize(watch=st.booleans())
    def begin(self, watch: bool) -> None:
        self.root = tempfile.TemporaryDirectory()
        folder = Path(self.root.name) / "shop"
        self.settings = settings_for(folder, watch=watch, histories=folder.with_name("histories.csv"), workers=2)
        self.complete: dict[str, tuple[str, str]] = {}  # generation: version of the model, item of the user
        self.events: set[str] = set()
        self.stock: int | None = None
        self.number = 0
        self.broken: set[str] = set()
        Store(self.settings.events).close()
        self._save_model(0)
        self._save_histories(0)
        self.workers = [Worker.start(self.settings) for _ in range(2)]

    def teardown(self) -> None:
        if hasattr(self, "workers"):
            self._settle()
            for worker in self.workers:
                worker.kill()
            self.root.cleanup()

    @rule(which=WORKERS)
    def replace_model(self, which: int) -> None:
        self._save_model(which)

    @rule(which=WORKERS)
    def replace_histories(self, which: int) -> None:
        self._save_histories(which)

    @rule()
    def break_model(self) -> None:
        path = self.settings.folder / "model.safetensors"
        whole = path.read_bytes()
        path.unlink()  # the processes have mapped the old file
        path.write_bytes(whole[:100])
        self.broken.add("model")

    @rule()
    def break_histories(self) -> None:
        self.settings.histories[0].write_text("broken", encoding="utf-8")
        self.broken.add("histories")

    @rule(which=WORKERS)
    def reload(self, which: int) -> None:
        reply = self.workers[which].client.post("/admin/reload", {})
        assert reply.status == (409 if self.broken else 200), reply.body
        if self.broken:
            assert "None" not in reply.json["error"]
        else:
            assert reply.json["generation"] in self.complete

    @rule(which=WORKERS)
    def record_event(self, which: int) -> None:
        self.number += 1
        event = {"user": USER, "item": f"e{self.number}", "idempotency_key": f"k{self.number}"}
        if self.workers[which].client.post("/events", event).status == 201:
            self.events.add(f"e{self.number}")

    @rule(which=WORKERS)
    def change_item(self, which: int) -> None:
        self.number += 1
        change = {"items": [{"item": "i30", "columns": {"stock": 1000 + self.number}}]}
        if self.workers[which].client.ask("PUT", "/items", change).status == 200:
            self.stock = 1000 + self.number

    @precondition(lambda self: not self.broken)
    @rule(which=WORKERS, during_reload=st.booleans())
    def kill(self, which: int, during_reload: bool) -> None:
        worker = self.workers[which]
        if during_reload:
            asking = threading.Thread(target=_ask_quietly, args=(worker,))
            asking.start()
            worker.kill()
            asking.join(60)
        else:
            worker.kill()
        self.workers[which] = Worker.start(self.settings)

    @invariant()
    def every_answer_is_of_a_complete_generation(self) -> None:
        for worker in getattr(self, "workers", ()):
            answer = worker.client.post("/recommend", {"user": USER, "k": 40, "where": "stock >= 0"})
            assert answer.status == 200, answer.body
            found: dict[str, Any] = answer.json
            items = {one["item"]: one["columns"] for one in found["items"]}
            assert found["generation"] in self.complete
            version, own = self.complete[found["generation"]]
            assert found["version"] == version
            assert [item for item in OWN if item not in items] == [own]
            assert self.events <= set(found["unknown"])
            if self.stock is not None:
                assert items["i30"]["stock"] == self.stock

    def _save_model(self, which: int) -> None:
        self.made[which].save(self.settings.folder)
        self.broken.discard("model")
        self._note(which=None)

    def _save_histories(self, which: int) -> None:
        beside = self.settings.histories[0].with_name("new.csv")
        beside.write_text(f"user,item\n{USER},{OWN[which]}\n", encoding="utf-8")
        beside.replace(self.settings.histories[0])
        self.broken.discard("histories")
        self._note(which=which)

    def _note(self, which: int | None) -> None:
        """Remember the generation of the files if they are complete."""
        given = self.settings
        if self.broken or not given.histories[0].exists():
            return
        models = load_served(given)
        own = str(models.known.of(USER)[0]["item"])
        assert which is None or own == OWN[which]
        self.complete[models.generation] = (models.main.version, own)
        self.latest = models.generation

    def _settle(self) -> None:
        """Complete the files and wait until both processes agree; with `watch`, on the latest files."""
        if "histories" in self.broken:
            self._save_histories(0)
        if "model" in self.broken:
            self._save_model(0)
        until = time.monotonic() + 120
        while True:
            ready = [worker.client.get("/ready").json for worker in self.workers]
            generations = {one["generation"] for one in ready}
            if len(generations) == 1 and (not self.settings.watch or generations == {self.latest}):
                return
            assert time.monotonic() < until, (ready, self.latest)
            time.sleep(0.05)


def _ask_quietly(worker: Worker) -> None:
    with suppress(OSError, HTTPException):  # the worker was killed before it answered
        worker.client.post("/admin/reload", {})


@pytest.fixture
def machine(groups: Interactions) -> type[Workers]:
    plain = shop(groups)
    other = replace(train(EASE(l2=3.0), groups), items=plain.items)
    Workers.made = (replace(plain, items_time=0.0), replace(other, items_time=0.0))
    return Workers


@pytest.mark.slow
def test_workers_stay_in_step(machine: type[Workers]) -> None:
    runs, steps = int(os.environ.get("RECFUSION_RUNS", "5")), int(os.environ.get("RECFUSION_STEPS", "12"))
    how = settings(max_examples=runs, stateful_step_count=steps, deadline=None, database=None, derandomize=runs < 10)
    run_state_machine_as_test(machine, settings=settings(how, phases=[Phase.generate]))
