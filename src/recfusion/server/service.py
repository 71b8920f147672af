"""What one process of a service holds and does: models, known users, the scoring thread and the file of events."""

import asyncio
import gc
import hashlib
import logging
import secrets
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from recfusion.core.errors import InputError
from recfusion.inference.bundle import Bundle
from recfusion.inference.bundle_files import CONFIG
from recfusion.inference.histories import is_liked
from recfusion.inference.single import Answer, Ask, Had, answer
from recfusion.models.abilities import lowest_rating
from recfusion.server import worker_registry as workers
from recfusion.server.batcher import Batcher, Busy
from recfusion.server.config import Settings
from recfusion.server.event_store import Store
from recfusion.server.http_errors import Fault
from recfusion.server.known_users import KnownUsers
from recfusion.server.loaded_models import Served, Shelf, load_shelf, updated
from recfusion.server.metrics import Metrics

log = logging.getLogger(__name__)
T = TypeVar("T")
BUCKETS = 256  # of users, over which click-through is compared
_BATCH = 64  # users scored at once
_SWITCH = 0.001  # seconds after which the scoring thread lets the event loop go on
_WRITES = 256  # acknowledged by one commit
_FOLLOWED = 20.0  # seconds that a reload waits for the other processes


@dataclass(frozen=True)
class Scored:
    """A list to be made by one of the models."""

    served: Served
    ask: Ask


class Service:
    """One process of a service."""

    def __init__(self, settings: Settings, metrics: Metrics) -> None:
        self.settings, self.metrics = settings, metrics
        sys.setswitchinterval(_SWITCH)
        self.reading = Store(settings.events)
        self._writing = Store(settings.events)
        self._generation = workers.generation(self.reading)
        self.shelf = self._loaded()
        with self._writing.writing():
            workers.announce(self._writing, self._generation)
        self.known = KnownUsers.read(settings.histories, self.shelf.main.bundle.protocol)
        self.trouble: str | None = None  # why the last reload failed
        self._shown: Counter[tuple[int, str, int]] = Counter()
        self._scoring = Batcher[Scored | Callable[[], Any], Any](
            self._score, most=_BATCH, waiting=settings.max_waiting, name="scoring"
        )
        self._storing = Batcher[Callable[[Store], Any], Any](
            self._write, most=_WRITES, waiting=4 * settings.max_waiting, name="storing"
        )
        gc.freeze()  # what is loaded stays for long: looking through all of it would hold up a request now and then

    async def score(self, job: Scored | Callable[[], T]) -> Any:
        """Return a list, or what a function of the models finds, from the scoring thread."""
        return await self._in_time(self._scoring.ask(job))

    async def write(self, job: Callable[[Store], T]) -> T:
        """Do something to the file of events; when it returns, it is on disk."""
        found: T = await self._in_time(self._storing.ask(job))
        return found

    async def current(self) -> Shelf:
        """Return the models with the latest changes of item columns, whichever process recorded them."""
        if self.reading.last_change() != self.shelf.main.change:
            await self.score(self._update)
        return self.shelf

    async def reload(self) -> tuple[int, int]:
        """Read the model folders again beside the ones in use and exchange them; other processes follow.

        Returns how many processes have the new models, of how many.
        """
        await self._load()
        self._generation = new = secrets.token_hex(8)
        await self.write(lambda store: workers.begin(store, new))
        until = time.monotonic() + _FOLLOWED
        while (told := workers.followed(self.reading, new))[0] < told[1] and time.monotonic() < until:
            await asyncio.sleep(0.02)
        return told

    async def follow(self) -> None:
        """Load again where another process did."""
        new = workers.generation(self.reading)
        if new != self._generation:
            self._generation = new
            await self._load()
            await self.write(lambda store: workers.announce(store, new))

    def histories(self, user: str | None, given: Sequence[Had], bundle: Bundle) -> list[Had]:
        """Return what a user has: by the file of histories, the events, and the request, which counts most.

        Of what is known here, a model is given the grades and times that it reads; for one that reads grades, what was
        given back is seen and not liked.
        """
        if user is None:
            return list(given)
        protocol, lowest = bundle.protocol, lowest_rating(bundle.model)
        events = self.reading.taken(user)
        known = [] if self.reading.is_forgotten(user) else self.known.of(user)
        graded, timed = ("grades" in protocol.signals.used, "times" in protocol.signals.used)
        found: dict[str, Had] = {}
        back = [Had(item, lowest, when) for item, when in events.returned.items()] if graded else []
        have = [Had(item, None, when) for item, when in events.have.items()]
        for one in [*(one for one in known if one.item not in events.returned), *back, *have]:
            if graded or one.grade is None or is_liked(np.array(one.grade, np.float32), protocol):
                found.pop(one.item, None)
                found[one.item] = Had(one.item, one.grade if graded else None, one.time if timed else None)
        for said in given:
            found.pop(said.item, None)
            found[said.item] = said
        return list(found.values())

    def place(self, user: str) -> float:
        """Return where a user stands among all, 0 to 1: always in the same place, and in no order of the ids."""
        return int.from_bytes(hashlib.blake2b(user.encode(), digest_size=7).digest()) / 2**56

    def note_shown(self, served: Served, user: str | None) -> str:
        """Count a list, and return the id by which events can refer to it: model, bucket of the user, chance."""
        chance = secrets.token_hex(12)
        bucket = int(self.place(f"bucket {user or chance}") * BUCKETS)
        self._shown[int(time.time() // 86400), served.label, bucket] += 1
        return f"{served.tag}{bucket:02x}{chance}"

    def folder_state(self) -> list[tuple[int, int]]:
        """Return what changes when another model takes the place of a folder's."""
        folders = [folder for folder in (self.settings.folder, self.settings.also) if folder is not None]
        found = []
        for folder in folders:
            try:
                told = (folder / CONFIG).stat()
            except OSError:  # between an old folder and a new one
                found.append((0, 0))
            else:
                found.append((told.st_mtime_ns, told.st_ino))
        return found

    async def shrink(self) -> None:
        """Take what was deleted out of the log beside the file."""
        await asyncio.to_thread(self.reading.shrink)

    async def flush(self) -> None:
        """Write down how many lists were shown."""
        counts, self._shown = self._shown, Counter()
        if counts:
            await self.write(lambda store: store.add_shown(counts))

    async def expire(self) -> None:
        """Delete events that are older than they may be kept."""
        days = self.settings.keep_days
        if days is not None:
            await self.write(lambda store: store.expire(days))

    def close(self) -> None:
        """Finish what is waiting, write down what was counted and end the threads."""
        self._scoring.close()
        self._storing.close()
        with self._writing.writing():
            self._writing.add_shown(self._shown)
            workers.leave(self._writing)
        self._writing.close()
        self.reading.close()

    async def _load(self) -> None:
        settings = self.settings
        try:
            self.shelf = await asyncio.to_thread(self._loaded)
        except (InputError, OSError) as error:
            self.trouble = self._told(error)
            self.metrics.reloads.labels("failed").inc()
            log.warning("The new model is not served, the old one goes on: %s", type(error).__name__)
            raise
        self.trouble = None
        self.metrics.reloads.labels("loaded").inc()
        protocol = self.shelf.main.bundle.protocol
        self.known = await asyncio.to_thread(KnownUsers.read, settings.histories, protocol)
        gc.freeze()

    def _loaded(self) -> Shelf:
        store = Store(self.settings.events)  # of this thread
        try:
            told = self.settings
            return load_shelf(told.folder, told.also, told.share, store, mapped=told.workers > 1)
        finally:
            store.close()

    def _told(self, error: Exception) -> str:
        """Return what is wrong with a new model, without the places of files on this machine."""
        told = str(error)
        for folder in (self.settings.folder, self.settings.also):
            told = told.replace(str(folder), folder.name) if folder is not None else told
        return told

    def _update(self) -> None:
        self.shelf = updated(self.shelf, self.reading)

    def _score(self, jobs: list[Scored | Callable[[], Any]]) -> list[Any]:
        """Answer a batch: the lists of each model together, other jobs one by one."""
        found: list[Any] = [None] * len(jobs)
        groups: dict[int, list[int]] = {}
        for place, job in enumerate(jobs):
            if isinstance(job, Scored):
                groups.setdefault(id(job.served), []).append(place)
                continue
            try:
                found[place] = job()
            except Exception as error:
                found[place] = error
        for places in groups.values():
            batch = [job for job in (jobs[place] for place in places) if isinstance(job, Scored)]
            given: Sequence[Answer | InputError] = answer(batch[0].served.bundle, [job.ask for job in batch])
            for place, one in zip(places, given, strict=True):
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
