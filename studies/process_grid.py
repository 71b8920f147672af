"""Bounds and ranking of the forward processes of an experiment, results/processes-ml100k.toml, side by side.

    python studies/process_grid.py --out studies/results/processes-ml100k.json
    python studies/process_grid.py --out studies/results/processes-ml100k.json --table  # docs/explanation/processes.md

Every row of the experiment is fitted on each split; rows that are trained on their bound also get the bound in nats of
whole rows of the test users, as in studies/bound.py. Each fit is written when it is finished, and an interrupted run
resumes.
"""

import os

os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}  # before numpy and torch

import argparse
import copy
import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import torch

import recfusion as rf
from bound import DRAWS, recfusion_bound
from recfusion.core.arrays import column_counts
from recfusion.core.files import write_json
from recfusion.core.rng import stream
from recfusion.data.load import load
from recfusion.experiments.experiment_file import read_experiment
from recfusion.models.base import Recommender
from recfusion.models.recfusion.recfusion import RecFusion

EXPERIMENT = Path(__file__).parents[1] / "results/processes-ml100k.toml"


def measured(model: Recommender, parts: rf.Split, seed: int, draws: int) -> dict[str, float]:
    """Fit a model on a split and return its test NDCG@100 and, if it was trained on its bound, that bound in nats."""
    fitted = copy.deepcopy(model).fit(parts.train, parts.valid, rng=stream(seed, "fit"))
    found = rf.evaluate(fitted, parts.test, parts.train, ("ndcg@100",), threads=1).mean()
    if not isinstance(fitted, RecFusion) or fitted.objective != "elbo":
        return found
    means = torch.from_numpy((column_counts(parts.train) + 0.5) / (parts.train.shape[0] + 1))
    bound = recfusion_bound(fitted, parts.test.history + parts.test.held_out, means, draws)
    return found | {name: bound[name] for name in ("mean", "L_T", "L_steps", "L_0")}


def table(fits: dict[str, Any]) -> str:
    """Return a Markdown table: means over the splits that each row has, whose number is in brackets if it is lower."""
    n_splits = Counter(key.rpartition("#")[0] for key in fits)
    means: dict[str, dict[str, float]] = {}
    for key, row in fits.items():
        label = key.rpartition("#")[0]
        means.setdefault(
            label,
            {name: float(np.mean([f[name] for k, f in fits.items() if k.startswith(f"{label}#")])) for name in row},
        )
    lines = [
        "| process, rates | nats per user | L_T | L_steps | L_0 | NDCG@100, trained on the bound | trained to rank |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    stems = dict.fromkeys(label.rpartition(" (")[0] for label in means if label.endswith(")"))
    for stem in sorted(stems, key=lambda each: means.get(f"{each} (bound)", {}).get("mean", np.inf)):
        bound, rank = means.get(f"{stem} (bound)"), means.get(f"{stem} (rank)")
        nats = [f"{bound[name]:.1f}" if bound else "" for name in ("mean", "L_T", "L_steps", "L_0")]
        ranked = []
        for kind, row in (("bound", bound), ("rank", rank)):
            n = n_splits[f"{stem} ({kind})"]
            fewer = "" if n == max(n_splits.values()) else f" ({n})"
            ranked.append(f"{100 * row['ndcg@100']:.2f}{fewer}" if row else "")
        lines.append(f"| {' | '.join([stem, *nats, *ranked])} |")
    marks = [label for label in ("ease", "popularity") if label in means]
    lines += [f"| {label} | | | | | | {100 * means[label]['ndcg@100']:.2f} |" for label in marks]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--experiment", type=Path, default=EXPERIMENT, help="the rows, and the data")
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--only", default="", help="rows whose label contains this text")
    parser.add_argument("--table", action="store_true", help="only print the table of what was measured")
    given = parser.parse_args()
    torch.set_num_threads(1)
    fits: dict[str, Any] = json.loads(given.out.read_text(encoding="utf-8"))["fits"] if given.out.exists() else {}
    if not given.table:
        experiment = read_experiment(given.experiment)
        data = load(experiment.data)
        for seed in range(given.splits):
            parts = rf.split(data, seed=seed)
            for candidate, _ in experiment.models:
                key = f"{candidate.label}#{seed}"
                if given.only in candidate.label and key not in fits:
                    fits[key] = measured(candidate.model, parts, seed, DRAWS)
                    write_json(given.out, {"data": experiment.data.data, "fits": fits})
                    print(key, fits[key], flush=True)
    print(table(fits))


if __name__ == "__main__":
    main()
