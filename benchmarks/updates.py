"""Updates of thinning-linear against refits of the same model, over changed users and over items.

    python benchmarks/updates.py --out benchmarks/updates.json [--items 1000,2000,5000,10000,20000] [--repeats 10000]
    python benchmarks/updates.py --draw docs/updates.png --out benchmarks/updates.json

An update forgets users who are in the model: rows, weights and certificate, in place in memory, and once more with a
copy of the weights. The refit has given settings and
the same rows without these users. Both run in turns, with one thread (OMP_NUM_THREADS=1), in CPU seconds; the best of
the rounds counts. The difference is the largest one to the scores of a fit with the same fixed means, over the standard
deviation of the scores. `--repeats` forgets and adds single users again and again, and compares the last model with a
fit. 20,000 items are four separate shops, so that no fit on all items is needed.
"""

import argparse
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import copy
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import block_diag, csr_array

from recfusion.core.arrays import Csr, IntArray, binary_csr
from recfusion.data.load import load
from recfusion.data.synthetic import Size, chunks
from recfusion.models.thinning.linear import ThinningLinear
from recfusion.models.thinning.updates import Counts, LinearUpdater, solved
from recfusion.models.updating import Arrays, Change, UserRows, probe_rows

SETTINGS: dict[str, Any] = {"l2": 693.0, "nu": 0.318, "kappa": 0.876, "b": 0.5, "c": 0.2}
USERS = (1, 3, 10, 30, 100, 300, 1000)
LARGE = 20_000  # items from which the fit is that of a quarter of them: an inverse would take minutes
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


class Bench:
    """A fitted model with its rows, and updates that forget some users."""

    def __init__(self, rows: Csr) -> None:
        self.rows, self.updater = UserRows(rows), LinearUpdater()
        self.fit_seconds, self.model = seconds(lambda: ThinningLinear(**SETTINGS).fit(rows))
        self.kept = self.updater.keep(self.model, self.rows)
        lengths = np.diff(rows.indptr)
        self.order = np.argsort(np.abs(lengths - np.median(lengths)), kind="stable")  # median histories first

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
        before = self.rows.take(places)
        after = UserRows(binary_csr(np.zeros(len(places) + 1, np.int64), np.zeros(0, np.int64), before.matrix.shape[1]))
        rows = self.rows.replaced(places, after)
        model, kept = self.updater.update(self.model, self.kept, Change(before, after, rows), in_place=in_place)
        assert isinstance(model, ThinningLinear)
        return (
            model,
            kept,
            rows,
            self.updater.error(model, kept, rows, probe_rows(rows.matrix, np.random.default_rng(0))),
        )


def difference(model: ThinningLinear, kept: Arrays, rows: UserRows) -> float:
    """Return the largest difference to the scores of a fit with the same fixed means, over their spread."""
    weights, _ = solved(Counts.kept(model, kept), rows.matrix)
    some = rows.matrix[:JUDGED]
    expected = some @ weights
    return float(np.abs(some @ model.weights_ - expected).max() / expected.std())


def over_users(rounds: int) -> list[dict[str, Any]]:
    bench, found = Bench(load("ml-1m").matrix), []
    for count in USERS:
        places = bench.users(count)
        updates, copies, refits = [], [], []
        for _ in range(rounds):
            copies.append(seconds(lambda: bench.forget(places))[0])  # noqa: B023
            with bench.copied():
                spent, (model, kept, rows, error) = seconds(lambda: bench.forget(places, in_place=True))  # noqa: B023
            updates.append(spent)
            refits.append(seconds(lambda: ThinningLinear(**SETTINGS).fit(rows.matrix))[0])  # noqa: B023
        items = len(np.unique(bench.rows.matrix[places].indices))
        row = {"users": count, "changed_items": items, "update": min(updates), "refit": min(refits)}
        row["update_of_a_copy"] = min(copies)
        found.append(row | {"certificate": error, "difference": difference(model, kept, rows)})
        print(json.dumps(found[-1]), flush=True)
    spent, searched = seconds(lambda: ThinningLinear().fit(bench.rows.matrix, rng=0))
    found.append({"search": spent, "trials": searched.trials_})
    print(json.dumps(found[-1]), flush=True)
    return found


def four_shops(bench: Bench) -> Bench:
    """Return four separate shops of the same kind as one model: its weights are known without a fit on all items."""
    rows, model, n_items = bench.rows.matrix, copy(bench.model), bench.rows.matrix.shape[1]
    model.weights_ = np.zeros((4 * n_items, 4 * n_items), np.float32)
    for shop in range(4):
        place = slice(shop * n_items, (shop + 1) * n_items)
        model.weights_[place, place] = bench.model.weights_
    many = copy(bench)
    many.model, many.fit_seconds = model, float("nan")
    many.rows = UserRows(csr_array(block_diag([rows] * 4, format="csr")))
    many.kept = {n: a if n in ("means", "age") else np.tile(a, 4) for n, a in bench.kept.items()}
    return many


def over_items(sizes: list[int]) -> list[dict[str, Any]]:
    found = []
    for n_items in sizes:
        bench = Bench(generated(n_items)) if n_items < LARGE else four_shops(Bench(generated(n_items // 4)))
        spent = []
        for place in bench.order[: 5 if n_items <= 5000 else 3]:
            more, (model, kept, rows, error) = seconds(lambda: bench.forget(np.array([place]), in_place=True))  # noqa: B023
            bench.model, bench.kept, bench.rows = model, kept, rows
            spent.append(more)
        refit = None if np.isnan(bench.fit_seconds) else bench.fit_seconds
        row = {"items": n_items, "users": bench.rows.matrix.shape[0], "update": min(spent), "refit": refit}
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
        found, kept = bench.updater.update(model, kept, Change(before, after, rows), in_place=True)
        assert isinstance(found, ThinningLinear)
        model, gone = found, before if gone is None else None
        spent += time.process_time() - began
        if done % BLOCK == 0 or done == count:
            error = bench.updater.error(model, kept, rows, probe_rows(rows.matrix, rng))
            apart = difference(model, kept, rows)
            yield {"data": data, "updates": done, "each": spent / done, "certificate": error, "difference": apart}


def draw(document: dict[str, Any], path: Path) -> None:
    """Draw seconds of updates and refits over changed users and over items, log-log."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4.4), layout="constrained")
    panels = (("over_users", "users", "users forgotten at once, ML-1M"), ("over_items", "items", "items, one user"))
    for axes, (part, key, label) in zip(figure.subplots(1, 2, sharey=True), panels, strict=True):
        rows = [row for row in document.get(part, []) if key in row and "update" in row]
        for name, marker, colour in (("refit", "s", "#b5541c"), ("update", "o", "#1f5fa8")):
            axes.loglog(
                [row[key] for row in rows], [row[name] for row in rows], marker=marker, color=colour, label=name
            )
        axes.set_xlabel(label)
        axes.grid(visible=True, which="major", alpha=0.3)
    figure.axes[0].set_ylabel("seconds")
    figure.axes[0].legend(frameon=False)
    figure.savefig(path, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--items", default="")
    parser.add_argument("--repeats", type=int, default=0)
    parser.add_argument("--data", default="ml-1m", help="data set of --repeats")
    parser.add_argument("--draw", type=Path)
    parser.add_argument("--skip-users", action="store_true")
    arguments = parser.parse_args()
    document = json.loads(arguments.out.read_text()) if arguments.out.exists() else {}

    def store(part: str, rows: list[dict[str, Any]]) -> None:
        document[part] = rows
        arguments.out.write_text(json.dumps(document, indent=2) + "\n")

    if arguments.draw is not None:
        return draw(document, arguments.draw)
    if not arguments.skip_users:
        store("over_users", over_users(arguments.rounds))
    if arguments.items:
        store("over_items", over_items([int(size) for size in arguments.items.split(",")]))
    known = [row for row in document.get("repeated", []) if row["data"] != arguments.data]
    for row in repeated(arguments.repeats, arguments.data) if arguments.repeats else ():
        known.append(row)
        print(json.dumps(row), flush=True)
        store("repeated", known)
    return None


if __name__ == "__main__":
    main()
