"""The measured energy of a fit, by the counters of processor packages (RAPL) that Linux shows as files.

A counter includes everything that runs on the package, and on most systems only root may read it.
"""

from pathlib import Path
from threading import Event, Thread
from types import TracebackType

POWERCAP = Path("/sys/class/powercap")
_SECONDS = 60.0  # between readings: even a counter that wraps after 65 kJ then wraps at most once below 1 kW


class EnergyMeter:
    """Adds up the energy of all packages during its `with` blocks."""

    def __init__(self, folder: Path = POWERCAP) -> None:
        self._folder = folder
        self._is_readable, self._microjoules = True, 0

    @property
    def joules(self) -> float | None:
        """The energy so far; None without counters, or if they stand still, as in some virtual machines."""
        return self._microjoules / 1e6 if self._is_readable and self._microjoules else None

    def __enter__(self) -> None:
        self._last, self._ended = read_counters(self._folder), Event()
        self._is_readable &= bool(self._last)
        self._reader = Thread(target=self._follow, daemon=True)
        self._reader.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._ended.set()
        self._reader.join()
        self._add()

    def _follow(self) -> None:
        while self._is_readable and not self._ended.wait(_SECONDS):
            self._add()

    def _add(self) -> None:
        now = read_counters(self._folder)
        self._is_readable &= now.keys() == self._last.keys()
        if self._is_readable:
            self._microjoules += sum((value - self._last[zone][0]) % wrap for zone, (value, wrap) in now.items())
        self._last = now


def read_counters(folder: Path) -> dict[str, tuple[int, int]]:
    """Return each package's counter and the value at which it wraps, in microjoules; empty if one cannot be read."""
    found = {}
    try:
        for zone in folder.glob("intel-rapl:*"):
            if (zone / "name").read_text(encoding="ascii").startswith("package"):  # others are parts of a package
                counter, wrap = (int((zone / name).read_bytes()) for name in ("energy_uj", "max_energy_range_uj"))
                found[zone.name] = counter, max(1, wrap)
    except (OSError, ValueError):
        return {}
    return found
