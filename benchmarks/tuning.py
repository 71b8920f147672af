"""What tuning gains from processes and from TPE, what Spark's workers need, and what threads cost that wait.

    python benchmarks/tuning.py --out benchmarks/tuning.json [--part parallel|search|memory|waiting] [--small]

Parts: the same trials with one process and with two, one thread each, in turns; TPE against random search with the
same budget on EASE and RecFusion, several splits; the largest worker process while Spark makes lists for 200,000
users and for a tenth of them; `recfusion compare --workers 1` beside a busy process, with threads that sleep while they
wait and with the libraries' own way, in turns. All on ml-latest-small. The machine should have nothing else to do for
the first.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import psutil

from recfusion.core.files import write_json
from recfusion.core.pool import SLEEPING_THREADS, THREAD_VARIABLES
from recfusion.data.interactions import Interactions
from recfusion.data.load import load
from recfusion.data.options import Source
from recfusion.experiments.train import train
from recfusion.experiments.tuning.engine import local_engine
from recfusion.experiments.tuning.space_file import tuning_space
from recfusion.experiments.tuning.tune import Algorithm, SearchRequest, run_trials
from recfusion.models.registry import entry

PARTS = ("parallel", "search", "memory", "waiting")
# How libgomp and OpenBLAS wait unless OMP_WAIT_POLICY and OPENBLAS_THREAD_TIMEOUT (core/pool.py) say otherwise.
SPINNING = {"GOMP_SPINCOUNT": "300000", "OPENBLAS_THREAD_TIMEOUT": "26"}
# EASE's own search for l2 is switched off: it would do the work that is measured here.
SEARCHED: Mapping[str, dict[str, Any]] = {"ease": {"tune_trials": 0}, "recfusion": {"max_epochs": 40}}


def main() -> None:
    """Run the parts that were asked for and print the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, help="JSON file for the figures; other parts in it are kept")
    parser.add_argument("--part", choices=PARTS, action="append")
    parser.add_argument("--small", action="store_true", help="a quick look: fewer trials, splits and users")
    options = parser.parse_args()
    data = load("ml-latest-small")
    found: dict[str, Any] = json.loads(options.out.read_text()) if options.out and options.out.is_file() else {}
    for part in options.part or PARTS:
        run = {"parallel": parallel, "search": search, "memory": memory, "waiting": waiting}[part]
        found[part] = {"small": options.small, **run(data, options.small)}
        print(json.dumps({part: found[part]}, indent=2))
        if options.out:
            write_json(options.out, found)


def parallel(data: Interactions, small: bool) -> dict[str, Any]:
    """Return the seconds of the same trials with one process and with two."""
    trials, repeat = (4, 1) if small else (12, 3)
    given = {"max_epochs": 10 if small else 80, "patience": 100}
    whole = tuning_space(entry("recfusion"), given)
    space = {name: each for name, each in whole.items() if name not in ("lr", "width", "depth", "batch_size")}
    # Trials at random are the same for any number of processes; none is stopped, so that all do the same work.
    request = SearchRequest(entry("recfusion"), space, given, trials=trials, algorithm="random", stop_early=False)
    seconds: dict[int, list[float]] = {1: [], 2: []}
    scores: dict[int, list[float | None]] = {}
    for _ in range(repeat):
        for processes, taken in seconds.items():
            with tempfile.TemporaryDirectory() as folder:
                start = time.perf_counter()
                ended = run_trials(data, request, local_engine(processes, threads=1), Path(folder))
                taken.append(time.perf_counter() - start)
            scores[processes] = [ended[number].score for number in range(trials)]
    return {
        "trials": trials,
        "seconds": {str(processes): taken for processes, taken in seconds.items()},
        "times as fast (best of each)": min(seconds[1]) / min(seconds[2]),
        "same scores": scores[1] == scores[2],
    }


def search(data: Interactions, small: bool) -> dict[str, Any]:
    """Return the best validation NDCG@100 of TPE and of random search after the same number of trials."""
    seeds, trials = (range(2), 16) if small else (range(5), 30)
    models = {"ease": SEARCHED["ease"]} if small else SEARCHED
    found: dict[str, Any] = {"trials": trials, "seeds": len(seeds), "the same in both": "trials 0 to 7 of each search"}
    for model, given in models.items():
        best: dict[str, list[list[float]]] = {"tpe": [], "random": []}
        for seed in seeds:
            best["tpe"].append(_running_best(data, model, given, "tpe", seed, trials))
            best["random"].append(_running_best(data, model, given, "random", seed, trials))
        by = {name: np.array(curves) for name, curves in best.items()}
        gain = by["tpe"][:, -1] - by["random"][:, -1]
        found[model] = {
            **{f"{name}, mean of the best": float(curves[:, -1].mean()) for name, curves in by.items()},
            "tpe minus random, by seed": gain.tolist(),
            "tpe wins": int((gain > 0).sum()),
            "draws": int((gain == 0).sum()),
            "mean of the best after half the trials": {n: float(c[:, trials // 2 - 1].mean()) for n, c in by.items()},
        }
    return found


def _running_best(
    data: Interactions, model: str, given: Mapping[str, Any], algorithm: Algorithm, seed: int, trials: int
) -> list[float]:
    row = entry(model)
    request = SearchRequest(
        row, tuning_space(row, given), given, trials=trials, algorithm=algorithm, seed=seed, stop_early=False
    )
    with tempfile.TemporaryDirectory() as folder:
        ended = run_trials(data, request, local_engine(1, threads=1), Path(folder))
    scores = [ended[number].score if ended[number].score is not None else -1.0 for number in range(trials)]
    return np.maximum.accumulate(np.array(scores, float)).tolist()


def memory(data: Interactions, small: bool) -> dict[str, Any]:
    """Return the largest resident size of a Python worker while lists are made for few and for many users."""
    from recfusion.spark.recommend import spark_recommend
    from recfusion.spark.session import spark_session

    most = 20_000 if small else 200_000
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = train("ease", data, {"l2": 200}).save(folder / "model")
        session = spark_session("local[2]", {"spark.ui.enabled": "false"})
        try:
            for n_users in (most // 10, most):
                _write_users(folder / f"{n_users}.parquet", data, n_users)
                source = Source(data=str(folder / f"{n_users}.parquet"), time="none")
                with _Largest() as largest:
                    start = time.perf_counter()
                    *_, (_, counts) = spark_recommend(
                        session, model, source, folder / f"lists{n_users}", k=20, chunks=4
                    )
                    seconds = time.perf_counter() - start
                assert counts.users == n_users
                found[f"{n_users:,} users"] = {"MB of the largest worker": largest.megabytes, "seconds": seconds}
        finally:
            session.stop()
    return found


def _write_users(path: Path, data: Interactions, n_users: int) -> None:
    """Write users with 20 items each, drawn by popularity."""
    rng = np.random.default_rng(0)
    counts = np.bincount(data.matrix.indices, minlength=data.n_items)
    items = rng.choice(data.items.to_numpy(), (n_users, 20), p=counts / counts.sum())
    pl.DataFrame({"user": np.repeat(np.arange(n_users), 20), "item": items.ravel()}).write_parquet(path)


class _Largest:
    """Watches the Python workers of Spark, which are grandchildren of this process, from a thread."""

    def __init__(self) -> None:
        self.megabytes = 0.0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> "_Largest":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(0.2):
            for process in psutil.Process().children(recursive=True):
                try:
                    if "pyspark" in " ".join(process.cmdline()) and "java" not in process.name():
                        self.megabytes = max(self.megabytes, process.memory_info().rss / 1e6)
                except psutil.Error:
                    continue


def waiting(_: Interactions, small: bool) -> dict[str, Any]:
    """Return the CPU seconds of the same comparison, with threads that sleep while they wait and that spin."""
    compare = [sys.executable, "-m", "recfusion", "compare", "--workers", "1", "--splits", "1", "--tune-trials", "0"]
    models = {"ease": [], "multvae": ["--set", f"multvae.max_epochs={3 if small else 20}"]}
    ways = {"asleep": dict[str, str](), "spinning": SPINNING}
    plain = {name: value for name, value in os.environ.items() if name not in (*THREAD_VARIABLES, *SLEEPING_THREADS)}
    found: dict[str, Any] = {name: {way: [] for way in ways} for name in models}
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder, subprocess.Popen([sys.executable, "-c", "while True: pass"]) as busy:
        for number in range(1 if small else 3):
            for name, options in models.items():
                for way, variables in ways.items():
                    began, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
                    store = str(Path(folder) / f"{name}-{way}-{number}.jsonl")  # a known store has nothing to fit
                    command = [*compare, "--models", name, *options, "--out", store]
                    subprocess.run(command, env=plain | variables, capture_output=True, check=True)
                    used = resource.getrusage(resource.RUSAGE_CHILDREN)
                    cpu = used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime
                    found[name][way].append({"cpu_seconds": cpu, "seconds": time.perf_counter() - began})
        busy.kill()
    return {"cores": len(os.sched_getaffinity(0)), "load before": load, **found}


if __name__ == "__main__":
    main()
