"""One process of a service: its models, known users, scoring thread and event store."""

import asyncio
import gc
import hashlib
import logging
import secrets
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any, TypeVar, cast

import numpy as np

from recfusion.core.errors import InputError
from recfusion.inference.bundle import Bundle
from recfusion.inference.bundle_files import CONFIG
from recfusion.inference.histories import check_times, is_liked
from recfusion.inference.lists import lists_for_requests
from recfusion.inference.request import Entry, ListRequest, parse_history
from recfusion.models.abilities import lowest_rating
from recfusion.server import worker_registry as workers
from recfusion.server.batcher import Batcher, Busy
from recfusion.server.config import Settings
from recfusion.server.event_store import Store
from recfusion.server.http_errors import Fault
from recfusion.server.known_users import KnownUsers
from recfusion.server.loaded_models import LoadedModel, LoadedModels, load_models, model_tag, with_changes
from recfusion.server.metrics import Metrics

log = logging.getLogger(__name__)
T = TypeVar("T")
ListJob = tuple[LoadedModel, ListRequest]  # a list to make with one of the models
BUCKETS = 256  # groups of users over which click-through is compared
_BATCH = 64  # users scored at once
_SWITCH = 0.001  # seconds after which the scoring thread yields to the event loop
_WRITES = 256  # writes in one commit
_RELOAD_WAIT = 20.0  # seconds that a reload waits for the other processes


class Service:
    def __init__(self, settings: Settings, metrics: Metrics) -> None:
        self.settings, self.metrics = settings, metrics
        sys.setswitchinterval(_SWITCH)
        self.reading = Store(settings.events)
        self._writing = Store(settings.events)
        self._generation = workers.generation(self.reading)
        self.models = self._load_models()
        with self._writing.writing():
            workers.announce(self._writing, self._generation)
        self.known = KnownUsers.read(settings.histories, self.models.main.bundle.protocol)
        self.trouble: str | None = None  # why the last reload failed
        self._shown: Counter[tuple[int, str, int]] = Counter()
        self._scoring = Batcher(self._score, most=_BATCH, waiting=settings.max_waiting, name="scoring")
        self._storing = Batcher(self._write, most=_WRITES, waiting=4 * settings.max_waiting, name="storing")
        gc.freeze()  # models stay for long: a collection that visits them would delay a request

    async def score(self, job: ListJob | Callable[[], T]) -> Any:
        """Return the list of a job, or the result of a function, from the scoring thread."""
        return await self._in_time(self._scoring.ask(job))

    async def write(self, job: Callable[[Store], T]) -> T:
        """Write to the event store; the data is on disk when it returns."""
        found: T = await self._in_time(self._storing.ask(job))
        return found

    async def current(self) -> LoadedModels:
        """Return the models with the latest changes of item columns, also of other processes."""
        if self.reading.last_change() != self.models.main.change:
            await self.score(self._update)
        return self.models

    async def reload(self) -> tuple[int, int]:
        """Read the model folders again and replace the models in use; other processes follow.

        Return how many processes have the new models, and how many there are.
        """
        await self._load()
        self._generation = new = secrets.token_hex(8)
        await self.write(lambda store: workers.begin(store, new))
        until = time.monotonic() + _RELOAD_WAIT
        while (counts := workers.followed(self.reading, new))[0] < counts[1] and time.monotonic() < until:
            await asyncio.sleep(0.02)
        return counts

    async def follow(self) -> None:
        """Load the models again if another process did."""
        new = workers.generation(self.reading)
        if new != self._generation:
            self._generation = new
            await self._load()
            await self.write(lambda store: workers.announce(store, new))

    def merged_history(self, user: str, given: Sequence[Entry], bundle: Bundle) -> tuple[Entry, ...]:
        """Return a user's history: from the histories file, then the events, then the request, which counts most.

        Known entries have the ratings and times that the model reads. A model that reads ratings gets returned items as
        dislikes. An entry without a time follows a second after the newest before it, so that items of the request
        without times are the newest.
        """
        protocol, lowest = bundle.protocol, lowest_rating(bundle.model)
        graded, timed = "grades" in protocol.signals.used, "times" in protocol.signals.used
        if timed:
            check_times(given)
        events = self.reading.user_items(user)
        known = [] if self.reading.is_forgotten(user) else self.known.of(user)
        known = [entry for entry in known if entry["item"] not in events.returned]
        if graded:
            known += [{"item": item, "rating": lowest, "time": when} for item, when in events.returned.items()]
        known += [{"item": item, "time": when} for item, when in events.have.items()]
        keys = ["item"] + ["rating"] * graded + ["time"] * timed
        merged: dict[str, dict[str, Any]] = {}
        for entry in known:
            rating = entry.get("rating")
            if graded or rating is None or is_liked(np.array(rating, np.float32), protocol):
                merged.pop(entry["item"], None)
                merged[entry["item"]] = {key: entry.get(key) for key in keys}
        for one in given:
            entry = {"item": one} if isinstance(one, str) else one.model_dump()
            merged.pop(entry["item"], None)
            merged[entry["item"]] = entry
        newest = -1
        for entry in merged.values() if timed else ():
            entry["time"] = newest + 1 if entry.get("time") is None else int(entry["time"])
            newest = max(newest, entry["time"])
        plain = not (graded or timed) and all(isinstance(one, str) for one in given)
        return tuple(merged) if plain else parse_history(merged.values())

    def position(self, user: str) -> float:
        """Return a user's fixed random position among all users, 0 to 1."""
        return int.from_bytes(hashlib.blake2b(user.encode(), digest_size=7).digest()) / 2**56

    def count_list(self, model: LoadedModel, user: str | None) -> str:
        """Count a list, and return its id for events: the model, the user's bucket and a random part."""
        chance = secrets.token_hex(12)
        bucket = int(self.position(f"bucket {user or chance}") * BUCKETS)
        self._shown[int(time.time() // 86400), model.label, bucket] += 1
        return f"{model_tag(model.label)}{bucket:02x}{chance}"

    def folder_state(self) -> list[tuple[int, int]]:
        """Return time and inode of the configuration files, which change with the models in the folders."""
        found = []
        for folder in filter(None, (self.settings.folder, self.settings.also)):
            try:
                state = (folder / CONFIG).stat()
                found.append((state.st_mtime_ns, state.st_ino))
            except OSError:  # between an old folder and a new one
                found.append((0, 0))
        return found

    async def flush(self) -> None:
        """Store the number of lists that were shown."""
        counts, self._shown = self._shown, Counter()
        if counts:
            await self.write(lambda store: store.add_shown(counts))

    async def expire(self) -> None:
        """Delete events that are older than `keep_events` days."""
        days = self.settings.keep_events
        if days is not None:
            await self.write(lambda store: store.expire(days))

    def close(self) -> None:
        """Finish the waiting jobs, store the counts and end the threads."""
        self._scoring.close()
        self._storing.close()
        with self._writing.writing():
            self._writing.add_shown(self._shown)
            workers.leave(self._writing)
        self._writing.close()
        self.reading.close()

    async def _load(self) -> None:
        try:
            self.models = await asyncio.to_thread(self._load_models)
        except (InputError, OSError) as error:
            self.trouble = str(error)
            for folder in filter(None, (self.settings.folder, self.settings.also)):
                self.trouble = self.trouble.replace(str(folder), folder.name)  # without paths
            self.metrics.reloads.labels("failed").inc()
            log.warning("The new model cannot be loaded, the old one stays: %s", type(error).__name__)
            raise
        self.trouble = None
        self.metrics.reloads.labels("loaded").inc()
        protocol = self.models.main.bundle.protocol
        self.known = await asyncio.to_thread(KnownUsers.read, self.settings.histories, protocol)
        gc.freeze()

    def _load_models(self) -> LoadedModels:
        given = self.settings
        with closing(Store(given.events)) as store:  # a connection belongs to one thread
            return load_models(given.folder, given.also, given.also_share, store, mapped=given.workers > 1)

    def _update(self) -> None:
        self.models = with_changes(self.models, self.reading)

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
        with self._writing.writing():
            return [job(self._writing) for job in jobs]

    async def _in_time(self, waiting: Any) -> Any:
        try:
            async with asyncio.timeout(self.settings.seconds):
                return await waiting
        except (Busy, TimeoutError):
            raise Fault(503, "", "The service is busy: try again in a second.", {"Retry-After": "1"}) from None
