"""Free memory, and the check that refuses work that would not fit."""

from pathlib import Path

import psutil

from recfusion.core.errors import InputError

_CGROUP = Path("/sys/fs/cgroup")


def available_bytes() -> int:
    """Return the bytes that are free without swapping, within the container's limit if it has one."""
    free = int(psutil.virtual_memory().available)
    try:
        limit = int((_CGROUP / "memory.max").read_text())  # "max" if there is no limit
        used = int((_CGROUP / "memory.current").read_text())
    except (OSError, ValueError):
        return free
    return min(free, limit - used)


def require_memory(needed: int, what: str, advice: str, *, available: int | None = None) -> None:
    """Raise if work would need more bytes than are free."""
    have = available_bytes() if available is None else available
    if needed > have:
        raise InputError(f"{what} needs about {gigabytes(needed)} of memory and {gigabytes(have)} are free: {advice}")


def gigabytes(n_bytes: int) -> str:
    """Return a number of bytes as text, e.g. '1.3 GB'."""
    return f"{n_bytes / 1e9:.1f} GB" if n_bytes >= 1e8 else f"{n_bytes / 1e6:.0f} MB"
