"""What rules, knobs and reasons cost at 20,000 items, beside the plain list of the same model in the same run.

    python benchmarks/control.py --out benchmarks/control.json

A linear model with dense random weights (1.6 GB) and histories of 30 items; one thread. For one user: the median over
200 users of a list of ten, with rules and knobs that are read anew for each (a condition, ids, a limit per category,
popularity, a wish, diversity, three reasons). `batch` is lists of ten for many users, with a condition and denied ids
and without, in turns.
"""

import os

os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "POLARS_MAX_THREADS": "1"}  # before they load

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl

import recfusion as rf
from recfusion.core.arrays import Csr, binary_csr
from recfusion.core.files import write_json
from recfusion.data.protocol import Protocol
from recfusion.evaluation.evaluate import batches
from recfusion.evaluation.metrics import DEFAULT_METRICS
from recfusion.inference.bundle import COUNT
from recfusion.inference.histories import Histories
from recfusion.inference.lists import ListMaker
from recfusion.models.registry import entry

N_ITEMS, LENGTH, K = 20_000, 30, 10


def made_up(rng: np.random.Generator) -> rf.Bundle:
    """Return a fitted linear model whose scores look like those of a real one: a few large ones, many small."""
    model = rf.EASE(l2=1.0)
    weights = rng.standard_exponential((N_ITEMS, N_ITEMS), dtype=np.float32)
    model.weights_ = np.power(weights, 4, out=weights)
    model.l2_ = 1.0
    items = pl.DataFrame(
        {
            "item": np.arange(N_ITEMS),
            "title": [f"Product {n}" for n in range(N_ITEMS)],
            "category": [f"c{n % 40}|d{n % 7}" for n in range(N_ITEMS)],
            "stock": rng.integers(0, 5, N_ITEMS),
            COUNT: rng.integers(1, 2000, N_ITEMS),
        }
    )
    data = rf.load("ml-latest-small")
    return rf.Bundle(entry("ease"), model, items, Protocol.of(data, rf.SplitPlan(), DEFAULT_METRICS), seed=0)


def histories(users: int, rng: np.random.Generator) -> Csr:
    items = np.sort(rng.integers(0, N_ITEMS, (users, LENGTH)), axis=1)
    return binary_csr(np.arange(users + 1) * LENGTH, items.ravel(), N_ITEMS)


def median(call: Callable[[Csr], object], rows: Csr) -> float:
    """Return the median milliseconds of a call for one user."""
    seconds = []
    for row in range(rows.shape[0]):
        began = time.perf_counter()
        call(rows[[row]])
        seconds.append(time.perf_counter() - began)
    return 1000 * float(np.median(seconds))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--users", type=int, default=100_000, help="users of the batch")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    rng = np.random.default_rng(0)
    bundle = made_up(rng)
    rows = histories(200, rng)
    deny = rng.integers(0, N_ITEMS, 100).tolist()
    filters = rf.Filters(where="stock > 0 and category contains 'd3'", deny=deny, at_most={"category": 12})
    reranking = rf.Reranking(popularity=0.3, wish={"category": {"c3": 0.5}}, diversity=0.3)

    def plain(history: Csr) -> object:
        return ListMaker.of(bundle).lists(Histories(history), K)

    def filtered(history: Csr) -> object:
        return ListMaker.of(bundle, filters).lists(Histories(history), K)

    def all_of_it(history: Csr) -> object:
        return ListMaker.of(bundle, filters, reranking).lists(Histories(history), K, why=3)

    found = {"bare product, ms": median(bundle.model.score, rows)}
    for name, call in {"plain list": plain, "with rules": filtered, "rules, knobs and reasons": all_of_it}.items():
        call(rows[[0]])  # what is read once
        found[f"{name}, ms"] = median(call, rows)
    many = histories(arguments.users, rng)
    hard = rf.Filters(where="stock > 0", deny=deny)
    seconds = {"batch, plain, s": 0.0, "batch, with rules, s": 0.0}
    makers = dict(zip(seconds, (ListMaker.of(bundle), ListMaker.of(bundle, hard)), strict=True))
    for part in batches(*many.shape):
        rows = many[part]
        for name, maker in makers.items():  # in turns, so that a busy machine is as busy for both
            began = time.perf_counter()
            maker.lists(Histories(rows), K)
            seconds[name] += time.perf_counter() - began
    found |= seconds
    found["batch, ratio"] = found["batch, with rules, s"] / found["batch, plain, s"]
    for name, value in found.items():
        print(f"{name}: {value:.2f}")
    if arguments.out:
        write_json(arguments.out, {"items": N_ITEMS, "users": arguments.users, **found})


if __name__ == "__main__":
    main()
