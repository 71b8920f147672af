"""The step of a long task, such as the part of a mixture that is being fitted: tasks log it, displays listen."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

log = logging.getLogger("recfusion.steps")


class _Listener(logging.Handler):
    def __init__(self, hear: Callable[[str], None]) -> None:
        super().__init__()
        self.hear = hear

    def emit(self, record: logging.LogRecord) -> None:
        self.hear(record.getMessage())


@contextmanager
def listening(hear: Callable[[str], None]) -> Iterator[None]:
    """Call `hear` with each step that a task of this process logs, instead of printing it."""
    handler, before = _Listener(hear), (log.level, log.propagate)
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    log.propagate = False
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(before[0])
        log.propagate = before[1]
