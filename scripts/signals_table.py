"""Print what signals bring: thinning-linear on likes alone, with the mask of dislikes, and models that read more.

Usage: python scripts/signals_table.py LIKES.jsonl GRADED.jsonl

The two stores have the same users, held-out likes and splits under different protocols, so that differences can be
paired by user; `recfusion report` refuses such tables, and rightly so for anything else.
"""

import sys
from pathlib import Path

import numpy as np

from recfusion.evaluation.significance import bootstrap_means, summarise
from recfusion.experiments.result import Result, read_results

METRIC = "ndcg@100"


def of_label(path: Path, label: str) -> dict[int, Result]:
    """Return the results of one model by seed."""
    return {one.seed: one for one in read_results(path) if one.label == label}


def row(name: str, own: dict[int, Result], base: dict[int, Result]) -> str:
    """Return a row of the table: the mean, and the gain over the base on the splits that both have."""
    seeds = sorted(own.keys() & base.keys())
    for seed in seeds:
        if own[seed].users.tolist() != base[seed].users.tolist():
            raise SystemExit(f"Expected the same users in split {seed}.")
    gains = [own[seed].test[METRIC] - base[seed].test[METRIC] for seed in seeds]
    users = np.concatenate([own[seed].users for seed in seeds])
    (drawn,) = bootstrap_means(users, np.concatenate(gains)[:, None]).T
    found = summarise(gains, drawn)
    low, high = (100 * end for end in found.ci95 or (found.mean, found.mean))
    mean = 100 * np.concatenate([own[seed].test[METRIC] for seed in seeds]).mean()
    return f"| {name} | {len(seeds)} | {mean:.2f} | {100 * found.mean:+.2f} ({low:+.2f} to {high:+.2f}) |"


def main(likes: Path, graded: Path) -> None:
    base, mask = of_label(likes, "thinning-linear"), of_label(graded, "thinning-linear")
    both = of_label(graded, "thinning-signals")
    print("| model | splits | NDCG@100 | gain |\n|---|---:|---:|---:|")
    print(row("thinning-linear, likes alone", base, base))
    print(row("thinning-linear, dislikes masked", mask, base))
    print(row("thinning-signals, dislikes masked and modelled", both, base))
    print(row("of which by modelling", both, mask))


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), Path(sys.argv[2]))
