"""What it brings to the mixture that its network begins at popularity: paired differences over users of three splits.

    python benchmarks/prior.py --data ml-1m --splits 20 21 22 --out benchmarks/prior.json

Every part is fitted once on each split, as the mixture fits it; weights are found on the validation users, by the
mixture's rule and, for all splits together, without the pull. The splits are none of those of the tables.
"""

import argparse
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

import recfusion as rf
from recfusion.core.files import write_json
from recfusion.data.split import Fold
from recfusion.evaluation.metrics import Values
from recfusion.models.base import Recommender, Shape
from recfusion.models.registry import make_model
from recfusion.models.thinning.deep import ThinningDeep
from recfusion.models.thinning.mixture import usual_weights
from recfusion.models.thinning.weights import Ballot, find_weights, search_weights

CLOSED = ("thinning-pairs", "ials")
PRIORS = (0.0, 1.0)


@dataclass(frozen=True)
class Judged:
    """The parts' say of one split's users, and what the usual weights are."""

    valid: Ballot
    test: Ballot
    usual: dict[str, float]


def main() -> None:
    """Fit, mix and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--data", default="ml-1m")
    parser.add_argument("--splits", type=int, nargs="+", default=[20, 21, 22])
    parser.add_argument("--out", type=Path, help="JSON file for the figures")
    options = parser.parse_args()
    data = rf.load(options.data)
    judged: dict[float, list[Judged]] = {prior: [] for prior in PRIORS}
    for seed in options.splits:
        parts = rf.split(data, seed=seed)
        shape = Shape.of(parts.train)
        closed = {name: make_model(name, {}).economical(shape).fit(parts.train, parts.valid, rng=0) for name in CLOSED}
        for prior in PRIORS:
            net = replace(ThinningDeep().economical(shape), prior=prior).fit(parts.train, parts.valid, rng=0)
            judged[prior].append(of_split({**closed, "thinning-deep": net}, shape, parts.valid, parts.test))
            print(f"split {seed}, prior {prior}: done", flush=True)
    report: dict[str, Any] = {"data": options.data, "splits": options.splits}
    for rule in ("pulled", "searched on all splits"):
        values = {prior: mixed(each, rule) for prior, each in judged.items()}
        gain = values[1.0] - values[0.0]
        report[rule] = {f"prior {prior}": float(each.mean()) for prior, each in values.items()}
        report[rule] |= {"gain": float(gain.mean()), "standard error": float(gain.std() / np.sqrt(len(gain)))}
        print(rule, report[rule], flush=True)
    if options.out:
        write_json(options.out, report)


def of_split(parts: dict[str, Recommender], shape: Shape, valid: Fold, test: Fold) -> Judged:
    return Judged(Ballot.of(parts, valid), Ballot.of(parts, test), usual_weights(parts, shape))


def mixed(splits: list[Judged], rule: str) -> Values:
    """Return 100 NDCG@100 of the test users of all splits, (users,)."""
    if rule == "pulled":
        found = [find_weights(each.valid, each.usual) for each in splits]
    else:
        first = splits[0]
        together = Ballot(
            first.valid.names,
            np.concatenate([each.valid.scores for each in splits], axis=1),
            np.concatenate([each.valid.relevant for each in splits]),
            np.concatenate([each.valid.ideal for each in splits]),
        )
        found = [search_weights(together, [first.usual])] * len(splits)
    return np.concatenate([100 * each.test.ndcg(weights) for each, weights in zip(splits, found, strict=True)])


if __name__ == "__main__":
    main()
