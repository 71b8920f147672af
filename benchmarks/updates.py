"""Updates of thinning-linear and thinning-local against refits of the same model, over changed users and over items.

    python benchmarks/updates.py --out benchmarks/updates.json [--items 1000,2000,5000,20000] [--repeats 10000]
    python benchmarks/updates.py --skip-users --local gowalla,5000,20000 --out benchmarks/updates.json

An update forgets users who are in the model: `rf.update` on a bundle as a caller uses it, and for thinning-linear also
rows, weights and certificate alone, in place in memory. A refit has the same rows without these users, once with given
settings and once with the search of a training. All run in turns, with one thread (OMP_NUM_THREADS=1), in CPU seconds;
the best of the rounds counts, for the search of two. The difference is the largest one to the scores of a refit with
the equivalent penalty, over the standard deviation of the scores. `--repeats` forgets and adds single users again and
again, compares the model with a fit after each block, and stores the block. docs/gallery draws the figure.
"""

import argparse
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from scipy.linalg.lapack import spotrf, spotri

from recfusion.core.arrays import Csr, IntArray, binary_csr
from recfusion.data.interactions import Interactions
from recfusion.data.load import load
from recfusion.data.synthetic import Size, chunks
from recfusion.experiments.train import train
from recfusion.inference.bundle import Bundle
from recfusion.inference.update import update
from recfusion.models.base import Recommender
from recfusion.models.linear.gram import gram, user_weighted
from recfusion.models.thinning.linear import ThinningLinear
from recfusion.models.thinning.local import ThinningLocal
from recfusion.models.thinning.local_updates import LocalField, LocalUpdater
from recfusion.models.thinning.low_rank_update import gram_by_length
from recfusion.models.thinning.updates import LinearUpdater, equivalent_l2
from recfusion.models.updating import Arrays, Change, UserRows, probe_rows

SETTINGS: dict[str, Any] = {"l2": 693.0, "nu": 0.318, "kappa": 0.876, "b": 0.5, "c": 0.2}
USERS = (1, 3, 10, 30, 100, 300, 1000)
JUDGED = 300  # users whose scores are compared
BLOCK = 1000  # updates of `--repeats` between two comparisons, which are stored at once


def seconds(job: Callable[[], Any]) -> tuple[float, Any]:
    """Return the CPU seconds of a job, which other programs on the machine do not change much, and its result."""
    began = time.process_time()
    found = job()
    return time.process_time() - began, found


def generated(n_items: int) -> Csr:
    """Return rows of 2 users per item with 25 items each on average."""
    size = Size(2 * n_items, n_items, 50 * n_items)
    users, items = (
        np.concatenate(part) for part in zip(*((chunk.user, chunk.item) for chunk in chunks(size, seed=0)), strict=True)
    )
    keys = np.unique(users.astype(np.int64) * n_items + items)
    indptr = np.concatenate([[0], np.cumsum(np.bincount(keys // n_items, minlength=size.users))])
    return binary_csr(indptr, keys % n_items, n_items)


def median_users(rows: Csr) -> IntArray:
    """Return the users, those with a median history first."""
    lengths = np.diff(rows.indptr)
    return np.argsort(np.abs(lengths - np.median(lengths)), kind="stable")


def forgetting(rows: UserRows, places: IntArray) -> Change:
    """Return the change that forgets these users."""
    before = rows.take(places)
    after = UserRows(binary_csr(np.zeros(len(places) + 1, np.int64), np.zeros(0, np.int64), before.matrix.shape[1]))
    return Change(before, after, rows.replaced(places, after), rng=0)


class Bench:
    """A fitted model with its rows, and updates that forget some users."""

    def __init__(self, rows: Csr) -> None:
        self.rows, self.updater = UserRows(rows), LinearUpdater()
        self.fit_seconds, self.model = seconds(lambda: ThinningLinear(**SETTINGS).fit(rows))
        self.kept = self.updater.keep(self.model, self.rows)
        self.order = median_users(rows)

    def users(self, count: int) -> IntArray:
        """Return a user with a median history, or a random choice of users."""
        if count == 1:
            return self.order[:1]
        return np.random.default_rng(0).choice(self.rows.matrix.shape[0], count, replace=False)

    @contextmanager
    def copied(self) -> Iterator[None]:
        """Use a copy of the model in the block."""
        model, self.model = self.model, copy(self.model)
        self.model.weights_ = model.weights_.copy()
        yield
        self.model = model

    def forget(self, places: IntArray, *, in_place: bool = False) -> tuple[ThinningLinear, Arrays, UserRows, float]:
        """Return model, kept arrays, rows and error of the certificate after forgetting users."""
        change = replace(forgetting(self.rows, places), in_place=in_place)
        model, kept = self.updater.update(self.model, self.kept, change)
        assert isinstance(model, ThinningLinear)
        probes = probe_rows(change.rows.matrix, np.random.default_rng(0))
        return model, kept, change.rows, self.updater.error(model, kept, change.rows, probes)


def difference(model: ThinningLinear, kept: Arrays, rows: UserRows) -> float:
    """Return the largest difference to the scores of a fit, up to a common factor, over their spread."""
    again = ThinningLinear(**SETTINGS | {"l2": equivalent_l2(model, kept, rows.matrix)}).fit(rows.matrix)
    found, expected = (rows.matrix[:JUDGED] @ one.weights_ for one in (model, again))
    factor = float(np.vdot(found, expected) / np.vdot(expected, expected))
    return float(np.abs(found - factor * expected).max() / found.std())


def trained(data: Interactions) -> Bundle:
    return train(ThinningLinear(**SETTINGS), data, all_users=True, updatable=True)


def over_users(rounds: int) -> list[dict[str, Any]]:
    data = load("ml-1m")
    bench, bundle, found = Bench(data.matrix), trained(data), []
    for count in USERS:
        places = bench.users(count)
        names = [str(data.users[int(place)]) for place in places]
        every, updates, refits, searches = [], [], [], []
        for number in range(rounds):
            every.append(seconds(lambda: update(bundle, forget=names))[0])  # noqa: B023
            with bench.copied():
                spent, (model, kept, rows, error) = seconds(lambda: bench.forget(places, in_place=True))  # noqa: B023
            updates.append(spent)
            refits.append(seconds(lambda: ThinningLinear(**SETTINGS).fit(rows.matrix))[0])  # noqa: B023
            if number < 2:
                searches.append(seconds(lambda: ThinningLinear().fit(rows.matrix, rng=0))[0])  # noqa: B023
        items = len(np.unique(bench.rows.matrix[places].indices))
        row = {"users": count, "changed_items": items, "rf_update": min(every), "update": min(updates)}
        row |= {"refit": min(refits), "refit_with_search": min(searches), "certificate": error}
        if count == 1:
            less = update(bundle, forget=names)
            rows_of = {names[0]: [data.items[int(item)] for item in data.matrix[places].indices]}
            row["rf_update_adding"] = min(seconds(lambda: update(less, rows_of))[0] for _ in range(rounds))  # noqa: B023
            row["rf_train"] = min(seconds(lambda: trained(data))[0] for _ in range(2))
        found.append(row | {"difference": difference(model, kept, rows)})
        print(json.dumps(found[-1]), flush=True)
    return found


def floor(rounds: int) -> list[dict[str, Any]]:
    """Return the best seconds of a refit and its parts: an update of many users needs at least the inverse."""
    train_rows = load("ml-1m").matrix
    rows = user_weighted(train_rows, SETTINGS["b"])
    some, g = rows[np.random.default_rng(0).choice(rows.shape[0], USERS[-1], replace=False)], gram(rows)
    g[np.diag_indices(len(g))] += np.float32(SETTINGS["l2"])

    def inverse() -> None:
        spotri(spotrf(g.copy(order="F"), lower=True, overwrite_a=True, clean=False)[0], lower=True, overwrite_c=True)

    jobs: dict[str, Callable[[], Any]] = {
        "refit": lambda: ThinningLinear(**SETTINGS).fit(train_rows),
        "gram": lambda: gram(rows),
        "gram_by_length": lambda: gram_by_length(rows),
        "gram_of_1000_users": lambda: gram_by_length(some),
        "inverse": inverse,
    }
    found = {name: min(seconds(job)[0] for _ in range(rounds)) for name, job in jobs.items()}
    print(json.dumps(found), flush=True)
    return [found]


def over_local(names: list[str], rounds: int) -> Iterator[dict[str, Any]]:
    """Forget a user with a median history from thinning-local on data sets, or on so many generated items."""
    updater, solve = LocalUpdater(), LocalField.solve
    for name in filter(None, names):
        rows = UserRows(generated(int(name)) if name.isdigit() else load(name).matrix)
        model = ThinningLocal(**SETTINGS, a=0.0).fit(rows.matrix, rng=0)  # compiles loops
        kept, change, solved = updater.keep(model, rows), forgetting(rows, median_users(rows.matrix)[:1]), [0]

        def counted(self: LocalField, targets: IntArray) -> Any:
            solved.append(len(targets))  # noqa: B023
            return solve(self, targets)

        def update() -> tuple[Recommender, float]:
            after, own = updater.update(model, kept, change)  # noqa: B023
            probes = probe_rows(change.rows.matrix, np.random.default_rng(0))  # noqa: B023
            return after, updater.error(after, own, change.rows, probes)  # noqa: B023

        def refit() -> Recommender:
            return ThinningLocal(**SETTINGS, a=0.0).fit(change.rows.matrix, rng=0)  # noqa: B023

        with patch.object(LocalField, "solve", counted):
            updates = [seconds(update) for _ in range(rounds)]
        after, error = updates[-1][1]
        whole, some = updater.update(model, kept, replace(change, again=True))[0], change.rows.matrix[:JUDGED]
        one, two = after.score(some), whole.score(some)
        row = {"data": name, "items": change.n_items, "users": rows.matrix.shape[0], "changed_items": len(change.items)}
        row |= {"solved": sum(solved) // rounds, "certificate": error}
        row |= {"update": min(one[0] for one in updates), "refit": min(seconds(refit)[0] for _ in range(rounds))}
        yield row | {"difference": float(np.abs(one - two).max() / two.std())}


def over_items(sizes: list[int]) -> list[dict[str, Any]]:
    found = []
    for n_items in sizes:
        bench, spent = Bench(generated(n_items)), []
        for place in bench.order[: 5 if n_items <= 5000 else 3]:
            more, (model, kept, rows, error) = seconds(lambda: bench.forget(np.array([place]), in_place=True))  # noqa: B023
            bench.model, bench.kept, bench.rows = model, kept, rows
            spent.append(more)
        row = {"items": n_items, "users": rows.matrix.shape[0], "update": min(spent), "refit": bench.fit_seconds}
        found.append(row | {"certificate": error, "items_of_user": int(np.median(np.diff(rows.matrix.indptr)))})
        print(json.dumps(found[-1]), flush=True)
    return found


def repeated(count: int, data: str) -> Iterator[dict[str, Any]]:
    """Forget and add random users in turns, in place; yield after each block how far the model is from a fit."""
    bench, rng, spent = Bench(load(data).matrix), np.random.default_rng(1), 0.0
    model, kept, rows, gone = bench.model, bench.kept, bench.rows, None
    blank = UserRows(binary_csr(np.zeros(2, np.int64), np.zeros(0, np.int64), rows.matrix.shape[1]))
    for done in range(1, count + 1):
        began = time.process_time()
        places = rng.integers(rows.matrix.shape[0], size=1) if gone is None else np.zeros(0, np.int64)
        before, after = (rows.take(places), blank) if gone is None else (blank, gone)
        rows = rows.replaced(places, after)
        found, kept = bench.updater.update(model, kept, Change(before, after, rows, in_place=True))
        assert isinstance(found, ThinningLinear)
        model, gone = found, before if gone is None else None
        spent += time.process_time() - began
        if done % BLOCK == 0 or done == count:
            error = bench.updater.error(model, kept, rows, probe_rows(rows.matrix, rng))
            apart = difference(model, kept, rows)
            yield {"data": data, "updates": done, "each": spent / done, "certificate": error, "difference": apart}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--items", default="")
    parser.add_argument("--repeats", type=int, default=0)
    parser.add_argument("--data", default="ml-1m", help="data set of --repeats")
    parser.add_argument("--local", default="", help="data sets, or numbers of generated items")
    parser.add_argument("--skip-users", action="store_true")
    parser.add_argument("--floor", action="store_true", help="time the parts of a refit of ML-1M")
    arguments = parser.parse_args()
    document = json.loads(arguments.out.read_text()) if arguments.out.exists() else {}

    def store(part: str, rows: list[dict[str, Any]]) -> None:
        document[part] = rows
        arguments.out.write_text(json.dumps(document, indent=2) + "\n")

    if not arguments.skip_users:
        store("over_users", over_users(arguments.rounds))
    if arguments.floor:
        store("floor", floor(arguments.rounds))
    if arguments.items:
        store("over_items", over_items([int(size) for size in arguments.items.split(",")]))
    blocks = repeated(arguments.repeats, arguments.data) if arguments.repeats else iter(())
    for part, rows in (
        ("over_local", over_local(arguments.local.split(","), min(arguments.rounds, 2))),
        ("repeated", blocks),
    ):
        for row in rows:  # stored one by one, in place of a row of the same kind
            print(json.dumps(row), flush=True)
            same = (row["data"], row.get("updates"))
            store(part, [*(r for r in document.get(part, []) if (r["data"], r.get("updates")) != same), row])


if __name__ == "__main__":
    main()
