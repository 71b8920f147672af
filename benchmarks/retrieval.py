"""The 100 best of very many items for one user: by all scores, by the model's own index, and by faiss's.

    recfusion data generate --users 1000000 --items 1000000 --interactions 100000000 --form parquet --out million
    recfusion train thinning-factors --data million/interactions.parquet --out million-factors \
        --set factors=128 --set tune_trials=0
    pip install faiss-cpu==1.15.1
    OPENBLAS_NUM_THREADS=1 python benchmarks/retrieval.py million-factors million/interactions.parquet \
        --out benchmarks/retrieval.json

The users are the first of the file. Recall is the share of the true 100 among those found; rules allow every tenth or
every hundredth item. Milliseconds of one user at a time, one thread, the median of 200. faiss's inverted file has the
same number of cells and ranks them by the products with their centres alone; it knows no histories and no rules.
"""

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from recfusion.core.arrays import Csr, FloatArray, IntArray
from recfusion.evaluation.topk import top_k
from recfusion.inference.bundle import Bundle
from recfusion.inference.histories import histories_from_entries

K, USERS, ROWS = 100, 200, 100_000
PROBED = (8, 32, 64, 128)


def median_ms(run: Callable[[int], Any]) -> float:
    """Return the median milliseconds of run(user)."""
    taken = []
    for user in range(USERS):
        began = time.perf_counter()
        run(user)
        taken.append(1e3 * (time.perf_counter() - began))
    return float(np.median(taken))


def recall(truth: list[IntArray], found: Callable[[int], IntArray]) -> float:
    """Return the share of the true items among those found."""
    return float(np.mean([np.isin(truth[user], found(user)).mean() for user in range(USERS)]))


def histories(bundle: Bundle, path: Path) -> Csr:
    """Return what the first users of a file have, of the items that the model knows."""
    columns = bundle.protocol.source.user or "user_id", bundle.protocol.source.item or "item_id"
    rows = pl.scan_parquet(path).head(ROWS).select(columns).collect()
    lists = rows.group_by(columns[0], maintain_order=True).agg(columns[1])[columns[1]]
    texts = [[str(item) for item in own] for own in lists.to_list()[: 2 * USERS]]
    long = [own for own in texts if (bundle.columns_of(own) >= 0).sum() >= 5]
    return histories_from_entries(bundle, long[:USERS])[0].matrix


def by_faiss(vectors: FloatArray, codes: FloatArray, truth: list[IntArray], cells: int) -> dict[str, Any]:
    """Return time and recall of faiss's inverted file; nothing if it is not installed."""
    try:
        import faiss
    except ImportError:
        return {}
    faiss.omp_set_num_threads(1)
    rng, began = np.random.default_rng(0), time.perf_counter()
    index = faiss.IndexIVFFlat(faiss.IndexFlatIP(vectors.shape[1]), vectors.shape[1], cells, faiss.METRIC_INNER_PRODUCT)
    index.train(vectors[rng.choice(len(vectors), min(len(vectors), 40 * cells), replace=False)])
    index.add(vectors)
    found: dict[str, Any] = {"index_seconds": time.perf_counter() - began, "probed": []}
    for probed in PROBED:
        index.nprobe = probed

        def some(user: int) -> IntArray:
            return np.asarray(index.search(codes[user : user + 1], K)[1][0])

        found["probed"].append({"cells": probed, "ms": median_ms(some), "recall": recall(truth, some)})
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("data", type=Path)
    parser.add_argument("--out", type=Path, default=Path("retrieval.json"))
    asked = parser.parse_args()
    bundle = Bundle.load(asked.model)
    model: Any = bundle.model
    rows = histories(bundle, asked.data)
    nothing = type(rows)(rows.shape, dtype=np.float32)

    def whole(user: int, mask: NDArray[np.bool_] | None = None) -> IntArray:
        scores = model.score(rows[[user]])
        if mask is not None:
            scores[:, ~mask] = -np.inf
        return top_k(scores, rows[[user]], K)[0][0]

    found: dict[str, Any] = {"model": bundle.name, "items": len(bundle.items), "factors": model.left_.shape[1]}
    found |= {"cells": len(model.centres_), "rules": []}
    for share in (1, 10, 100):
        mask = None if share == 1 else np.arange(len(bundle.items)) % share == 0
        truth = [whole(user, mask) for user in range(USERS)]

        def own(user: int, mask: NDArray[np.bool_] | None = mask) -> IntArray:
            return np.asarray(model.find(rows[[user]], K, mask)[0][0])

        def slow(user: int, mask: NDArray[np.bool_] | None = mask) -> IntArray:
            return whole(user, mask)

        took = {"whole_ms": median_ms(slow), "index_ms": median_ms(own)}
        found["rules"].append({"allowed": f"1/{share}", **took, "recall": recall(truth, own)})
        print(found["rules"][-1], flush=True)
    if not model.weights_.nnz:  # all of a score is a product of vectors
        codes = np.asarray(rows @ model.left_)
        plain = [top_k(codes[[user]] @ model.right_, nothing[[user]], K)[0][0] for user in range(USERS)]
        found["faiss"] = by_faiss(np.ascontiguousarray(model.right_.T), codes, plain, len(model.centres_))
    asked.out.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
