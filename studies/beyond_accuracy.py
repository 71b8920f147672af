"""What NDCG does not show: coverage, popularity bias, users with few items, and the chance in a training.

    python studies/beyond_accuracy.py --data ml-100k lastfm-2k

Split 0 of each data set, and the model's defaults. `pruned` is the usual preparation (users with five items or more),
`unpruned` keeps users with fewer: all of them are trained on, those with at least two are tested. `seeds` are trainings
of the same split with the random numbers of seeds 0, 1 and 2. A measurement that the file has is not repeated; delete
it after a change of the code. `python scripts/leaderboard.py` prints the file.
"""

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import recfusion as rf
from recfusion.core.files import read_json, write_json
from recfusion.core.rng import stream
from recfusion.data.split import Split
from recfusion.evaluation.list_evaluation import evaluate_metrics
from recfusion.models.registry import known_models

MODELS = ("popularity", "ease", "ease-dan", "multdae", "thinning-linear", "thinning-fast", "thinning")
RANDOM = ("multdae", "thinning")  # models with random numbers in their training
METRICS = ("ndcg@100", "coverage@100", "gini@100", "popularity@100")
SEEDS = (0, 1, 2)
DATA = ("ml-1m", "ml-100k", "ml-latest-small", "online-retail", "lastfm-2k")
OUT = Path(__file__).parent / "results" / "beyond_accuracy.json"


def measure(name: str, parts: Split, seed: int = 0) -> dict[str, float]:
    """Return the metrics of a model on the test users, with the CPU seconds of the fit."""
    began = time.process_time()
    model = known_models()[name].make()
    model.fit(parts.train, parts.valid, rng=stream(seed, f"fit {name}"))
    seconds = time.process_time() - began
    found = evaluate_metrics(model, parts.test, parts.train, METRICS, threads=1).mean()
    return {metric: round(found[metric], 6) for metric in METRICS} | {"cpu_seconds": round(seconds, 1)}


def prepared(data: str, least: int = 5) -> Split:
    """Return split 0 of a data set without users with fewer than `least` items."""
    return rf.split(rf.load(data, rf.Preparation(min_items_per_user=least)), seed=0)


def add_models(found: dict[str, Any], data: str, models: Sequence[str], out: Path) -> None:
    """Add the missing models of a data set, with and without users of few items, and save each."""
    its = found.setdefault(data, {"users": {}, "pruned": {}, "unpruned": {}, "seeds": {}})
    for kind, least in (("pruned", 5), ("unpruned", 1)):
        parts = prepared(data, least)
        few = int((np.diff(parts.test.history.indptr) + np.diff(parts.test.held_out.indptr) < 5).sum())
        its["users"][kind] = {"tested": len(parts.test.users), "with fewer than five items": few}
        for name in models:
            if name in MODELS and name not in its[kind]:
                its[kind][name] = measure(name, parts)
                write_json(out, found)


def add_seeds(found: dict[str, Any], data: str, models: Sequence[str], out: Path) -> None:
    """Add the missing trainings with other random numbers, and save each."""
    its, parts = found[data], prepared(data)
    for name in (name for name in models if name in RANDOM):
        for seed in map(str, SEEDS):
            values = its["seeds"].setdefault(name, {})
            if seed not in values:
                known = its["pruned"].get(name) if seed == "0" else None
                values[seed] = (known or measure(name, parts, int(seed)))["ndcg@100"]
                write_json(out, found)


def main() -> None:
    """Run the missing measurements."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", nargs="+", default=list(DATA))
    parser.add_argument("--models", nargs="+", default=list(MODELS))
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    found: Any = read_json(options.out) if options.out.exists() else {}
    for add in (add_models, add_seeds):
        for data in options.data:
            add(found, data, options.models, options.out)


if __name__ == "__main__":
    main()
