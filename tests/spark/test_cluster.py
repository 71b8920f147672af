"""A real cluster on this machine: a standalone master with two workers, each in a process of its own."""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

from conftest import require_spark
from recfusion.data.interactions import Interactions
from recfusion.experiments.train import train

HOST = "127.0.0.1"


def free_port() -> int:
    with socket.socket() as found:
        found.bind((HOST, 0))
        return int(found.getsockname()[1])


def wait_for(path: Path, text: str, process: subprocess.Popen[bytes], times: int = 1) -> None:
    deadline = time.monotonic() + 180  # a busy machine starts a JVM slowly
    while time.monotonic() < deadline and process.poll() is None:
        if path.read_text(errors="replace").count(text) >= times:
            return
        time.sleep(0.2)
    raise AssertionError(f"no '{text}' in {path.read_text(errors='replace')[-2000:]}")


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    require_spark()
    import pyspark

    folder = tmp_path_factory.mktemp("cluster")
    port = free_port()
    address = f"spark://{HOST}:{port}"
    home = Path(pyspark.__file__).parent
    environment = {
        **os.environ,
        "SPARK_LOCAL_IP": HOST,
        "SPARK_HOME": str(home),
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_WORKER_DIR": str(folder / "work"),
        "PYSPARK_PYTHON": sys.executable,
    }
    running: list[subprocess.Popen[bytes]] = []

    def start(name: str, *arguments: str) -> Path:
        log = folder / f"{name}.log"
        command = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{arguments[0]}", *arguments[1:]]
        with log.open("wb") as file:
            running.append(subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, env=environment))
        return log

    try:
        log = start("master", "master.Master", "--host", HOST, "--port", str(port), "--webui-port", "0")
        wait_for(log, "I have been elected leader", running[0])
        for number in range(2):
            start(
                *(f"worker{number}", "worker.Worker", "--host", HOST, "--webui-port", "0"),
                *("--cores", "1", "--memory", "1g", address),
            )
        wait_for(log, "Registering worker", running[0], times=2)
        yield address
    finally:
        for process in reversed(running):
            process.terminate()
        for process in running:
            process.wait(30)


def recfusion(*arguments: object) -> str:
    """Run a command as a user would, in a process that ends with its Spark."""
    code = "from recfusion.cli.main import main; main()"
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": HOST}
    spark = [
        *("--conf", f"spark.driver.host={HOST}", "--conf", "spark.executor.memory=512m"),
        *("--conf", "spark.ui.enabled=false"),
    ]
    command = [sys.executable, "-c", code, *map(str, arguments), *spark]
    ran = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=400)
    assert ran.returncode == 0, ran.stderr[-3000:]
    return ran.stdout


@pytest.mark.slow
def test_trials_run_on_both_workers_of_a_cluster(master: str, tmp_path: Path) -> None:
    rows = [f"u{user},{(user * 7 + 3 * step) % 40}\n" for user in range(60) for step in range(12)]
    (tmp_path / "shop.csv").write_text("user,item\n" + "".join(rows))
    (tmp_path / "space.toml").write_text("[space]\nl2 = {low = 1, high = 100}\n")
    printed = recfusion(
        *("tune", "ease", "--data", tmp_path / "shop.csv", "--trials", 4, "--engine", "spark", "--master", master),
        *("--out", tmp_path / "out", "--space", tmp_path / "space.toml", "--json"),
    )
    document = json.loads(printed)
    assert document["trials"] == {"ok": 4, "stopped": 0, "failed": 0}
    assert document["validation"] >= document["default"]


@pytest.mark.slow
def test_lists_of_a_cluster_equal_the_local_ones(master: str, groups: Interactions, tmp_path: Path) -> None:
    model = train("ease", groups, {"l2": 5}).save(tmp_path / "model")
    rows = groups.matrix.tocoo()
    table = pl.DataFrame(
        {"user": rows.coords[0].astype("int64"), "item": [f"i{column:02d}" for column in rows.coords[1]]}
    )
    table.write_parquet(tmp_path / "users.parquet")
    recfusion(
        *("spark", "recommend", model, "--histories", tmp_path / "users.parquet", "--out", tmp_path / "lists", "-k", 3),
        *("--chunks", 1, "--master", master),
    )
    from recfusion.inference.bundle import Bundle
    from recfusion.inference.histories import read_histories
    from recfusion.inference.lists import ListMaker
    from recfusion.inference.recommending import recommend_batches

    bundle = Bundle.load(model)
    local = pl.concat(list(recommend_batches(ListMaker.of(bundle), read_histories(bundle, table), 3)))
    found = pl.read_parquet(sorted((tmp_path / "lists").glob("part-*.parquet")))
    assert found.sort("user", "rank").equals(local.sort("user", "rank"))
