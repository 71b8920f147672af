"""Print the gain of each signal (ratings, timestamps, features) on the same users, from the committed stores.

Usage: python scripts/signals_table.py ml1m | shop | lastfm

Both sides of a row have the same users, held-out items and splits; their protocols differ only in the signals. So the
differences can be paired by user, although `recfusion report` refuses results of different protocols.
"""

import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from recfusion.evaluation.metrics import MAIN_METRIC
from recfusion.evaluation.significance import bootstrap_means, summarise
from recfusion.experiments.result import Result, read_results

RESULTS = Path(__file__).parents[1] / "results"


@dataclass(frozen=True)
class Row:
    """A row: its title, and the models with and without the signal as store and label."""

    signal: str
    model: tuple[str, str]
    without: tuple[str, str]


NETS = "../studies/results/signals-nets"
LINEAR, SIGNALS, FEATURES = "thinning-linear", "thinning-signals", "thinning-features"
TABLES = {
    "ml1m": [
        Row("`graded`: dislikes masked", ("signals-graded", LINEAR), ("signals-likes", LINEAR)),
        Row("`graded`: dislikes masked and modelled", ("signals-graded", SIGNALS), ("signals-likes", LINEAR)),
        Row("gain of modelling them", ("signals-graded", SIGNALS), ("signals-graded", LINEAR)),
        Row("dislikes in the loss of a network", (NETS, "recfusion-dislikes"), (NETS, "recfusion")),
        Row("`timed` (per-user temporal)", ("signals-time-ml1m", SIGNALS), ("signals-time-ml1m", LINEAR)),
        Row("`timed`, TALE (per-user temporal)", ("sequential-ml1m", "tale"), ("sequential-ml1m", LINEAR)),
        Row("`timed` (one moment for all)", ("global-ml1m-10", SIGNALS), ("global-ml1m-10", LINEAR)),
        Row("`timed`, TALE (one moment for all)", ("signals-global-ml1m", "tale"), ("signals-global-ml1m", LINEAR)),
        Row("`features`: genres", ("features-ml1m", FEATURES), ("features-ml1m", LINEAR)),
        Row("`graded,timed` (per-user temporal)", ("signals-both-ml1m", SIGNALS), ("signals-time-ml1m", LINEAR)),
    ],
    "shop": [
        Row("`graded`: units", ("signals-counts-shop", "counts as units"), ("signals-counts-shop", LINEAR)),
        Row("`graded`: log", ("signals-counts-shop", "counts as log"), ("signals-counts-shop", LINEAR)),
        Row("`graded`: saturating", ("signals-counts-shop", "counts as saturating"), ("signals-counts-shop", LINEAR)),
        Row("`timed` (per-user temporal)", ("signals-time-shop", SIGNALS), ("signals-time-shop", LINEAR)),
        Row("`timed`, TALE (per-user temporal)", ("signals-time-shop", "tale"), ("signals-time-shop", LINEAR)),
        Row("`timed` (one moment for all)", ("signals-global-shop", SIGNALS), ("signals-global-shop", LINEAR)),
        Row("`timed`, TALE (one moment for all)", ("signals-global-shop", "tale"), ("signals-global-shop", LINEAR)),
        Row("`features`: words", ("features-retail", FEATURES), ("features-retail", LINEAR)),
        Row("`graded,timed` (per-user temporal)", ("signals-both-shop", SIGNALS), ("signals-time-shop", LINEAR)),
    ],
    "lastfm": [
        Row("`graded`: units", ("signals-counts-lastfm", "counts as units"), ("signals-counts-lastfm", LINEAR)),
        Row("`graded`: log", ("signals-counts-lastfm", "counts as log"), ("signals-counts-lastfm", LINEAR)),
        Row(
            "`graded`: saturating", ("signals-counts-lastfm", "counts as saturating"), ("signals-counts-lastfm", LINEAR)
        ),
    ],
}


def results_of(store: str, label: str) -> dict[int, Result]:
    """Return the results of one model by seed; none if the store does not exist."""
    return {one.seed: one for one in read_results(RESULTS / f"{store}.jsonl") if one.label == label}


def line(row: Row) -> str:
    """Return a row of the table: both means and the gain, on the splits that both sides have."""
    own, base = results_of(*row.model), results_of(*row.without)
    seeds = sorted(own.keys() & base.keys())
    if not seeds:
        return f"| {row.signal} | not run | | | |"
    for seed in seeds:
        if own[seed].users.tolist() != base[seed].users.tolist():
            raise SystemExit(f"Expected the same users in split {seed} of {row.model[0]} and {row.without[0]}.")
    gains = [own[seed].test[MAIN_METRIC] - base[seed].test[MAIN_METRIC] for seed in seeds]
    users = np.concatenate([own[seed].users for seed in seeds])
    (drawn,) = bootstrap_means(users, np.concatenate(gains)[:, None]).T
    found = summarise(gains, drawn)
    low, high = (100 * end for end in found.ci95 or (found.mean, found.mean))
    without, with_it = (
        100 * np.concatenate([side[seed].test[MAIN_METRIC] for seed in seeds]).mean() for side in (base, own)
    )
    gain = f"{100 * found.mean:+.2f} ({low:+.2f} to {high:+.2f})"
    return f"| {row.signal} | {len(seeds)} | {without:.2f} | {with_it:.2f} | {gain} |"


def main(table: str) -> None:
    """Print one of the tables."""
    print("| signal | splits | without | with | gain (95 % interval over users) |\n|---|---:|---:|---:|---:|")
    for row in TABLES[table]:
        print(line(row))


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1] not in TABLES:
        sys.exit(__doc__)
    main(sys.argv[1])
