"""A thread that handles all requests that arrived while it was busy as one batch."""

import asyncio
import queue
import threading
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

Job = TypeVar("Job")
Answer = TypeVar("Answer")


class Busy(Exception):  # noqa: N818
    """Too many requests are waiting."""


class Batcher(Generic[Job, Answer]):
    """Handles requests of an event loop in batches in one thread; no request waits for a batch to fill up.

    `handle` returns an answer for each request of a batch, in their order; an exception is the answer to its request.
    """

    def __init__(
        self, handle: Callable[[list[Job]], Sequence[Answer | Exception]], *, most: int, waiting: int, name: str
    ) -> None:
        self._handle, self._most, self._waiting = handle, most, waiting
        self._queue: queue.SimpleQueue[tuple[Job, asyncio.Future[Answer]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    async def ask(self, job: Job) -> Answer:
        """Return the answer, or raise `Busy` at once."""
        if self._queue.qsize() >= self._waiting:
            raise Busy
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._queue.put((job, future))
        return await future

    def close(self) -> None:
        """Finish the waiting requests and end the thread."""
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        closed = False
        while not closed:
            batch = [self._queue.get()]
            while len(batch) < self._most and not self._queue.empty():  # no other thread takes from the queue
                batch.append(self._queue.get())
            closed = None in batch
            self._answer([entry for entry in batch if entry is not None and not entry[1].cancelled()])

    def _answer(self, batch: list[tuple[Job, "asyncio.Future[Answer]"]]) -> None:
        if not batch:
            return
        answers: Sequence[Any]
        try:
            answers = self._handle([job for job, _ in batch])
        except BaseException as error:  # a panic of polars is no Exception, and must not end this thread
            answers = [error if isinstance(error, Exception) else RuntimeError(type(error).__name__)] * len(batch)
        for (_, future), answer in zip(batch, answers, strict=True):
            try:
                future.get_loop().call_soon_threadsafe(_deliver, future, answer)
            except RuntimeError:
                return  # the event loop has ended, so nobody waits


def _deliver(future: "asyncio.Future[Any]", answer: Any) -> None:
    if future.done():
        return
    if isinstance(answer, Exception):
        future.set_exception(answer)
    else:
        future.set_result(answer)
