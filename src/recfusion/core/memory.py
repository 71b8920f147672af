"""Free memory, the check that refuses work that would not fit, and limits of this process."""

import sys
from pathlib import Path

from recfusion.core.errors import InputError

try:
    import resource
except ImportError:  # a system without it
    resource = None  # type: ignore[assignment]

_CGROUP = Path("/sys/fs/cgroup")


def open_file_limit() -> int:
    """Return how many files this process may have open at once (`ulimit -n`)."""
    return _limit("RLIMIT_NOFILE") or sys.maxsize


def address_space_limit() -> int | None:
    """Return the limit of this process's address space in bytes (`ulimit -v`); None if there is none."""
    return _limit("RLIMIT_AS")


def _limit(name: str) -> int | None:
    limit = -1 if resource is None else resource.getrlimit(getattr(resource, name))[0]
    return None if limit < 0 or limit == resource.RLIM_INFINITY else int(limit)


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error means that memory ran out, also while a library was loaded."""
    signs = ("failed to map segment", "can't start new thread", "can't allocate memory")  # dlopen, Python, torch
    return isinstance(error, MemoryError) or any(sign in str(error) for sign in signs)


def available_bytes() -> int:
    """Return the bytes that are free without swapping, within the limits of the container and of this process."""
    import psutil  # only here: every command imports this module

    free = int(psutil.virtual_memory().available)
    if (most := address_space_limit()) is not None:
        free = min(free, max(0, most - int(psutil.Process().memory_info().vms)))
    try:
        limit = int((_CGROUP / "memory.max").read_text())  # "max" if there is no limit
        used = int((_CGROUP / "memory.current").read_text())
    except (OSError, ValueError):
        return free
    return min(free, limit - used)


def require_memory(needed: int, what: str, advice: str) -> None:
    """Raise if work would need more bytes than are free."""
    if needed > (have := available_bytes()):
        raise InputError(f"{what} needs about {gigabytes(needed)} of memory and {gigabytes(have)} are free: {advice}")


def gigabytes(n_bytes: int) -> str:
    """Return a number of bytes as text, e.g. '1.3 GB'."""
    return f"{n_bytes / 1e9:.1f} GB" if n_bytes >= 1e8 else f"{n_bytes / 1e6:.0f} MB"
