"""Fixtures that the browser tests of the page share."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from recfusion.server.config import Settings

if TYPE_CHECKING:
    from browsing import Visit


@pytest.fixture(scope="module")
def visit(folder: Path) -> "Iterator[Visit]":
    """A service with the model folder of the test module, and a browser."""
    from browsing import visiting

    with visiting(Settings(folder=folder, events=folder.with_name("events.sqlite"))) as found:
        yield found


@pytest.fixture
def no_problems(visit: "Visit") -> Iterator[None]:
    """Check that a test wrote nothing to the console, raised no error and contacted no other server."""
    visit.problems.clear()
    yield
    assert visit.problems == []
