"""What the mixture costs and reaches on ML-1M before and after a change, in one run.

    git worktree add /tmp/before e10b194
    python benchmarks/before_after.py /tmp/before/src --out benchmarks/before_after.json

Each fit has a process of its own with one thread, the old and the new code take turns, and seconds are those of the
processor, so that a busy machine changes them less. The split is one that no table has. ML-1M is in RECFUSION_DATA.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from recfusion.core.files import write_json

SEED = 20
ONE_FIT = """
import json, sys, time
import recfusion as rf
from recfusion.evaluation.evaluate import evaluate
from recfusion.models.registry import make_model
parts = rf.split(rf.load("ml-1m"), seed=int(sys.argv[2]))
start = time.process_time()
model = make_model(sys.argv[1], {}).fit(parts.train, parts.valid, rng=0)
seconds = time.process_time() - start
ndcg = evaluate(model, parts.test, parts.train, ("ndcg@100",)).mean()["ndcg@100"]
print(json.dumps({"seconds": seconds, "ndcg@100": 100 * ndcg}))
"""


def main() -> None:
    """Fit each model by each code, and print what came out."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("before", type=Path, help="the src folder of the older code")
    parser.add_argument("--out", type=Path, help="JSON file for the figures")
    options = parser.parse_args()
    after = Path(__file__).parents[1] / "src"
    found: dict[str, Any] = {}
    for label, source, model in (
        ("thinning-fast, after", after, "thinning-fast"),
        ("thinning, before", options.before, "thinning"),
        ("thinning, after", after, "thinning"),
    ):
        found[label] = one_fit(source, model)
        print(label, found[label], flush=True)
    old = found["thinning, before"]["seconds"]
    for label, each in found.items():
        each["of the time before"] = each["seconds"] / old
        print(f"{label}: {each['of the time before']:.3f} of the time before, NDCG@100 {each['ndcg@100']:.2f}")
    if options.out:
        write_json(options.out, {"split": SEED, **found})


def one_fit(source: Path, model: str) -> dict[str, float]:
    """Return the seconds and the accuracy of one fit by the code in `source`."""
    threads = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "POLARS_MAX_THREADS")
    environment = {**os.environ, **dict.fromkeys(threads, "1"), "PYTHONPATH": str(source)}
    command = [sys.executable, "-c", ONE_FIT, model, str(SEED)]
    ran = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    measured: dict[str, float] = json.loads(ran.stdout.splitlines()[-1])
    return measured


if __name__ == "__main__":
    main()
