"""One process of a service: its models, known users, scoring thread and event store."""

import asyncio
import gc
import hashlib
import json
import logging
import os
import secrets
import sqlite3
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast

from recfusion.core.errors import InputError
from recfusion.inference.lists import lists_for_requests
from recfusion.inference.request import ListRequest
from recfusion.inference.update import AnotherUpdate
from recfusion.server import worker_registry as workers
from recfusion.server.batcher import Batcher, Busy
from recfusion.server.config import Settings
from recfusion.server.event_kinds import parse_weights
from recfusion.server.event_store import Change, Store
from recfusion.server.file_states import FileState, file_states
from recfusion.server.http_errors import Fault
from recfusion.server.known_users import histories_files
from recfusion.server.learning import check_learning, has_to_unlearn, is_pending, learn, must_unlearn
from recfusion.server.loaded_models import (
    LoadedModel,
    LoadedModels,
    apply_changes,
    load_served,
    model_tag,
    with_changes,
)
from recfusion.server.metrics import Metrics
from recfusion.server.placements import (
    check_placements,
    current_placements,
    parse_placements,
    placement_tag,
    use_file,
)

log = logging.getLogger(__name__)
T = TypeVar("T")
ListJob = tuple[LoadedModel, ListRequest]  # a list to make with one of the models
BUCKETS = 256  # groups of users over which click-through is compared
_BATCH = 64  # users scored at once
_SWITCH = 0.001  # seconds after which the scoring thread yields to the event loop
_WRITES = 256  # writes in one commit
_RELOAD_WAIT = 20.0  # seconds that a reload waits for the other processes
_FIRST_RETRY, _LAST_RETRY = 1.0, 30.0  # seconds between attempts to load files that cannot be loaded


class Service:
    def __init__(self, settings: Settings, metrics: Metrics) -> None:
        self.settings, self.metrics = settings, metrics
        sys.setswitchinterval(_SWITCH)
        self._writing = Store(settings.events)
        with self._writing.writing():
            self._writing.set_state("weights", json.dumps(parse_weights(settings.event_weight)))
        self.reading = Store(settings.events)
        self._files = self._seen = self._file_states()
        self.models = load_served(settings)
        if settings.learn:
            check_learning(self.models.main.base)
        self._next_update = time.monotonic() + settings.learn_every
        with self._writing.writing():
            use_file(self._writing, settings.placements)  # load_served has checked them
            workers.begin(self._writing, self.models.generation)
        self.placements, self._placements_version = current_placements(self.reading)
        self._failed: list[FileState] = []  # the files of a failed load, and when they may be tried again
        self._retry, self._delay = 0.0, _FIRST_RETRY
        self._answered, self._overtaken = "", False  # a generation that this process has not, and whether to look again
        self._updating = asyncio.Lock()
        self._shown: Counter[tuple[int, str, str, int]] = Counter()
        self._exposed: Counter[tuple[int, str]] = Counter()
        self._scoring = Batcher(self._score, most=_BATCH, waiting=settings.max_waiting, name="scoring")
        self._storing = Batcher(self._write, most=_WRITES, waiting=4 * settings.max_waiting, name="storing")
        self._reading = ThreadPoolExecutor(1, "reading")
        gc.freeze()  # models stay for long: a collection that visits them would delay a request

    async def score(self, job: ListJob | Callable[[], T]) -> Any:
        """Return the list of a job, or the result of a function, from the scoring thread."""
        return await self._in_time(self._scoring.ask(job))

    async def write(self, job: Callable[[Store], T]) -> T:
        """Write to the event store; the data is on disk when it returns."""
        found: T = await self._in_time(self._storing.ask(job))
        return found

    async def read(self, job: Callable[[], T]) -> T:
        """Return the result of a function that reads the event store, so that a slow disk delays no other request."""
        found: T = await self._in_time(asyncio.get_running_loop().run_in_executor(self._reading, job))
        return found

    async def current(self) -> LoadedModels:
        """Return the models with the latest changes of item columns, also of other processes."""
        if await self.read(self.reading.last_change) != self.models.main.change:
            async with self._updating:
                while (old := self.models).main.change != await self.read(self.reading.last_change):
                    new = await self.score(partial(with_changes, old, self.reading))
                    if self.models is old:  # and was not replaced by a reload meanwhile
                        self.models = new
                        self._report_misfits()
        return self.models

    async def try_changes(self, items: Mapping[str, Mapping[str, Any]]) -> None:
        """Apply changes of item columns to a copy of the models; raise if that fails."""
        now, models = time.time(), await self.current()
        rows = [Change(item, name, value, now) for item, own in items.items() for name, value in own.items()]
        await self.score(partial(apply_changes, models, rows, lambda: [*self.reading.changes(), *rows], -1))

    async def reload(self) -> tuple[int, int]:
        """Read the model folders and histories again and replace those in use; other processes follow.

        Return how many processes have the new models, and how many there are.
        """
        await self._load()
        until = time.monotonic() + _RELOAD_WAIT
        followed = partial(workers.followed, self.reading, self.models.generation)
        while (counts := await self.read(followed))[0] < counts[1]:
            if time.monotonic() > until:
                break
            await asyncio.sleep(0.02)
        return counts

    async def follow(self) -> None:
        """Load the models again if another process did or, with `watch`, if their files changed.

        A load that failed is tried again. Files that still change are being copied, so a load waits until they stay
        the same for a moment.
        """
        await self._follow_placements()
        wanted = await self.read(partial(workers.generation, self.reading))
        old = self.models.generation
        self._answered = self._answered if wanted == self._answered else ""
        behind = self._overtaken or wanted not in (old, self._answered)
        if not behind and not self.settings.watch:
            return
        files, seen = self._file_states(), self._seen
        self._seen = files
        copied = self.settings.watch and files != self._files and files == seen
        if (behind or copied) and (files != self._failed or time.monotonic() >= self._retry):
            await self._load(asked=False)
            self._answered = wanted if self.models.generation == old else ""  # a service with other files asks for it

    async def forget(self, user: str) -> tuple[int, bool | None]:
        """Delete a user's events; return their number and, with --learn, whether the weights forgot the user."""
        if not self.settings.learn:
            return await self.write(lambda store: store.forget(user)), None
        base = self.models.main.base

        def delete(store: Store) -> int:
            must_unlearn(store, base, user)
            return store.forget(user)

        return await self.write(delete), False

    async def learn(self) -> None:
        """Update the weights by the events, beside scoring, if it is time and there are new ones."""
        if not self.settings.learn or (time.monotonic() < self._next_update and not has_to_unlearn(self.reading)):
            return
        main = self.models.main
        if workers.generation(self.reading) != self.models.generation or not is_pending(self.reading, main.base):
            return  # it has to load the last update first, or nothing happened
        self._next_update = time.monotonic() + self.settings.learn_every
        try:
            if await asyncio.to_thread(learn, self.settings.folder, main.base, main.version, self.settings.events):
                await self.reload()
        except AnotherUpdate:
            pass  # this process follows it
        except Exception as error:
            trouble = f"The model cannot learn. {self._explain(error)}"
            await self.write(lambda store: workers.report_trouble(store, trouble))
            log.warning(json.dumps({"event": "learning failed", "kind": type(error).__name__, "process": os.getpid()}))

    def position(self, user: str) -> float:
        """Return a user's fixed random position among all users, 0 to 1."""
        return int.from_bytes(hashlib.blake2b(user.encode(), digest_size=7).digest()) / 2**56

    def count_list(self, model: LoadedModel, user: str | None, placement: str | None, items: Iterable[str]) -> str:
        """Count a list, and return its id for events: the model, the user's bucket, the placement and a random part."""
        chance, day, name = secrets.token_hex(9), int(time.time() // 86400), placement or ""
        bucket = int(self.position(f"bucket {user or chance}") * BUCKETS)
        self._shown[day, model.label, name, bucket] += 1
        self._exposed.update((day, item) for item in items)
        return f"{model_tag(model.label)}{bucket:02x}{placement_tag(name)}{chance}"

    async def set_placements(self, tables: Mapping[str, Any], change: str, after: int) -> int:
        """Use and store other placements if `after` is the number of the newest version; return the new number."""
        check_placements(parse_placements(tables), {model.label: model.bundle for model in self.models.every})

        def store_them(store: Store) -> int | None:
            return store.set_placements(tables, change) if store.last_placements() == after else None

        number = await self.write(store_them)
        await self._follow_placements()
        if number is None:
            raise Fault(409, "version", "The placements were changed meanwhile: load them again.")
        return number

    async def _follow_placements(self) -> None:
        """Use the newest version of the placements, also of other processes."""
        if await self.read(self.reading.last_placements) != self._placements_version:
            self.placements, self._placements_version = await self.read(lambda: current_placements(self.reading))

    def _file_states(self) -> list[FileState]:
        """Return the states of the files of the model folders and of the histories file."""
        given = self.settings
        files = [
            path for folder in filter(None, (given.folder, given.also, *given.models)) for path in _files_in(folder)
        ]
        return file_states([*files, *histories_files(given.histories)])

    async def flush(self) -> None:
        """Store the number of lists that were shown."""
        lists, self._shown = self._shown, Counter()
        items, self._exposed = self._exposed, Counter()
        if not lists:
            return
        try:  # a service that ends cancels this: the counts are then stored by `close`
            await asyncio.shield(asyncio.ensure_future(self._storing.ask(lambda store: store.add_shown(lists, items))))
        except (Busy, OSError, sqlite3.Error):  # the next round tries again
            self._shown.update(lists)
            self._exposed.update(items)

    async def erase(self, seconds: float = 0.0) -> bool:
        """Remove deleted rows from the write-ahead log too; return whether none are left there."""
        return await asyncio.to_thread(lambda: self.reading.is_erased() or self.reading.erase(seconds))

    async def expire(self) -> None:
        """Delete events that are older than `keep_events` days."""
        days = self.settings.keep_events
        if days is not None:
            await self.write(lambda store: store.expire(days))

    def close(self) -> None:
        """Finish the waiting jobs, store the counts and end the threads."""
        self._reading.shutdown()
        self._scoring.close()
        self._storing.close()
        with self._writing.writing():
            self._writing.add_shown(self._shown, self._exposed)
            workers.leave(self._writing)
        self._writing.close()
        self.reading.close()

    async def _load(self, *, asked: bool = True) -> None:
        """Read everything, and replace what is in use only if all of it could be read.

        Other processes follow if the files are others than before, or if a reload was asked for.
        """
        wanted = await self.read(partial(workers.generation, self.reading))
        files, old = self._file_states(), self.models.generation
        try:
            new = await asyncio.to_thread(load_served, self.settings)
        except Exception as error:
            self._delay = min(2 * self._delay, _LAST_RETRY) if files == self._failed else _FIRST_RETRY
            self._failed, self._retry = files, time.monotonic() + self._delay
            trouble = cause = self._explain(error)
            for name in (path.name for path in histories_files(self.settings.histories)):
                if name in cause:  # it may quote ids, and anybody can read /ready
                    trouble = f"The histories file {name} cannot be read; POST /admin/reload says why."
            await self.write(lambda store: workers.report_trouble(store, trouble))
            self.metrics.reloads.labels("failed").inc()
            log.warning(json.dumps({"event": "reload failed", "kind": type(error).__name__, "process": os.getpid()}))
            raise Fault(409, "model", f"The new model cannot be served, the old one stays. {cause}") from None
        self.models, self._files = new, files
        self._failed = []
        publish = workers.begin if asked or new.generation != old else workers.announce
        found = await self.write(lambda store: publish(store, new.generation))
        # Another process published its files while this one read, perhaps later ones: read them again.
        self._overtaken = found not in (wanted, new.generation)
        self.metrics.reloads.labels("loaded").inc()
        line = {"event": "reloaded", "generation": new.generation, "process": os.getpid()}
        log.warning(json.dumps(line | {"versions": [one.version for one in new.every]}))
        self._report_misfits()
        gc.freeze()

    def _explain(self, error: Exception) -> str:
        """Return why files cannot be loaded, without paths."""
        if not isinstance(error, InputError | OSError):
            return f"Loading failed ({type(error).__name__})."
        given, text = self.settings, str(error)
        files = (*given.histories, *histories_files(given.histories))
        for path in filter(None, (given.folder, given.also, given.events, *files, *given.models)):
            text = text.replace(str(path), path.name)
        return text

    def _report_misfits(self) -> None:
        """Log columns whose stored values do not fit the item tables."""
        for model in self.models.every:
            if model.misfits:
                line = {"event": "stored item values do not fit and are ignored", "columns": model.misfits}
                log.warning(json.dumps(line | {"model": model.label, "remedy": "send new values, or DELETE /items"}))

    def _score(self, jobs: list[ListJob | Callable[[], Any]]) -> list[Any]:
        """Return the results of a batch: the lists of each model are made together, other jobs one by one."""
        found: list[Any] = [None] * len(jobs)
        groups: dict[int, list[int]] = {}
        for place, job in enumerate(jobs):
            if isinstance(job, tuple):
                groups.setdefault(id(job[0]), []).append(place)
                continue
            try:
                found[place] = job()
            except Exception as error:
                found[place] = error
        for places in groups.values():
            models, requests = zip(*(cast(ListJob, jobs[place]) for place in places), strict=True)
            for place, one in zip(places, lists_for_requests(models[0].bundle, requests), strict=True):
                found[place] = one
        return found

    def _write(self, jobs: list[Callable[[Store], Any]]) -> list[Any]:
        """Run jobs in one commit; one with wrong input leaves nothing behind and does not affect the others."""
        with self._writing.writing():
            return [self._writing.attempt(job) for job in jobs]

    async def _in_time(self, waiting: Any) -> Any:
        try:
            async with asyncio.timeout(self.settings.seconds):
                return await waiting
        except (Busy, TimeoutError):
            raise Fault(503, "", "The service is busy: try again in a second.", {"Retry-After": "1"}) from None


def _files_in(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:  # between an old folder and a new one
        return []
