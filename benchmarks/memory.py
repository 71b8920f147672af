"""Forecasts of a fit's memory against the peaks that fits really have, for every model by name.

    python benchmarks/memory.py --out benchmarks/memory.json [--models NAME,NAME]

Each fit is a process of its own on made-up data, of a size at which it takes 500 MB and more where that can be had in
a minute; networks have one epoch, searches the trials given here. Peak and forecast both count what the process held
before the fit. Aimed at: a forecast from 10 % below the peak to 50 % above.
"""

import argparse
import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from bars import resident
from scale import peak_bytes
from scipy.sparse import csr_array

from recfusion.core.arrays import Csr
from recfusion.core.rng import stream
from recfusion.data.split import Fold
from recfusion.data.synthetic import Size, chunks
from recfusion.models.base import Recommender, Shape
from recfusion.models.registry import MODELS, make_model
from recfusion.models.settings import settings_of

SQUARE, WIDE, LARGE = Size(20_000, 12_000, 600_000), Size(6_000, 30_000, 400_000), Size(200_000, 100_000, 3_000_000)
SIZES = {
    **dict.fromkeys(("slim", "bspm", "thinning-features"), Size(20_000, 8_000, 400_000)),
    **dict.fromkeys(("ease", "edlae", "rdlae", "ease-dan", "thinning-linear", "thinning-signals"), SQUARE),
    **dict.fromkeys(("thinning-pairs", "ease-pairs"), Size(8_000, 4_000, 200_000)),
    **dict.fromkeys(("infinite-ae",), Size(9_000, 12_000, 400_000)),
    **dict.fromkeys(("random", "popularity", "recent-popularity", "content", "user-knn"), LARGE),
    **dict.fromkeys(("ials", "thinning-local", "thinning-factors", "thinning-fast", "thinning"), LARGE),
    **dict.fromkeys(("mixture",), Size(6_000, 6_000, 200_000)),
    **dict.fromkeys(("recfusion-unet1d", "recfusion-map", "recfusion-unet2d"), Size(2_000, 6_000, 60_000)),
}
SHORT = {"max_epochs": 1, "tune_trials": 3, "iterations": 2, "max_rounds": 2, "max_sweeps": 2}


def made(size: Size) -> Csr:
    """Return generated histories."""
    parts = list(chunks(size, 0))
    place = np.concatenate([part.user for part in parts]), np.concatenate([part.item for part in parts])
    return csr_array((np.ones(len(place[0]), np.float32), place), shape=(size.users, size.items))


def short(name: str) -> Recommender:
    """Return the model with one epoch and few trials."""
    known = settings_of(type(make_model(name, {})))
    return make_model(name, {key: value for key, value in SHORT.items() if key in known})


def run(name: str, size: Size) -> dict[str, Any]:
    """Fit once in this process."""
    model, rows = short(name), made(size)
    train, judged = rows[:-200], rows[-200:]
    shown = judged.indices % 5 > 0
    valid = Fold(np.arange(200), *(_kept(judged, keep) for keep in (shown, ~shown)))
    Path("/proc/self/clear_refs").write_text("5")
    before = resident()
    model.fit(train, valid, rng=stream(0, "fit"))
    forecast = model.forecast(Shape.of(train)).bytes
    peak = peak_bytes()
    found = {"model": name, **asdict(Shape.of(train)), "before_bytes": before, "peak_bytes": peak}
    ratio = None if forecast is None else (before + forecast) / peak
    return {**found, "forecast_bytes": forecast, "ratio": ratio}


def _kept(rows: Csr, keep: Any) -> Csr:
    kept = np.concatenate([[0], np.cumsum(keep)])[rows.indptr]
    return csr_array((rows.data[keep], rows.indices[keep], kept), shape=rows.shape)


def again(row: dict[str, Any]) -> dict[str, Any]:
    """Return the row with the forecast that the code makes now."""
    shape = Shape(*(row[count] for count in ("users", "items", "interactions")))
    forecast = short(row["model"]).forecast(shape).bytes
    ratio = None if forecast is None else (row["before_bytes"] + forecast) / row["peak_bytes"]
    return {**row, "forecast_bytes": forecast, "ratio": ratio}


def table(rows: list[dict[str, Any]]) -> str:
    """Return the rows as Markdown."""
    lines = ["| model | users | items | interactions | peak | forecast / peak |", "|" + "---|" * 6]
    for row in rows:
        counts = " | ".join(f"{row[count]:,}" for count in ("users", "items", "interactions"))
        ratio = "" if row["ratio"] is None else f"{row['ratio']:.2f}"
        lines.append(f"| {row['model']} | {counts} | {row['peak_bytes'] / 1e9:.2f} GB | {ratio} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--out", type=Path, default=Path("memory.json"))
    parser.add_argument("--again", action="store_true", help="fit nothing, forecast anew for the fits of --out")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.one:
        print(json.dumps(run(asked.one, SIZES.get(asked.one, WIDE))))
        return
    kept = json.loads(asked.out.read_text()) if asked.out.exists() else []
    if asked.again:
        kept = [again(row) for row in kept]
        asked.out.write_text(json.dumps(kept, indent=1) + "\n")
        print(table(kept))
        return
    for name in asked.models.split(","):
        command = [sys.executable, __file__, "--one", name]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            print(name, "failed:", (done.stderr.strip() or "ended").splitlines()[-1], flush=True)
            continue
        row = json.loads(done.stdout.splitlines()[-1])
        print(row, flush=True)
        kept = [*(one for one in kept if one["model"] != name), row]
        asked.out.write_text(json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    main()
