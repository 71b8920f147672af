"""Starts a Spark session, or raises one clear error: no pyspark, no Java, or no master."""

import logging
import os
import shutil
import socket
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from threadpoolctl import threadpool_limits

from recfusion.core.errors import InputError
from recfusion.core.extras import require

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ANSWER_SECONDS = 5.0  # for a master to accept a connection
_EXECUTOR_SECONDS = 120.0  # for a cluster to offer a first executor
_PORT = 7077  # of a standalone master that is named without one

# Our progress view replaces Spark's progress bars; --conf overrides this.
_QUIET = {"spark.ui.showConsoleProgress": "false"}
_POLARS = "spark.executorEnv.POLARS_MAX_THREADS"  # else polars would use all cores in each task
_CONFIGURED = ("SPARK_CONF_DIR", "SPARK_HOME")  # variables that name a user's configuration


def spark_session(master: str | None = None, conf: Mapping[str, str] | None = None) -> "SparkSession":
    """Return a Spark session on `master`; by default Spark's configuration decides, else it is local[*].

    Tasks need the same Python with recfusion on every machine: here the running one, elsewhere PYSPARK_PYTHON.
    """
    require("pyspark", "Spark")
    import pyspark
    from pyspark.sql import SparkSession

    _require_java()
    wanted = {**_QUIET, _POLARS: (conf or {}).get("spark.task.cpus", "1"), **(conf or {})}
    master = master or wanted.pop("spark.master", None)
    if master is not None:
        _require_master(master)
    if not any(name in os.environ for name in _CONFIGURED) and not (Path(pyspark.__file__).parent / "conf").is_dir():
        os.environ["SPARK_CONF_DIR"] = str(Path(__file__).parent / "conf")
    if master is None or master.startswith("local"):
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    logging.getLogger().addFilter(_is_not_of_py4j)  # it logs a traceback for each interrupted call
    builder = SparkSession.builder.appName("recfusion")
    if master is not None:
        builder = builder.master(master)
    try:
        session = builder.config(map=dict(wanted)).getOrCreate()
    except Exception as error:  # of pyspark, the system or the JVM
        where, named = (f" on '{master}'", " --master,") if master is not None else ("", "")
        raise InputError(
            f"Spark did not start{where} ({brief(error)}): check{named} the settings of Spark, and that Java is 17 or "
            "later."
        ) from None
    _require_executor(session)
    return session


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    return "py4j" not in record.pathname


def task_cores(session: "SparkSession") -> int:
    """Return the number of cores per task."""
    return int(session.sparkContext.getConf().get("spark.task.cpus") or 1)  # session.conf would start Spark SQL


def task_slots(session: "SparkSession") -> int:
    """Return about how many tasks run at once."""
    return max(1, session.sparkContext.defaultParallelism // task_cores(session))


def use_cores(threads: int) -> None:
    """Set the number of threads of this Spark worker process."""
    threadpool_limits(threads)
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(threads)


def _require_java() -> None:
    home = os.environ.get("JAVA_HOME")
    if not ((Path(home) / "bin" / "java").is_file() if home else shutil.which("java")):
        where = f"JAVA_HOME is '{home}', and there is no bin/java in it" if home else "none is on the PATH"
        raise InputError(f"Spark needs Java 17 or later, and {where}: install one, such as openjdk-17-jre-headless.")


def _require_master(master: str) -> None:
    """Raise unless a standalone master accepts a connection; Spark itself would wait for minutes."""
    if not master.startswith(("local", "spark://", "k8s://", "yarn")):
        raise InputError(
            f"Expected a Spark master such as local[2], spark://host:7077, k8s://... or yarn, got '{master}': check "
            "--master.",
            "master",
        )
    if not master.startswith("spark://"):
        return
    for place in master.removeprefix("spark://").split(","):
        host, _, port = place.rpartition(":") if ":" in place else (place, "", str(_PORT))
        try:
            with socket.create_connection((host, int(port)), timeout=_ANSWER_SECONDS):
                return
        except (OSError, ValueError):
            continue
    raise InputError(
        f"No Spark master answers at '{master}': start it, or check --master (spark://host:port).", "master"
    )


def _require_executor(session: "SparkSession") -> None:
    """Raise if a cluster offers no executor: every job would wait forever."""
    context = session.sparkContext
    if (context.master or "").startswith("local"):
        return
    deadline = time.monotonic() + _EXECUTOR_SECONDS
    while time.monotonic() < deadline:
        if len(context._jsc.sc().statusTracker().getExecutorInfos()) > 1:  # the driver is one of them
            return
        time.sleep(0.2)
    session.stop()
    raise InputError(
        f"The Spark master '{context.master}' offered no executor within {_EXECUTOR_SECONDS:.0f} s: check that it has "
        "workers with enough free cores and memory."
    )


def brief(error: Exception) -> str:
    """Return the most useful line of a Spark error."""
    lines = [line.strip(" :.") for line in str(error).splitlines() if line.strip()]
    useful = [line for line in lines if not line.startswith("An error occurred while calling")]  # by Py4J
    return useful[0] if useful else type(error).__name__
