"""Seconds of the Spark jobs in local mode, start-up included, beside the same work without Spark, in one run.

    recfusion data generate --users 400000 --items 50000 --interactions 5000000 --form csv --out c5
    recfusion data generate --users 800000 --items 50000 --interactions 10000000 --form csv --out c10
    python benchmarks/spark.py c5/interactions.csv c10/interactions.csv --out benchmarks/spark.json

Each job is a command as a user would call it. CPU seconds are those of all of its processes, Java and Python, and say
more than seconds on a clock where others use the machine. `--model FOLDER` also makes lists for the users of a file,
and `--train FOLDER` trains thinning-local on a prepared folder.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

_POLL = 0.2  # seconds between two looks at the processes


def run(*command: object, beside: Callable[[], Sequence[int]] = lambda: ()) -> dict[str, float]:
    """Run a command of recfusion; return its seconds, and the CPU seconds and highest memory of all its processes.

    `beside` returns processes, such as those of a cluster, whose descendants work for the command too.
    """
    began = time.perf_counter()
    before, used, peak = {one.pid: _cpu(one) for one in _with_children(beside())}, dict[int, float](), 0
    process = subprocess.Popen(
        [sys.executable, "-m", "recfusion", *map(str, command)], stderr=subprocess.PIPE, text=True
    )
    while process.poll() is None:
        memory = 0
        for one in _with_children([process.pid, *beside()]):
            with suppress(psutil.NoSuchProcess):
                used[one.pid] = _cpu(one)
                memory += one.memory_info().rss
        peak = max(peak, memory)
        time.sleep(_POLL)
    _, said = process.communicate()
    if process.returncode:
        raise RuntimeError(said)
    cpu = sum(seconds - before.get(pid, 0.0) for pid, seconds in used.items())
    return {"seconds": time.perf_counter() - began, "cpu_seconds": cpu, "peak_bytes": peak}


def _with_children(pids: Sequence[int]) -> Iterator[psutil.Process]:
    for pid in pids:
        with suppress(psutil.NoSuchProcess):
            yield from [own := psutil.Process(pid), *own.children(recursive=True)]


def _cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--users", type=Path, help="whose lists are made; by default the first file")
    parser.add_argument("--train", type=Path, help="a prepared folder on which thinning-local is trained")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    rows: list[dict[str, Any]] = []

    def add(what: str, of: Path, **found: Any) -> None:
        rows.append({"what": what, "of": f"{of.parent.name}/{of.name}", "bytes": of.stat().st_size, **found})
        print(rows[-1], flush=True)
        if asked.out:
            asked.out.write_text(json.dumps({"load": os.getloadavg()[0], "rows": rows}, indent=1) + "\n")

    for path in asked.files:
        with tempfile.TemporaryDirectory() as folder:
            spark = run("spark", "prepare", "--data", path, "--out", Path(folder) / "spark")
            add(
                "prepare",
                path,
                spark=spark,
                local=run("data", "prepare", "--data", path, "--out", Path(folder) / "local"),
            )
    if asked.model:
        users = asked.users or asked.files[0]
        with tempfile.TemporaryDirectory() as folder:
            spark = run("spark", "recommend", asked.model, "--histories", users, "--out", Path(folder) / "lists")
            local = run("recommend", asked.model, "--histories", users, "--out", Path(folder) / "lists.parquet")
            add("recommend", users, spark=spark, local=local)
    if asked.train:
        options = ["thinning-local", "--data", asked.train, "--tune-trials", 0, "--all-users", "--out"]
        with tempfile.TemporaryDirectory() as folder:
            spark = run("spark", "train", *options, Path(folder) / "spark")
            add("train", asked.train, spark=spark, local=run("train", *options, Path(folder) / "local"))


if __name__ == "__main__":
    main()
