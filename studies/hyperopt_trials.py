"""Hyperopt's own SparkTrials, as in the paper, against this project's search: are the trials the same?

    python studies/hyperopt_trials.py --data ml-100k --out studies/results/spark-trials.json

Two searches of EASE's l2 by validation NDCG@100, `fmin` with SparkTrials in local mode and with plain Trials; and our
proposal for each of their trials, from the trials before it and the seed that `fmin` drew for it. SparkTrials asks for
a trial while the one before is still running, even with one worker, and Hyperopt gives a running trial an infinite
loss. Needs pyspark and Java.
"""

import argparse
import functools
import json
import math
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

import recfusion as rf
from recfusion.core.files import write_json
from recfusion.models.linear.ease import EASE
from recfusion.training import search_space
from recfusion.training.search_space import Interval, Space
from recfusion.training.trial import Trial

SPACE: Space = {"l2": Interval(1.0, 10_000.0, log=True)}


def objective(parts: rf.Split, settings: Mapping[str, Any]) -> float:
    """Return minus the validation NDCG@100 of EASE."""
    model = EASE(**settings).fit(parts.train)
    return -rf.evaluate(model, parts.valid, parts.train, ("ndcg@100",), threads=1).mean()["ndcg@100"]


def searched(loss: Callable[[Mapping[str, Any]], float], n: int, seed: int, spark: bool) -> list[tuple[float, float]]:
    """Return l2 and loss of each trial of a search by `fmin`."""
    import hyperopt

    trials = hyperopt.SparkTrials(parallelism=1) if spark else hyperopt.Trials()
    space = {name: search_space._dimension(name, each) for name, each in SPACE.items()}
    suggest = functools.partial(hyperopt.tpe.suggest, n_startup_jobs=search_space.STARTUP)
    hyperopt.fmin(
        loss,
        space,
        suggest,
        n,
        trials=trials,
        rstate=np.random.default_rng(seed),
        show_progressbar=False,
        verbose=False,
    )
    ended = sorted(trials.trials, key=lambda one: one["tid"])
    return [(float(one["misc"]["vals"]["l2"][0]), float(one["result"]["loss"])) for one in ended]


def ours(trials: list[tuple[float, float]], seed: int, pending: int) -> list[float | None]:
    """Return our proposal for each trial after the random ones, if the last `pending` trials before it still ran."""
    rng, proposed = np.random.default_rng(seed), list[float | None]()
    for number in range(len(trials)):
        drawn = int(rng.integers(2**31 - 1))  # one for each proposal
        ended = number - pending
        past = [Trial({"l2": l2}, -loss if n < ended else -math.inf) for n, (l2, loss) in enumerate(trials[:number])]
        known = number >= search_space.STARTUP
        proposed.append(float(search_space._suggest(SPACE, past, seed=drawn)["l2"]) if known else None)
    return proposed


def agrees(trials: list[tuple[float, float]], proposed: list[float | None]) -> bool:
    """Return whether all proposals are the settings that were tried."""
    return all(one is None or np.isclose(one, l2, rtol=1e-12) for (l2, _), one in zip(trials, proposed, strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="ml-100k")
    parser.add_argument("--trials", type=int, default=16)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    loss = functools.partial(objective, rf.split(rf.load(given.data), seed=0))
    on_spark, here = (searched(loss, given.trials, given.seed, spark) for spark in (True, False))
    waiting, ended = ours(on_spark, given.seed, 1), ours(here, given.seed, 0)
    rows = [
        {"trial": n, "SparkTrials": a[0], "ours, last trial running": b, "Trials": c[0], "ours": d}
        for n, (a, b, c, d) in enumerate(zip(on_spark, waiting, here, ended, strict=True))
    ]
    same = {
        "SparkTrials and ours, last trial running": agrees(on_spark, waiting),
        "Trials and ours": agrees(here, ended),
        "SparkTrials and Trials": [a for a, _ in on_spark] == [b for b, _ in here],
    }
    write_json(given.out, {"data": given.data, "seed": given.seed, "same": same, "trials": rows})
    print(json.dumps(same, indent=1))


if __name__ == "__main__":
    main()
