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
from pathlib import Path
from typing import Any

import psutil

_POLL = 0.2  # seconds between two looks at the processes


def run(*command: object) -> dict[str, float]:
    """Run a command of recfusion; return its seconds, and the CPU seconds and highest memory of all its processes."""
    began = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "recfusion", *map(str, command)], stderr=subprocess.PIPE, text=True
    )
    used: dict[int, float] = {}
    peak = 0
    while process.poll() is None:
        memory = 0
        try:
            for one in [own := psutil.Process(process.pid), *own.children(recursive=True)]:
                try:
                    times = one.cpu_times()
                    used[one.pid] = times.user + times.system
                    memory += one.memory_info().rss
                except psutil.NoSuchProcess:
                    continue
        except psutil.NoSuchProcess:
            break
        peak = max(peak, memory)
        time.sleep(_POLL)
    _, said = process.communicate()
    if process.returncode:
        raise RuntimeError(said)
    return {"seconds": time.perf_counter() - began, "cpu_seconds": sum(used.values()), "peak_bytes": peak}


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
            spark = run("spark", "recommend", asked.model, "--users", users, "--out", Path(folder) / "lists")
            local = run("recommend", asked.model, "--users", users, "--out", Path(folder) / "lists.parquet")
            add("recommend", users, spark=spark, local=local)
    if asked.train:
        options = ["thinning-local", "--data", asked.train, "--tune-trials", 0, "--all-users", "--out"]
        with tempfile.TemporaryDirectory() as folder:
            spark = run("spark", "train", *options, Path(folder) / "spark")
            add("train", asked.train, spark=spark, local=run("train", *options, Path(folder) / "local"))


if __name__ == "__main__":
    main()
