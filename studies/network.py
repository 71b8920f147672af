"""The gain from the start of the mixture's network and from a second network, paired by user.

    python studies/network.py --data ml-1m --splits 23 24 25 --out studies/results/network.json

Every part is fitted once on each split, as in the mixture. `before` is the network with random initial vectors, equal
user weights and twice the epochs; `after` is the current network, and `two` are two of them with different seeds. Each
is mixed with the closed forms as in the mixture, with weights from the validation users, and evaluated on test users.
Seconds are CPU seconds. No table uses these splits, and the network's settings were chosen on others (20 and 21).

With `--warm-up` the current network is compared with one whose learning rate is highest in the first epoch, and with
one of 8 instead of 14 epochs.
"""

import os

os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}  # before numpy and torch

import argparse
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

import recfusion as rf
from recfusion.core.files import write_json
from recfusion.evaluation.evaluate import evaluate
from recfusion.evaluation.metrics import Values
from recfusion.models.base import Recommender, Shape
from recfusion.models.registry import make_model
from recfusion.models.settings import setting_values
from recfusion.models.thinning.deep import ThinningDeep
from recfusion.models.thinning.mixture_choice import found_weights, usual_weights
from recfusion.models.thinning.mixture_weights import Ballot
from recfusion.models.thinning.parts import economical
from recfusion.training.epoch import warmup_cosine

CLOSED = ("thinning-pairs", "thinning-local", "ials")
METRIC = "ndcg@100"
MIXED = {"before": ["before"], "after": ["after"], "two": ["after", "after again"]}
ALONE = {"after": ["after"], "no warm-up": ["no warm-up"], "8 epochs": ["8 epochs"]}


class Sudden(ThinningDeep):
    """The network without a warm-up of the learning rate."""

    def learning_rate(self, epoch: int) -> float:
        return self.lr * warmup_cosine(epoch, self.max_epochs, 1)


def main() -> None:
    """Fit, mix and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--data", default="ml-1m")
    parser.add_argument("--splits", type=int, nargs="+", default=[23, 24, 25])
    parser.add_argument("--warm-up", action="store_true", help="compare networks with and without a warm-up")
    parser.add_argument("--out", type=Path, help="JSON file for the figures")
    options = parser.parse_args()
    torch.set_num_threads(1)
    data = rf.load(options.data)
    mixed: dict[str, list[Values]] = {}
    alone: dict[str, list[float]] = {}
    seconds: dict[str, list[float]] = {}
    for seed in options.splits:
        parts = rf.split(data, seed=seed)
        shape = Shape.of(parts.train)
        fitted: dict[str, Recommender] = {
            name: economical(make_model(name, {}), shape).fit(parts.train, parts.valid, rng=0) for name in CLOSED
        }
        for label, net, rng in without_warm_up(shape) if options.warm_up else networks(shape):
            began = time.process_time()
            fitted[label] = net.fit(parts.train, parts.valid, rng=rng)
            seconds.setdefault(label, []).append(time.process_time() - began)
            alone.setdefault(label, []).append(100 * evaluate(net, parts.test, parts.train, (METRIC,)).mean()[METRIC])
        for label, nets in (ALONE if options.warm_up else MIXED).items():
            mixture = {name: fitted[name] for name in CLOSED}
            mixture |= {"thinning-deep" + ("#2" if place else ""): fitted[net] for place, net in enumerate(nets)}
            mixed.setdefault(label, []).append(judged(mixture, shape, parts))
        print(f"split {seed}: done", flush=True)
    report: dict[str, Any] = {"data": options.data, "splits": options.splits}
    for label, found in alone.items():
        report[f"{label}, alone"] = {"ndcg@100": float(np.mean(found)), "cpu seconds": float(np.mean(seconds[label]))}
    before = np.concatenate(next(iter(mixed.values())))
    for label, values in mixed.items():
        gain = np.concatenate(values) - before
        report[f"{label}, in the mixture"] = {
            "ndcg@100": float(np.concatenate(values).mean()),
            "gain": float(gain.mean()),
            "standard error": float(gain.std() / np.sqrt(len(gain))),
        }
    for label, figures in report.items():
        print(label, figures)
    if options.out:
        write_json(options.out, report)


def networks(shape: Shape) -> list[tuple[str, ThinningDeep, int]]:
    """Return the networks with their seeds."""
    net = ThinningDeep().economical(shape)
    before = replace(net, directions=0, b=0.0, max_epochs=2 * net.max_epochs)
    return [("before", before, 0), ("after", net, 0), ("after again", replace(net), 1)]


def without_warm_up(shape: Shape) -> list[tuple[str, ThinningDeep, int]]:
    """Return the current network, one without a warm-up of the learning rate, and one with fewer epochs."""
    net = ThinningDeep().economical(shape)
    sudden = Sudden(**setting_values(net))
    return [("after", net, 0), ("no warm-up", sudden, 0), ("8 epochs", replace(net, max_epochs=8), 0)]


def judged(mixture: Mapping[str, Recommender], shape: Shape, parts: rf.Split) -> Values:
    """Return 100 NDCG@100 of the test users, (users,)."""
    weights = found_weights(Ballot.of(mixture, parts.valid), usual_weights(mixture, shape))
    return 100 * Ballot.of(mixture, parts.test).ndcg(weights)


if __name__ == "__main__":
    main()
