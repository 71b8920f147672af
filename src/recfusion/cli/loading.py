"""Shows on a terminal what a command loads, and loads it faster; imports nothing that takes long."""

import gc
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread

import typer

_SECONDS = 0.5  # of silence
_ERASE = "\r\x1b[K"  # the line


@contextmanager
def loading(what: str, silent: float = 0.0) -> Iterator[None]:
    """Show what is loaded and for how long on a terminal, after half a second; the line is erased at the end.

    `silent` are the seconds before, in which nothing was shown.
    """
    if not sys.stderr.isatty():
        yield
        return
    began, ended = time.monotonic(), Event()

    def show() -> None:
        pause = max(0.0, _SECONDS - silent)
        while not ended.wait(pause):
            seconds = int(time.monotonic() - began + silent)
            typer.echo(f"{_ERASE}Loading {what} ... {seconds} s", err=True, nl=False)
            pause = max(0.05, _SECONDS)

    shown = Thread(target=show, daemon=True)
    shown.start()
    try:
        yield
    finally:
        ended.set()
        shown.join()
        typer.echo(_ERASE, err=True, nl=False)


@contextmanager
def without_collection() -> Iterator[None]:
    """Import without garbage collection; the first time, leave what is there out of later ones.

    They would take a fifth of the time of a short command.
    """
    gc.disable()
    try:
        yield
    finally:
        if not gc.get_freeze_count():  # later, garbage of the command would be kept
            gc.freeze()
        gc.enable()
