"""How reproductions and figures show their progress; the command line fills in its own functions."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from recfusion.experiments.run import OnEvent

Advance: TypeAlias = Callable[[str, int], None]  # a line to print, unless it is empty; how many more parts are done
Progress: TypeAlias = Callable[[str, int], AbstractContextManager[Advance]]  # title, number of parts


@dataclass(frozen=True)
class Display:
    """Functions that show messages and progress."""

    note: Callable[[str], None]
    working: Callable[[str], AbstractContextManager[object]]
    progress: Progress
    fits: Callable[[str, Path, str], AbstractContextManager[OnEvent]]  # title, store, metric


def silent(line: str, done: int) -> None:
    """Show no progress."""
