"""Limits of the address space (`ulimit -v`): too small ones are refused, and a crash within one becomes a sentence.

Libraries do not survive a failed allocation: polars, jemalloc and OpenBLAS hang or abort when a thread or a buffer of
theirs cannot be created. A command under a limit therefore runs in a child process, and this process reports its death.
"""

import os
import signal
import sys
import threading

import typer

from recfusion.core.memory import address_space_limit

_LEAST_BYTES, _CORE_BYTES = 1_700_000_000, 16_000_000  # address space of the libraries, and of each thread (measured)
_ASKED = (1, 2, 13, 15)  # SIGHUP, SIGINT, SIGPIPE and SIGTERM: somebody ended the command
NO_MEMORY = "There is not enough memory for this: use fewer items or users, or a larger machine."


def guard_low_memory(failed: int) -> None:
    """Refuse a small limit of the address space; under a larger one, continue in a child process and end with it."""
    limit, least = address_space_limit(), _LEAST_BYTES + _CORE_BYTES * (os.cpu_count() or 1)
    if limit is None:
        return
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")  # the default one reserves a gigabyte of addresses
    if limit < least:
        report(
            f"Expected an address space of at least {least // 10**6:,} MB, got a limit of {limit // 10**6:,} MB: raise "
            "it with `ulimit -v unlimited`."
        )
        sys.exit(failed)
    if threading.active_count() > 1 or "polars" in sys.modules:
        return  # a process with threads cannot be forked safely
    child = os.fork()
    if not child:
        return
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to the child too
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: os.kill(child, number))
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code < 0 and -code not in _ASKED:
        report(NO_MEMORY)
        os._exit(failed)
    os._exit(code if code >= 0 else 128 - code)


def report(message: str) -> None:
    """Print an error on standard error, without the libraries of the other messages."""
    typer.echo(f"Error: {message}", err=True)
