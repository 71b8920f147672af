"""The 100 best of a million items for one user by factors: all scores and a selection, against an index of the items.

    pip install faiss-cpu==1.15.1 && python benchmarks/retrieval.py --out benchmarks/retrieval.json

The factors are those of `thinning-factors` on made-up data of 100,000 items, ten times over with noise, so that there
are a million. The index is faiss's inverted file; what it finds is scored exactly. Recall is the share of the true 100
among what it found. Milliseconds of one user at a time, one thread, the median of 200.
"""

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from memory import made

from recfusion.core.arrays import FloatArray
from recfusion.data.generate import Size
from recfusion.evaluation.topk import top_k
from recfusion.models.registry import make_model

SIZE, COPIES, NOISE, CELLS, K, USERS = Size(100_000, 100_000, 2_000_000), 10, 0.2, 2048, 100, 200
PROBED = (8, 32, 128)


def median_ms(run: Callable[[int], Any]) -> float:
    """Return the median milliseconds of run(user)."""
    taken = []
    for user in range(USERS):
        began = time.perf_counter()
        run(user)
        taken.append(1e3 * (time.perf_counter() - began))
    return float(np.median(taken))


def main() -> None:
    import faiss

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("retrieval.json"))
    asked = parser.parse_args()
    faiss.omp_set_num_threads(1)
    rng, rows = np.random.default_rng(0), made(SIZE)
    settings = {"factors": 128, "tune_trials": 0}
    model: Any = make_model("thinning-factors", settings).fit(rows, rng=0)
    users: FloatArray = np.asarray(rows[:USERS] @ model.left_)  # (users, factors)
    parts = [
        model.right_.T * (1 + NOISE * rng.standard_normal(model.right_.T.shape, np.float32)) for _ in range(COPIES)
    ]
    items: FloatArray = np.ascontiguousarray(np.concatenate(parts), np.float32)  # (a million, factors)
    turned = np.ascontiguousarray(items.T)
    nothing = rows[:1, :0]
    nothing.resize((1, len(items)))

    def whole(user: int) -> Any:
        return top_k(users[user : user + 1] @ turned, nothing, K)[0][0]

    began = time.perf_counter()
    index = faiss.IndexIVFFlat(faiss.IndexFlatIP(items.shape[1]), items.shape[1], CELLS, faiss.METRIC_INNER_PRODUCT)
    index.train(items[rng.choice(len(items), 100_000, replace=False)])
    index.add(items)
    built = time.perf_counter() - began
    found: dict[str, Any] = {"items": len(items), "factors": items.shape[1], "whole_ms": median_ms(whole)}
    found |= {"index_seconds": built, "index_bytes": int(items.nbytes + 8 * len(items)), "probed": []}
    truth = [set(whole(user).tolist()) for user in range(USERS)]
    for probed in PROBED:
        index.nprobe = probed

        def some(user: int) -> Any:
            return index.search(users[user : user + 1], K)[1][0]

        recall = np.mean([len(truth[user] & set(some(user).tolist())) / K for user in range(USERS)])
        found["probed"].append({"cells": probed, "of": CELLS, "ms": median_ms(some), "recall": float(recall)})
    asked.out.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
