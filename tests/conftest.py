"""Small data and fixtures that several tests share."""

import logging
import os
import shutil
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import polars as pl
import pytest
import torch
from hypothesis import HealthCheck, settings
from threadpoolctl import threadpool_limits

from recfusion.core.arrays import Csr, binary_csr
from recfusion.core.pool import THREAD_VARIABLES
from recfusion.data.interactions import Interactions, RawData, ReadReport
from recfusion.data.options import Preparation
from recfusion.data.prepare import prepare
from recfusion.models.registry import MOVED, Entry

if TYPE_CHECKING:
    from browsing import Visit
    from pyspark.sql import SparkSession

Command: TypeAlias = Callable[..., tuple[int, str, str]]  # arguments -> exit code, standard output, standard error

# For matrices and networks this small, a second thread costs more time than it saves.
torch.set_num_threads(1)
threadpool_limits(1)
os.environ |= dict.fromkeys(THREAD_VARIABLES, "1")  # for commands that tests start
os.environ.setdefault("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")  # Spark here lives for seconds
collect_ignore_glob = [] if find_spec("uvicorn") and find_spec("fastapi") else ["server/*"]  # without the extra serve
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")  # no test may depend on the load of the machine


@pytest.fixture(autouse=True)
def _enabled_logging() -> Iterator[None]:
    """Scripts that a test runs may turn messages off, which other tests read."""
    yield
    logging.disable(logging.NOTSET)


def csr(rows: list[list[int]], n_columns: int) -> Csr:
    """Return the 0/1 matrix with ones at the listed columns of each row."""
    indptr = np.concatenate([[0], np.cumsum([len(row) for row in rows])])
    return binary_csr(indptr, np.array([column for row in rows for column in row], np.int64), n_columns)


def random_csr(n_users: int, n_items: int, density: float, seed: int) -> Csr:
    """Return a random 0/1 matrix in which every row has at least one entry."""
    dense = np.random.default_rng(seed).random((n_users, n_items)) < density
    dense[np.arange(n_users), np.arange(n_users) % n_items] = True
    return csr([np.flatnonzero(row).tolist() for row in dense], n_items)


def raw(rows: Mapping[str, Sequence[object]], items: pl.DataFrame | None = None) -> RawData:
    """Return raw data as a reader would."""
    frame = pl.DataFrame(rows, schema_overrides={"rating": pl.Float32} if "rating" in rows else None)
    return RawData("made up", frame, items, ReadReport(len(frame)))


@pytest.fixture(scope="session")
def groups() -> Interactions:
    """Four groups of users with different tastes: 80 users and 40 items."""
    rng = np.random.default_rng(0)
    user, item = [], []
    for number in range(80):
        group = number % 4
        own = rng.permutation(np.arange(10 * group, 10 * group + 10))[:7]
        other = rng.permutation(40)[:2]
        for column in np.unique(np.concatenate([own, other])):
            user.append(f"u{number:02d}")
            item.append(f"i{column:02d}")
    times = list(range(len(user)))
    titles = pl.DataFrame({"item": [f"i{n:02d}" for n in range(40)], "title": [f"Item {n}" for n in range(40)]})
    return prepare(raw({"user": user, "item": item, "time": times}, titles), Preparation())


@pytest.fixture
def installed_studies(monkeypatch: pytest.MonkeyPatch) -> None:
    """The models that moved to studies/, under their old names, as if another package had them."""
    moved = {name: Path(place.partition(":")[0]).stem + ":" + place.partition(":")[2] for name, place in MOVED.items()}
    models = {name: Entry(name, "a model of studies", place, origin="studies") for name, place in moved.items()}
    monkeypatch.setattr("recfusion.models.registry._installed", lambda: models)


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """Run a command of recfusion with arguments; return its exit code, standard output and standard error."""
    from recfusion.cli import main as cli

    def call(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["recfusion", *map(str, arguments)])
        with pytest.raises(SystemExit) as stop:
            cli.main()
        printed = capsys.readouterr()
        return int(stop.value.code or 0), printed.out, printed.err

    return call


@pytest.fixture(scope="module")
def visit(folder: Path) -> "Iterator[Visit]":
    """A service with the model folder of the test module, and a browser."""
    from browsing import visiting

    from recfusion.server.config import Settings

    with visiting(Settings(folder=folder, events=folder.with_name("events.sqlite"))) as found:
        yield found


@pytest.fixture
def no_problems(visit: "Visit") -> Iterator[None]:
    """Check that a test wrote nothing to the console, raised no error and contacted no other server."""
    visit.problems.clear()
    yield
    assert visit.problems == []


@pytest.fixture
def data_folder() -> Path:
    """The folder with local copies of published data sets; tests that need it are skipped without one."""
    folder = os.environ.get("RECFUSION_DATA")
    if not folder:
        pytest.skip("RECFUSION_DATA names no folder with local copies of the data sets")
    return Path(folder)


def require_spark() -> None:
    """Skip the test unless Spark can be started."""
    pytest.importorskip("pyspark", reason="pyspark is not installed (the extra spark)")
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        pytest.skip("there is no Java here")


@pytest.fixture(scope="session")
def session() -> "Iterator[SparkSession]":
    """One local Spark session for all tests that need one; they are skipped without pyspark or Java."""
    require_spark()
    from recfusion.spark.session import spark_session

    os.environ["PYSPARK_PYTHON"] = sys.executable
    small = {
        "spark.ui.enabled": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "512m",
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # pyspark does not close its sockets
        found = spark_session("local[2]", small)
    yield found
    found.stop()
