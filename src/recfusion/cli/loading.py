"""Shows on a terminal what a command loads; imports nothing that takes long."""

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Timer

import typer

_SECONDS = 0.5  # of silence
_ERASE = "\r\x1b[K"  # the line


@contextmanager
def loading(what: str) -> Iterator[None]:
    """Show a line about loading on a terminal, if it takes longer than half a second; it is erased at the end."""
    if not sys.stderr.isatty():
        yield
        return
    shown = Timer(_SECONDS, typer.echo, (f"Loading {what} ...",), {"err": True, "nl": False})
    shown.daemon = True
    shown.start()
    try:
        yield
    finally:
        shown.cancel()
        shown.join()
        typer.echo(_ERASE, err=True, nl=False)


@contextmanager
def without_collection() -> Iterator[None]:
    """Import without garbage collection, and leave what is there now out of later ones: a fifth of the start."""
    gc.disable()
    try:
        yield
    finally:
        if not gc.get_freeze_count():  # a second time would keep garbage of the first command
            gc.freeze()
        gc.enable()
