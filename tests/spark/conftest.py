"""One Spark in local mode for all tests of this room; they are skipped where pyspark or Java is missing."""

import os
import shutil
import sys
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SMALL = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.adaptive.enabled": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "512m",
}


def require_spark() -> None:
    """Skip the test unless Spark can be started here."""
    pytest.importorskip("pyspark", reason="pyspark is not installed (the extra spark)")
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        pytest.skip("there is no Java here")


@pytest.fixture(scope="session")
def session() -> "Iterator[SparkSession]":
    require_spark()
    from recfusion.spark.session import spark_session

    os.environ["PYSPARK_PYTHON"] = sys.executable
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # pyspark leaves sockets to the collector
        found = spark_session("local[2]", SMALL)
    yield found
    found.stop()
