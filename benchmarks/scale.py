"""CPU seconds, peak memory and NDCG@100 as data grows, for some models beside implicit's ALS and cosine neighbours.

    python benchmarks/scale.py --peer .venv-implicit/bin/python --out benchmarks/scale.json [--sizes U:I:N,...]

Each fit runs in a process of its own, with default settings and search, one thread, and is judged on the same test
users; the peer's settings are chosen among nine (ALS) or five (cosine) on the same validation users. Growth is the
exponent of a power law through the sizes (log-log least squares). `--draw` makes docs/images/scale.png from the file
and prints its table.
"""

import argparse
import itertools
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from recfusion.core.arrays import Csr, binary_csr
from recfusion.core.memory import gigabytes
from recfusion.core.rng import stream
from recfusion.data.load import load
from recfusion.data.options import SplitPlan
from recfusion.data.split import Fold, split
from recfusion.data.synthetic import Size
from recfusion.data.synthetic_files import generate
from recfusion.evaluation.evaluate import evaluate
from recfusion.evaluation.metrics import judge, per_user
from recfusion.models.base import Shape
from recfusion.models.registry import make_model

METRIC = "ndcg@100"
JUDGED = {"valid": 1000, "test": 5000}  # users at the most
SIZES = "10000:5000:250000,20000:10000:500000,40000:20000:1000000"
MODELS = "popularity,thinning-linear,thinning-local,thinning-factors,ials,thinning"
PEERS = ("als", "cosine")
# A marker and a colour for each model. Two colours differ by at least 30 (CIE76), also for people who are blind to red,
# green or blue (Machado 2009), and have a contrast of 3 on white.
LOOKS = [
    *(("o", "#001890"), ("s", "#f04800"), ("D", "#601830"), ("^", "#a878c0"), ("v", "#0078f0"), ("P", "#900000")),
    *(("X", "#d87878"), ("<", "#300048")),
]
COUNTS, MEASURED = ("users", "items", "interactions"), ("cpu_seconds", "peak_bytes")


def make_split(size: Size, folder: Path, seed: int) -> Path:
    """Write generated data, read and split it, and save the split as arrays."""
    began = time.perf_counter()
    generate(size, seed, "parquet", folder / "made")
    made = time.perf_counter()
    data = load(folder / "made" / "interactions.parquet")
    parts = split(data, SplitPlan(), seed=seed)
    valid, test = (
        fold.take(np.arange(min(JUDGED[name], len(fold.users))))
        for name, fold in (("valid", parts.valid), ("test", parts.test))
    )
    path = save_split(parts.train, valid, test, folder / "split.npz", 100)
    print(f"{size}: made in {made - began:.0f} s, prepared and split in {time.perf_counter() - made:.0f} s", flush=True)
    return path


def save_split(train: Csr, valid: Fold, test: Fold, path: Path, length: int, whole: Csr | None = None) -> Path:
    """Save a split as arrays, with the length of the lists that a peer has to make."""
    matrices = {"train": train, "valid": valid.history, "test": test.history}
    matrices |= {"valid_out": valid.held_out, "test_out": test.held_out} | ({} if whole is None else {"whole": whole})
    arrays = {
        f"{name}_{part}": getattr(matrix, part) for name, matrix in matrices.items() for part in ("indptr", "indices")
    }
    rows = [matrices[name].shape[0] for name in ("train", "valid", "test")]
    np.savez(path, shape=np.array([*rows, train.shape[1]]), length=length, **arrays)
    return path


def read_split(path: Path) -> tuple[Csr, Fold, Fold]:
    """Return the training matrix and both folds."""
    with np.load(path) as file:
        arrays = dict(file)
    n_items = int(arrays["shape"][3])

    def matrix(name: str) -> Csr:
        return binary_csr(arrays[f"{name}_indptr"], arrays[f"{name}_indices"], n_items)

    valid, test = (
        Fold(np.arange(len(arrays[f"{name}_indptr"]) - 1), matrix(name), matrix(f"{name}_out"))
        for name in ("valid", "test")
    )
    return matrix("train"), valid, test


def peak_bytes() -> int:
    """Return the peak memory of this process; ru_maxrss would include that of its parent."""
    return 1024 * int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0])


def run_one(name: str, path: Path) -> dict[str, Any]:
    """Fit and evaluate one of our models in this process."""
    train, valid, test = read_split(path)
    before = peak_bytes()
    model = make_model(name, {})
    began = time.perf_counter()
    cpu = time.process_time()
    model.fit(train, valid, rng=stream(0, f"fit {name}"))
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    peak = peak_bytes()
    values = evaluate(model, test, train, (METRIC,), threads=1).per_user[METRIC]
    forecast = model.forecast(Shape.of(train)).bytes
    return {
        "seconds": seconds,
        "cpu_seconds": cpu,
        "peak_bytes": peak,
        "before_bytes": before,
        "forecast_bytes": forecast,
        METRIC: float(values.mean()),
        "standard_error": float(values.std() / np.sqrt(len(values))),
    }


def run_peer(python: str, kind: str, path: Path, metrics: Sequence[str] = (METRIC,)) -> dict[str, Any]:
    """Fit the peer with each of its settings, and evaluate the one with the best last metric on validation users."""
    lists = path.with_name(f"{kind}.npz")
    peer = Path(__file__).with_name("sparse_peers.py")
    done = subprocess.run([python, peer, kind, path, lists], capture_output=True, text=True, check=True)
    told = json.loads(done.stdout.splitlines()[-1])
    _, valid, test = read_split(path)
    with np.load(lists) as found:
        means = [_values(found[f"valid_{n}"], valid.held_out, metrics[-1]).mean() for n in range(len(told["settings"]))]
        best = int(np.argmax(means))
        values = {name: _values(found[f"test_{best}"], test.held_out, name) for name in metrics}
    return {
        "seconds": told["seconds"][best],
        "cpu_seconds": told["cpu_seconds"][best],
        "peak_bytes": told["peak_bytes"],
        "settings": told["settings"][best],
        **{name: float(own.mean()) for name, own in values.items()},
        "standard_error": float(values[metrics[-1]].std() / np.sqrt(len(values[metrics[-1]]))),
    }


def _values(items: NDArray[Any], held_out: csr_array, metric: str) -> NDArray[np.float64]:
    popularity = np.zeros(held_out.shape[1])
    return np.asarray(per_user(judge(items.astype(np.int64), held_out, popularity), (metric,))[metric])


def replaced(rows: list[dict[str, Any]], row: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the rows with this one in place of an earlier one of the same model and size, smaller data first."""

    def size(one: dict[str, Any]) -> int:
        return int(one["interactions"])

    kept = [one for one in rows if (one["model"], size(one)) != (row["model"], size(row))]
    return sorted([*kept, row], key=size)


def exponents(rows: list[dict[str, Any]]) -> dict[str, dict[str, dict[str, float]]]:
    """Return the growth of seconds and of peak bytes with each count, by model, where three sizes were run."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    for name in dict.fromkeys(row["model"] for row in rows):
        own = [row for row in rows if row["model"] == name and "cpu_seconds" in row]
        if len(own) >= 3:
            found[name] = {what: {} for what in MEASURED}
            for what, count in itertools.product(MEASURED, COUNTS):
                x, y = (np.log([max(row[key], 1e-3) for row in own]) for key in (count, what))
                found[name][what][count] = round(float(np.polyfit(x, y, 1)[0]), 2)
    return found


def table(document: dict[str, Any]) -> str:
    """Return the rows as Markdown."""
    lines = ["| items | interactions | model | NDCG@100 | CPU seconds | peak memory | forecast |", "|" + "---|" * 7]
    for row in document["rows"]:
        head = f"| {row['items']:,} | {row['interactions']:,} | {row['model']} |"
        if "refused" in row:
            lines.append(f"{head} refused: {row['refused']} | | | |")
            continue
        asked = gigabytes(row["forecast_bytes"] + row["before_bytes"]) if row.get("forecast_bytes") else ""
        value = f"{100 * row[METRIC]:.2f} ({100 * row['standard_error']:.2f})"
        lines.append(f"{head} {value} | {row['cpu_seconds']:.1f} | {gigabytes(row['peak_bytes'])} | {asked} |")
    return "\n".join(lines)


def draw(document: dict[str, Any], path: Path) -> None:
    """Draw seconds and peak memory against interactions, log-log; forecasts are crosses.

    A line has its name at its end, and a marker and a colour of its own: see `LOOKS`.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 6.2), layout="constrained")
    names = list(dict.fromkeys(row["model"] for row in document["rows"]))
    for axes, what, title in zip(
        figure.subplots(1, 2), MEASURED, ("CPU seconds of a fit", "peak memory, GB (crosses: forecast)"), strict=True
    ):
        unit, ends = 1e9 if what == "peak_bytes" else 1, []
        for number, name in enumerate(names):
            marker, colour = LOOKS[number % len(LOOKS)]
            own = sorted((row for row in document["rows"] if row["model"] == name and what in row), key=_size)
            known = [row for row in own if row.get("forecast_bytes") and what == "peak_bytes"]
            y = [max(row[what] / unit, 1e-2) for row in own]
            dashes = "--" if name.startswith("implicit") else "-"
            axes.loglog([_size(row) for row in own], y, dashes, marker=marker, color=colour, ms=5, lw=1.2)
            forecast = [(row["forecast_bytes"] + row["before_bytes"]) / unit for row in known]
            axes.plot([_size(row) for row in known], forecast, "x", color=colour, ms=7)
            if own:
                ends.append((np.log10(y[-1]), _size(own[-1]), name, colour))
        low, high = np.log10(axes.get_ylim())
        right, gap = max(x for _, x, _, _ in ends), (high - low) / 26
        heights = [y_end for y_end, *_ in sorted(ends)]  # of the names: apart from each other, and inside of the panel
        for place in range(1, len(heights)):
            heights[place] = max(heights[place], heights[place - 1] + gap)
        for place in reversed(range(len(heights))):
            heights[place] = min(heights[place], high if place == len(heights) - 1 else heights[place + 1] - gap)
        for (y_end, x_end, name, colour), height in zip(sorted(ends), heights, strict=True):
            axes.annotate(
                name,
                (x_end, 10**y_end),
                xytext=(right * 1.8, 10**height),
                color=colour,
                fontsize=8.5,
                va="center",
                arrowprops={"arrowstyle": "-", "color": colour, "lw": 0.4, "shrinkA": 1, "shrinkB": 4},
            )
        axes.set_xlim(right=right * 14)
        axes.set_title(title, fontsize=10.5, loc="left")
        axes.set_xlabel("interactions")
        axes.grid(color="#dddddd", lw=0.6)
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=130)


def _size(row: dict[str, Any]) -> int:
    return int(row["interactions"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default=SIZES, help="users:items:interactions, separated by commas")
    parser.add_argument("--models", default=MODELS)
    parser.add_argument("--peer", help="Python of an environment that has implicit")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("scale.json"), help="rows of earlier runs in it are kept")
    parser.add_argument("--draw", type=Path, help="draw the figure of --out to this file, and run nothing")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.one:
        print(json.dumps(run_one(asked.one[0], Path(asked.one[1]))))
        return
    document: dict[str, Any]
    if asked.draw:
        document = json.loads(asked.out.read_text())
        draw(document, asked.draw)
        print(table(document), exponents(document["rows"]), sep="\n\n")
        return
    document = {"seed": asked.seed, "rows": [], "exponents": {}}
    if asked.out.exists():
        document = json.loads(asked.out.read_text())
    for text in asked.sizes.split(","):
        size = Size(*map(int, text.split(":")))
        with tempfile.TemporaryDirectory() as folder:
            path = make_split(size, Path(folder), asked.seed)
            shape = Shape.of(read_split(path)[0])
            for name in [*asked.models.split(","), *(PEERS if asked.peer else ())]:
                row: dict[str, Any] = {"users": shape.users, "items": shape.items, "interactions": shape.interactions}
                if name in PEERS:
                    row |= {"model": f"implicit {name}", **run_peer(asked.peer, name, path)}
                else:
                    command = [sys.executable, __file__, "--one", name, str(path)]
                    done = subprocess.run(command, capture_output=True, text=True, check=False)
                    last = (done.stderr.strip() or "ended").splitlines()[-1].partition("InputError: ")[2]
                    failed = {"refused": last or "ended"}
                    row |= {
                        "model": name,
                        **(json.loads(done.stdout.splitlines()[-1]) if not done.returncode else failed),
                    }
                document["rows"] = replaced(document["rows"], row)
                document["exponents"] = exponents(document["rows"])
                asked.out.write_text(json.dumps(document, indent=1) + "\n")
                print(row, flush=True)
    print(table(document))
    print(document["exponents"])


if __name__ == "__main__":
    main()
