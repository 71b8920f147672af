"""What the closed-form thinning models cost on ML-1M, against EASE in the same run.

    python benchmarks/thinning.py --out benchmarks/thinning.json

All settings are given, so that nothing is searched for. EASE and the linear model take turns and the best of several
fits counts on both sides; the larger models are fitted once. ML-1M must be in RECFUSION_DATA or the cache. One thread.
"""

import argparse
import json
import time
import tracemalloc
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_limits

import recfusion as rf
from recfusion.core.arrays import Csr
from recfusion.core.files import write_json
from recfusion.models.base import Recommender
from recfusion.models.self_tuning import open_settings
from recfusion.models.thinning.linear import ThinningLinear

REPEAT = 5
PAIRS = 5000


def main() -> None:
    """Run all parts and print the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, help="JSON file for the figures")
    options = parser.parse_args()
    train = rf.split(rf.load("ml-1m"), seed=0).train
    with threadpool_limits(1):
        ease, linear = in_turns(train)
        pairs = fit_seconds(given(ThinningLinear(pairs=PAIRS)), train)
        found: dict[str, Any] = {
            "users and items": list(train.shape),
            "ease": {"seconds": ease},
            "thinning-linear": {"seconds": linear, "times EASE": linear / ease},
            "thinning-pairs": {"seconds": pairs, "times EASE": pairs / ease, "pairs": PAIRS},
            "peak memory of a fit, in items x items matrices of float32": {
                "ease": peak_matrices(rf.EASE(l2=500), train),
                "thinning-linear": peak_matrices(given(ThinningLinear()), train),
            },
        }
    print(json.dumps(found, indent=2))
    if options.out:
        write_json(options.out, found)


def given(model: Recommender) -> Recommender:
    """Return the model with its open settings at their starts."""
    for name, start in open_settings(model).items():
        setattr(model, name, start)
    return model


def in_turns(train: Csr) -> tuple[float, float]:
    """Return the seconds of the fastest fit of EASE and of the linear thinning model."""
    seconds = [
        (fit_seconds(rf.EASE(l2=500), train), fit_seconds(given(ThinningLinear()), train)) for _ in range(REPEAT)
    ]
    ease, linear = (min(each) for each in zip(*seconds, strict=True))
    return ease, linear


def fit_seconds(model: Recommender, train: Csr) -> float:
    """Return the seconds of one fit."""
    start = time.perf_counter()
    model.fit(train, rng=0)
    return time.perf_counter() - start


def peak_matrices(model: Recommender, train: Csr) -> float:
    """Return the peak memory of a fit without the data, in units of one items-by-items matrix."""
    tracemalloc.start()
    model.fit(train, rng=0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak / (4 * train.shape[1] ** 2)


if __name__ == "__main__":
    main()
