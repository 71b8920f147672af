"""The large sizes, each as one process from the file to the judged model: seconds and peak memory by stage.

    python benchmarks/bars.py netflix exact million local near shop shop-local --data FOLDER --out benchmarks/bars.json

Data is generated into FOLDER where it is not there yet, as `recfusion data generate --form parquet` does. A stage's
peak is the most memory that the process had during it. The clock says how long it took here; where a machine is busy
with other work, CPU seconds of all threads are what two quiet cores would share.

`shop` and `shop-local` are the whole command `recfusion train` on the preset `shop`, from the CSV file to the saved
folder, on all cores; `load` is the average over a minute at the start and at the end.
"""

import argparse
import dataclasses
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from scale import METRIC, peak_bytes

from recfusion.core.rng import stream
from recfusion.data.load import load
from recfusion.data.options import SplitPlan
from recfusion.data.split import split
from recfusion.data.synthetic import Size
from recfusion.data.synthetic_files import PRESETS, generate
from recfusion.evaluation.evaluate import evaluate
from recfusion.models.base import Shape
from recfusion.models.registry import make_model


@dataclasses.dataclass(frozen=True)
class Bar:
    """A model and data size, with the number of test users and the targets."""

    size: Size
    models: "tuple[Named, ...]"
    judged: int
    minutes: float | None = None
    gigabytes: float | None = None
    preset: str | None = None  # measure `recfusion train` on it, instead of the stages


Named = tuple[str, dict[str, Any]]
LINEAR: Named = ("thinning-linear", {})
LOCAL: Named = ("thinning-local", {})
DEFAULT: Named = ("thinning", {})
SHOP = PRESETS["shop"]
BARS = {
    "netflix": Bar(Size(480_189, 17_770, 100_480_507), (LINEAR,), 10_000, 15, 10),
    "exact": Bar(Size(150_000, 42_000, 6_000_000), (LINEAR,), 5_000, 12, 9),
    "million": Bar(Size(1_000_000, 1_000_000, 100_000_000), (("thinning-local", {"neighbours": 50}),), 1_000, 60, 12),
    "local": Bar(SHOP.size, (LOCAL,), 5_000, 5, 4),
    "near": Bar(Size(60_000, 18_000, 3_000_000), (LINEAR, LOCAL), 6_000),
    "shop": Bar(SHOP.size, (DEFAULT,), 0, 5, 4, "shop"),
    "shop-local": Bar(SHOP.size, (LOCAL,), 0, 5, 4, "shop"),
}


@contextmanager
def stage(name: str, found: list[dict[str, Any]]) -> Iterator[None]:
    """Add the time and memory of the block to `found`."""
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    began, cpu = time.perf_counter(), time.process_time()
    yield
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    found.append({"stage": name, "seconds": seconds, "cpu_seconds": cpu, "peak_bytes": peak_bytes()})
    print(found[-1], file=sys.stderr, flush=True)


def run(bar: Bar, path: Path) -> dict[str, Any]:
    """Read, prepare, split, fit and evaluate in this process."""
    stages: list[dict[str, Any]] = []
    with stage("read and prepare", stages):
        data = load(path)
    with stage("split", stages):
        parts = split(data, SplitPlan(), seed=0)
        test = parts.test.take(np.arange(min(bar.judged, len(parts.test.users))))
        train, valid = parts.train, parts.valid
        del data, parts
    shape = Shape.of(train)
    judged = {}
    for name, settings in bar.models:
        model, before = make_model(name, settings), resident()
        with stage(f"fit {name}", stages):
            model.fit(train, valid, rng=stream(0, f"fit {name}"))
        stages[-1] |= {"before_bytes": before, "forecast_bytes": model.forecast(shape).bytes}
        with stage(f"evaluate {name}", stages):
            values = evaluate(model, test, train, (METRIC,)).per_user[METRIC]
        judged[name] = {METRIC: float(values.mean()), "standard_error": float(values.std() / np.sqrt(len(values)))}
        del model
    return {
        **dataclasses.asdict(shape),
        "test_users": len(test.users),
        "cores": len(os.sched_getaffinity(0)),
        "seconds": sum(one["seconds"] for one in stages),
        "cpu_seconds": sum(one["cpu_seconds"] for one in stages),
        "peak_bytes": max(one["peak_bytes"] for one in stages),
        "stages": stages,
        "judged": judged,
    }


def train(model: str, path: Path) -> dict[str, Any]:
    """Run `recfusion train` on a file in a process of its own."""
    with tempfile.TemporaryDirectory() as place:
        command = [sys.executable, "-m", "recfusion", "train", model, "--data", str(path), "--out", f"{place}/model"]
        load, began = [os.getloadavg()[0]], time.perf_counter()
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        _, status, used = os.wait4(process.pid, 0)
        seconds, process.returncode = time.perf_counter() - began, os.waitstatus_to_exitcode(status)
        if process.returncode:
            sys.exit(f"recfusion train ended with {process.returncode}.")
        card, config, metrics = (
            json.loads((Path(place) / "model" / f"{name}.json").read_text())
            for name in ("protocol", "config", "metrics")
        )
    cpu_seconds, peak = used.ru_utime + used.ru_stime, 1024 * used.ru_maxrss
    stage = {"stage": f"recfusion train {model}", "seconds": seconds, "cpu_seconds": cpu_seconds, "peak_bytes": peak}
    return {
        **{name: card[name] for name in ("users", "items", "interactions")},  # before the split
        "rows": card["read"]["rows"],
        "fit_seconds": config["fit_seconds"],
        "validation": {METRIC: metrics["validation"][METRIC]},
        "cores": len(os.sched_getaffinity(0)),
        "load": [*load, os.getloadavg()[0]],
        **{key: value for key, value in stage.items() if key != "stage"},
        "stages": [stage],
    }


def resident() -> int:
    """Return the memory that this process has now."""
    return 1024 * int(Path("/proc/self/status").read_text().partition("VmRSS:")[2].split()[0])


def table(document: dict[str, Any]) -> str:
    """Return the bars as Markdown."""
    lines = ["| bar | items | interactions | stage | seconds | CPU seconds | peak | allowed |", "|" + "---|" * 8]
    for name, row in document.items():
        bar = BARS[name]
        allowed = "" if bar.minutes is None else f"{60 * bar.minutes:.0f} s, {bar.gigabytes:g} GB"
        for one in [*row["stages"], {**row, "stage": "**all**"}]:
            head = f"| {name} | {row['items']:,} | {row['interactions']:,} | {one['stage']} |"
            used = f" {one['seconds']:.0f} | {one['cpu_seconds']:.0f} | {one['peak_bytes'] / 1e9:.1f} GB |"
            lines.append(f"{head}{used} {allowed if one['stage'] == '**all**' else ''} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bars", nargs="*", choices=BARS, help="which ones; none: print the table of --out")
    parser.add_argument("--data", type=Path, default=Path("generated"))
    parser.add_argument("--out", type=Path, default=Path("bars.json"))
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    for name in asked.bars:
        bar = BARS[name]
        form = "parquet" if bar.preset is None else PRESETS[bar.preset].form
        path = asked.data / (bar.preset or name) / f"interactions.{form}"
        if asked.one:
            print(json.dumps(run(bar, path) if bar.preset is None else train(bar.models[0][0], path)))
            return
        if not path.exists():
            generate(bar.size, 0, form, path.parent)
        command = [sys.executable, __file__, name, "--one", "--data", str(asked.data)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        if done.returncode:
            print(f"{name} ended with {done.returncode}", flush=True)
            continue
        document = json.loads(asked.out.read_text()) if asked.out.exists() else {}
        document[name] = json.loads(done.stdout.splitlines()[-1])
        asked.out.write_text(json.dumps(document, indent=1) + "\n")
    if asked.out.exists():
        print(table(json.loads(asked.out.read_text())))


if __name__ == "__main__":
    main()
