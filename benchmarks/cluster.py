"""Generated rows through prepare, train and recommend on a standalone Spark cluster, with workers killed midway.

    python benchmarks/cluster.py --rows 50000000 --out benchmarks/cluster.json

A master and two workers run on this machine, each in a process of its own, with one core each. In every job one of the
workers is killed with its executor after the first tasks, and another one starts after the job. The results must equal
those of the same commands without Spark in the same run: prepared matrices, weights (to float32's rounding) and lists.
"""

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import psutil
import pyspark
from scipy.sparse import csr_array

import recfusion as rf
from recfusion.core.files import write_json
from spark import run

HOST = "127.0.0.1"
HOME = Path(pyspark.__file__).parent
WAIT = 120  # seconds for a process of Spark to start


class Cluster:
    """A standalone master with workers of one core each."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.number = folder, 0
        with socket.socket() as free:
            free.bind((HOST, 0))
            port = str(free.getsockname()[1])
        self.address = f"spark://{HOST}:{port}"
        self.master, log = self._start("master", "master.Master", "--port", port)
        self.log = log
        self._wait_for("I have been elected leader", 1)
        self.workers = [self.worker(), self.worker()]

    def worker(self) -> subprocess.Popen[bytes]:
        """Start a worker and wait until the master knows it."""
        self.number += 1
        process, _ = self._start(
            f"worker{self.number}", "worker.Worker", "--cores", "1", "--memory", "5g", self.address
        )
        self._wait_for("Registering worker", self.number)
        return process

    def kill_one(self) -> int:
        """Kill the last worker and the executor that it started; return the number of processes."""
        own = psutil.Process(self.workers.pop().pid)
        doomed = [*own.children(recursive=True), own]
        for process in doomed:
            process.send_signal(signal.SIGKILL)
        return len(doomed)

    def has_begun(self) -> bool:
        """Tell whether the last worker's executor runs Python tasks."""
        children = psutil.Process(self.workers[-1].pid).children(recursive=True)
        return any("python" in child.name() for child in children)

    def stop(self) -> None:
        for process in [*self.workers, self.master]:
            process.terminate()

    def _start(self, name: str, kind: str, *words: str) -> tuple[subprocess.Popen[bytes], Path]:
        environment = {
            **os.environ,
            "SPARK_LOCAL_IP": HOST,
            "SPARK_HOME": str(HOME),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_WORKER_DIR": str(self.folder / "work"),
            "PYSPARK_PYTHON": sys.executable,
        }
        command = [str(HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{kind}"]
        options = ["--host", HOST, "--webui-port", "0", *words]
        log = self.folder / f"{name}.log"
        with log.open("wb") as file:
            return subprocess.Popen([*command, *options], stdout=file, stderr=subprocess.STDOUT, env=environment), log

    def _wait_for(self, text: str, times: int) -> None:
        end = time.monotonic() + WAIT
        while self.log.read_text(errors="replace").count(text) < times:
            if time.monotonic() > end:
                raise RuntimeError(f"no '{text}' after {WAIT} s")
            time.sleep(0.2)


def on_cluster(cluster: Cluster, seconds: float, *command: object) -> dict[str, Any]:
    """Run a command on the cluster and kill a worker some seconds after its first Python task; return the measures."""
    killed: list[float] = []

    def kill() -> None:
        while not cluster.has_begun():
            time.sleep(0.2)
        time.sleep(seconds)
        killed.extend([time.perf_counter() - began, cluster.kill_one()])

    began = time.perf_counter()
    threading.Thread(target=kill, daemon=True).start()
    words = ["--master", cluster.address, "--conf", f"spark.driver.host={HOST}", "--conf", "spark.executor.memory=3g"]
    words += ["--conf", "spark.ui.enabled=false"]
    found = run("spark", *command, *words, beside=lambda: [worker.pid for worker in cluster.workers])
    if not killed:
        raise RuntimeError("the job ended before a worker was killed: use more rows")
    cluster.workers.append(cluster.worker())
    return found | {"worker_killed_after_seconds": killed[0], "killed_processes": killed[1]}


def same_data(one: Path, two: Path) -> bool:
    """Tell whether two prepared folders hold the same users, items and interactions."""
    a, b = rf.load(one), rf.load(two)
    ids = all(np.array_equal(np.asarray(x), np.asarray(y)) for x, y in ((a.users, b.users), (a.items, b.items)))
    return (
        ids and np.array_equal(a.matrix.indptr, b.matrix.indptr) and np.array_equal(a.matrix.indices, b.matrix.indices)
    )


def difference(one: Path, two: Path) -> float:
    """Return the largest difference of two models' scores for some histories, relative to the scores' spread."""
    bundles = [rf.Bundle.load(folder) for folder in (one, two)]
    rng, n_items = np.random.default_rng(0), len(bundles[0].items)
    histories = np.zeros((50, n_items), np.float32)
    for row in histories:
        row[rng.choice(n_items, 20, replace=False)] = 1
    a, b = (np.asarray(bundle.model.score(csr_array(histories))) for bundle in bundles)
    return float(np.abs(a - b).max() / a.std())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=50_000_000)
    parser.add_argument("--items", type=int, default=20_000)
    parser.add_argument("--after", type=float, default=5.0, help="seconds of work before a worker is killed")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    os.environ |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": HOST}
    report: dict[str, Any] = {"rows": asked.rows, "load": os.getloadavg()[0]}

    def keep(name: str, **found: Any) -> None:
        report[name] = found
        print(name, json.dumps(found), flush=True)
        if asked.out:
            write_json(asked.out, report)

    with tempfile.TemporaryDirectory(prefix="cluster-") as name:
        place = Path(name)
        made = place / "made"
        shape = ["--users", asked.rows // 20, "--items", asked.items, "--interactions", asked.rows]
        run("data", "generate", *shape, "--form", "parquet", "--out", made)
        table = made / "interactions.parquet"
        users = place / "users.parquet"
        pl.scan_parquet(table).head(2_000_000).sink_parquet(users)
        cluster = Cluster(place)
        try:
            spark = on_cluster(cluster, asked.after, "prepare", "--data", table, "--out", place / "spark")
            local = run("data", "prepare", "--data", table, "--out", place / "local")
            keep("prepare", spark=spark, local=local, equal=same_data(place / "spark", place / "local"))
            options = ["thinning-local", "--data", place / "local", "--tune-trials", 0, "--all-users", "--out"]
            spark = on_cluster(cluster, asked.after, "train", *options, place / "model-spark")
            local = run("train", *options, place / "model-local")
            gap = difference(place / "model-spark", place / "model-local")
            keep("train", spark=spark, local=local, largest_difference=gap)
            lists = ["recommend", place / "model-local", "--histories", users]
            spark = on_cluster(cluster, asked.after, *lists, "--out", place / "lists")
            local = run(*lists, "--out", place / "lists.parquet")
            found = pl.read_parquet(sorted((place / "lists").glob("part-*.parquet"))).sort("user", "rank")
            equal = found.equals(pl.read_parquet(place / "lists.parquet").sort("user", "rank"))
            keep("recommend", spark=spark, local=local, equal=equal, users=found["user"].n_unique())
        finally:
            cluster.stop()


if __name__ == "__main__":
    main()
