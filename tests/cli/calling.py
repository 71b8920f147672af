"""The type of the fixture `command`."""

from collections.abc import Callable
from typing import TypeAlias

Command: TypeAlias = Callable[..., tuple[int, str, str]]  # arguments -> exit code, standard output, standard error
