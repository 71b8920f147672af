"""One user's list through the library, beside the bare product and selection of the same model in the same run.

    python benchmarks/one_user.py --model ml1m-thinning --out benchmarks/one_user.json

`linear`: a dense linear model of 20,000 items (1.6 GB of random weights), histories of 30 items. The bare peer is the
sum of the history's rows and numpy's argpartition; the library path takes ids and gives names, columns and scores.
`--model` adds a saved model of the data set it was trained on: the library path for 200 of its users, and each part of
a mixture by itself. One thread. Medians of 200 users, also of CPU time, and the quickest, since a shared machine adds
to the rest.
"""

import os

os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "POLARS_MAX_THREADS": "1"}  # before they load

import argparse
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from control import K, histories, made_up

import recfusion as rf
from recfusion.core.arrays import Csr, IntArray
from recfusion.core.errors import InputError
from recfusion.core.files import write_json
from recfusion.inference.histories import histories_from_entries
from recfusion.inference.lists import lists_for_requests
from recfusion.inference.request import ListRequest
from recfusion.server.loaded_models import ItemFacts

USERS = 200


def timed(call: Callable[[Any], object], asked: Sequence[Any]) -> dict[str, float]:
    """Return the median and the least milliseconds of a call, and the median of its CPU time."""
    call(asked[0])  # what is read once
    seconds, cpu = [], []
    for one in asked:
        began, worked = time.perf_counter(), time.process_time()
        call(one)
        cpu.append(time.process_time() - worked)
        seconds.append(time.perf_counter() - began)
    found = {"median, ms": np.median(seconds), "least, ms": min(seconds), "median CPU, ms": np.median(cpu)}
    return {name: 1000 * float(value) for name, value in found.items()}


def library(bundle: rf.Bundle) -> Callable[[list[str]], object]:
    """Return the path from ids to a list with names and columns."""
    facts = ItemFacts(bundle)

    def one(ids: list[str]) -> object:
        (found,) = lists_for_requests(bundle, [ListRequest(history=ids, k=K)])
        assert not isinstance(found, InputError)
        return [facts.of(column) for column in found.items]

    return one


def linear() -> dict[str, Any]:
    """Return the times of the library and of the bare product at 20,000 items."""
    rng = np.random.default_rng(0)
    bundle = made_up(rng)
    rows = histories(USERS, rng)
    singles = [rows[[row]] for row in range(USERS)]
    ids = [[str(column) for column in row.indices.tolist()] for row in singles]
    weights = bundle.model.state()["weights_"]

    def bare(row: Csr) -> IntArray:
        scores = (row @ weights)[0]
        scores[row.indices] = -np.inf
        best = np.argpartition(scores, -K)[-K:]
        found: IntArray = best[np.argsort(-scores[best])]
        return found

    found = {"bare": timed(bare, singles), "library": timed(library(bundle), ids)}
    limit = 2 * found["bare"]["median, ms"] + 0.3
    return found | {"limit (2 x bare + .3), ms": limit, "within": found["library"]["median, ms"] <= limit}


def saved(path: Path) -> dict[str, Any]:
    """Return the library path of a saved model, for users of its own data."""
    bundle = rf.Bundle.load(path)
    data = rf.load(bundle.protocol.name)
    users = np.linspace(0, data.n_users - 1, USERS).astype(int)
    columns = [data.matrix[[user]].indices for user in users]
    ids = data.items.cast(str).to_list()
    histories = [[ids[column] for column in own] for own in columns]
    rows = [histories_from_entries(bundle, [own])[0].matrix for own in histories]
    found: dict[str, Any] = {"library": timed(library(bundle), histories)}
    found |= {"score": timed(bundle.model.score, rows)}
    for name, part in getattr(bundle.model, "parts_", {}).items():
        found[f"score of {name}"] = timed(part.score, rows)
    return found | {"model": bundle.name, "items": len(bundle.items), "users": bundle.train_users}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--model", type=Path, help="a model folder of a named data set")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    found: dict[str, Any] = {"load": os.getloadavg()[0], "linear": linear()}
    if arguments.model:
        found["saved"] = saved(arguments.model)
    print("load", found["load"])
    for name in ("linear", "saved"):
        for key, value in found.get(name, {}).items():
            print(name, key, value)
    if arguments.out:
        write_json(arguments.out, found)


if __name__ == "__main__":
    main()
