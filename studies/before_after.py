"""Time and accuracy of the mixture on ML-1M before and after a change, in one run.

    git worktree add /tmp/before e10b194
    python studies/before_after.py /tmp/before/src --out studies/results/before_after.json

Each fit runs in its own process with one thread, old and new code alternate on every split, and times are CPU seconds,
which depend less on a busy machine. Accuracy is paired by user. No table uses these splits. ML-1M is in RECFUSION_DATA.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from recfusion.core.files import write_json

ONE_FIT = """
import json, sys, time
import recfusion as rf
from recfusion.evaluation.evaluate import evaluate
from recfusion.models.registry import make_model
parts = rf.split(rf.load("ml-1m"), seed=int(sys.argv[2]))
start = time.process_time()
model = make_model(sys.argv[1], {}).fit(parts.train, parts.valid, rng=0)
seconds = time.process_time() - start
ndcg = evaluate(model, parts.test, parts.train, ("ndcg@100",)).per_user["ndcg@100"]
print(json.dumps({"seconds": seconds, "ndcg": (100 * ndcg).tolist()}))
"""
OLD = "thinning, before"


def main() -> None:
    """Fit each model with each version, and print the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("before", type=Path, help="the src folder of the older code")
    parser.add_argument("--splits", type=int, nargs="+", default=[20, 21, 22])
    parser.add_argument("--out", type=Path, help="JSON file for the figures")
    options = parser.parse_args()
    after = Path(__file__).parents[1] / "src"
    fits = {
        OLD: (options.before, "thinning"),
        "thinning, after": (after, "thinning"),
        "thinning-fast, after": (after, "thinning-fast"),
    }
    seconds: dict[str, list[float]] = {label: [] for label in fits}
    ndcg: dict[str, list[float]] = {label: [] for label in fits}  # of all users, split after split
    for seed in options.splits:
        for label, (source, model) in fits.items():
            found = one_fit(source, model, seed)
            seconds[label].append(found["seconds"])
            ndcg[label] += found["ndcg"]
            print(f"split {seed}, {label}: {found['seconds']:.1f} s, {np.mean(found['ndcg']):.2f}", flush=True)
    report: dict[str, Any] = {"splits": options.splits}
    for label in fits:
        gain = np.array(ndcg[label]) - np.array(ndcg[OLD])
        report[label] = {
            "seconds": seconds[label],
            "of the time before": sum(seconds[label]) / sum(seconds[OLD]),
            "ndcg@100": float(np.mean(ndcg[label])),
            "minus before": float(gain.mean()),
            "standard error": float(gain.std() / np.sqrt(len(gain))),
        }
        print(label, report[label])
    if options.out:
        write_json(options.out, report)


def one_fit(source: Path, model: str, seed: int) -> dict[str, Any]:
    """Return the seconds of one fit with the code in `source`, and the NDCG of each test user."""
    threads = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "POLARS_MAX_THREADS")
    environment = {**os.environ, **dict.fromkeys(threads, "1"), "PYTHONPATH": str(source)}
    command = [sys.executable, "-c", ONE_FIT, model, str(seed)]
    ran = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    measured: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    return measured


if __name__ == "__main__":
    main()
