"""How fast and how small the foundation is, against RecPack 0.3.6 and pandas in the same run.

    python benchmarks/foundation.py --peer .venv-recpack/bin/python --out benchmarks/foundation.json

Set the peer's environment up as `recpack_peer.py` says; ML-1M must be in RECFUSION_DATA or the cache. The two sides
take turns on the same machine, several rounds of them; the lowest and the highest ratio of a round are given, for a
peer's time varies too. `--skip-memory` leaves out the largest
part: 100,000 users on 20,000 items, two to three minutes.
"""

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import recfusion as rf
from recfusion.core.arrays import Csr, FloatArray, binary_csr
from recfusion.core.files import write_json

PEER = Path(__file__).with_name("recpack_peer.py")
METRICS = ("calibrated_recall@20", "calibrated_recall@50", "ndcg@100")
REPEAT = 5  # rounds


def main() -> None:
    """Run all parts and print the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--peer", required=True, help="Python of the environment that has RecPack")
    parser.add_argument("--out", type=Path, help="JSON file for the figures")
    parser.add_argument("--skip-memory", action="store_true")
    parser.add_argument("--memory-part", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.memory_part:
        print(json.dumps(memory_of_evaluation()))
        return
    found: dict[str, Any] = {"machine": {"cores": os.cpu_count(), "cpu": platform.processor() or platform.machine()}}
    with tempfile.TemporaryDirectory() as folder:
        found |= ease_and_scoring(options.peer, Path(folder))
        found["read"] = reading(options.peer, Path(folder))
    if not options.skip_memory:
        command = [sys.executable, __file__, "--peer", options.peer, "--memory-part"]
        found["memory"] = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    print(json.dumps(found, indent=2))
    if options.out:
        write_json(options.out, found)


def seconds_of(run: Callable[[], object], repeat: int = 3) -> float:
    """Return the seconds of the fastest of a few runs in a row: of one round."""
    seconds = []
    for _ in range(repeat):
        start = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def peer(python: str, *arguments: object) -> dict[str, Any]:
    """Return what the peer's script prints."""
    command = [python, str(PEER), *map(str, arguments)]
    return dict(json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout))


def ease_and_scoring(python: str, folder: Path) -> dict[str, Any]:
    """Fit EASE on ML-1M, then score the test users with the peer's own weights and compare the metrics."""
    parts = rf.split(rf.load("ml-1m"), seed=0)
    matrices = {"train": parts.train, "history": parts.test.history, "held_out": parts.test.held_out}
    arrays = {
        f"{name}_{part}": getattr(matrix, part) for name, matrix in matrices.items() for part in ("indptr", "indices")
    }
    np.savez(
        folder / "split.npz", shape=[*(m.shape[0] for m in list(matrices.values())[:2]), parts.train.shape[1]], **arrays
    )

    ease, scoring = Rounds("RecPack 0.3.6"), Rounds("RecPack 0.3.6")
    model = rf.EASE(l2=500)
    for _ in range(REPEAT):
        theirs = peer(python, "ease", folder / "split.npz", "--weights", folder / "w.npy", "--repeat", 1)
        ease.add(min(theirs["fit_seconds"]), seconds_of(lambda: rf.EASE(l2=500).fit(parts.train)))
        same = peer(python, "ease", folder / "split.npz", "--weights-in", folder / "w.npy", "--repeat", 3)
        model.weights_ = np.load(folder / "w.npy").astype(np.float32)
        scoring.add(
            min(same["score_seconds"]), seconds_of(lambda: rf.evaluate(model, parts.test, parts.train, METRICS))
        )
    ours = rf.evaluate(model, parts.test, parts.train, METRICS).mean()
    return {
        "ease fit on ML-1M": ease.figures(),
        "scoring and three metrics": scoring.figures()
        | {"largest difference in a metric": max(abs(ours[name] - same["metrics"][name]) for name in METRICS)},
    }


def reading(python: str, folder: Path) -> dict[str, Any]:
    """Read, prepare and split ML-1M, against pandas reading the same rows from a plain CSV."""
    from recfusion.data.catalog import read_named

    read_named("ml-1m").rows.write_csv(folder / "ml-1m.csv")
    rounds = Rounds("pandas' C engine reading a plain CSV")
    for _ in range(REPEAT):
        theirs = peer(python, "read", folder / "ml-1m.csv", "--repeat", 3)
        rounds.add(min(theirs["read_seconds"]), seconds_of(lambda: rf.split(rf.load("ml-1m"), seed=0)))
    return rounds.figures()


@dataclass
class Rounds:
    """Seconds of both sides, round by round."""

    peer: str
    theirs: list[float] = field(default_factory=list)
    ours: list[float] = field(default_factory=list)

    def add(self, theirs: float, ours: float) -> None:
        """Note one round."""
        self.theirs.append(theirs)
        self.ours.append(ours)

    def figures(self) -> dict[str, Any]:
        """Return both sides' ranges, and those of their ratio within a round."""
        ratios = [theirs / ours for theirs, ours in zip(self.theirs, self.ours, strict=True)]
        spans = {"seconds": self.ours, "peer seconds": self.theirs, "times as fast": ratios}
        return {"peer": self.peer, "rounds": len(ratios)} | {
            name: {"lowest": min(each), "median": statistics.median(each), "highest": max(each)}
            for name, each in spans.items()
        }


class Wide:
    """A linear model on 20,000 items with weights drawn at random."""

    def __init__(self, n_items: int) -> None:
        rng = np.random.default_rng(0)
        self.weights = rng.random((n_items, n_items), dtype=np.float32)

    def score(self, history: Csr) -> FloatArray:
        """Return history times weights."""
        return np.asarray(history @ self.weights)


def memory_of_evaluation(n_users: int = 100_000, n_items: int = 20_000, per_user: int = 20) -> dict[str, Any]:
    """Return the peak memory of evaluating many users, beyond the model's weights and the data."""
    rng = np.random.default_rng(0)
    indptr = np.arange(0, n_users * per_user + 1, per_user)
    history, held_out = (
        binary_csr(
            indptr,
            np.sort((rng.integers(0, n_items // per_user, (n_users, per_user)) + start), axis=1).ravel(),
            n_items,
        )
        for start in (np.arange(per_user) * (n_items // per_user),) * 2
    )
    fold = rf.Fold(np.arange(n_users), history, held_out)
    model = Wide(n_items)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.perf_counter()
    rf.evaluate(model, fold, history, METRICS)
    seconds = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "users": n_users,
        "items": n_items,
        "weights GB": model.weights.nbytes / 1e9,
        "peak beyond weights and data GB": (after - before) * 1024 / 1e9,
        "seconds": seconds,
    }


if __name__ == "__main__":
    main()
