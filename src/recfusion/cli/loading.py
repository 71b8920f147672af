"""Shows on a terminal what a command loads; imports nothing that takes long."""

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
