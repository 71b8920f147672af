"""A thread that takes what has gathered while it was busy, and does it in one go."""

import asyncio
import queue
import threading
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

Asked = TypeVar("Asked")
Given = TypeVar("Given")


class Busy(Exception):  # noqa: N818
    """More is waiting than may wait."""


class Batcher(Generic[Asked, Given]):
    """Requests from an event loop, handled in batches by one thread: nobody waits for a batch to fill up.

    `handle` returns an answer for each request, in their order; an exception is the answer of the one it belongs to.
    """

    def __init__(
        self, handle: Callable[[list[Asked]], Sequence[Given | Exception]], *, most: int, waiting: int, name: str
    ) -> None:
        self._handle, self._most, self._waiting = handle, most, waiting
        self._queue: queue.SimpleQueue[tuple[Asked, asyncio.Future[Given]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    async def ask(self, asked: Asked) -> Given:
        """Return the answer, or raise `Busy` at once."""
        if self._queue.qsize() >= self._waiting:
            raise Busy
        future: asyncio.Future[Given] = asyncio.get_running_loop().create_future()
        self._queue.put((asked, future))
        return await future

    def close(self) -> None:
        """Finish what is waiting, and end the thread."""
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (first := self._queue.get()) is not None:
            batch, ended = [first], False
            while len(batch) < self._most and not ended:
                try:
                    more = self._queue.get_nowait()
                except queue.Empty:
                    break
                if more is None:
                    ended = True
                else:
                    batch.append(more)
            self._answer([one for one in batch if not one[1].cancelled()])
            if ended:
                return

    def _answer(self, batch: list[tuple[Asked, "asyncio.Future[Given]"]]) -> None:
        if not batch:
            return
        answers: Sequence[Any]
        try:
            answers = self._handle([asked for asked, _ in batch])
        except Exception as error:
            answers = [error] * len(batch)
        for (_, future), given in zip(batch, answers, strict=True):
            try:
                future.get_loop().call_soon_threadsafe(_deliver, future, given)
            except RuntimeError:
                return  # the loop has ended: nobody is waiting any more


def _deliver(future: "asyncio.Future[Any]", given: Any) -> None:
    if future.done():
        return
    if isinstance(given, Exception):
        future.set_exception(given)
    else:
        future.set_result(given)
