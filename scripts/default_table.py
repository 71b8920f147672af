"""Print the default model with and without signals beside the best single model, from the committed stores.

Usage: python scripts/default_table.py

Splits: binary (a random fifth of unseen users' histories, no signals), temporal (the last fifth, graded and timed) and
global (after one moment, timed). Means of NDCG@100 are over the splits that the compared rows have; the interval is
that of the new default minus the best single model, paired by user. Mixtures are no single models.
"""

from pathlib import Path

import numpy as np

from recfusion.evaluation.metrics import MAIN_METRIC
from recfusion.evaluation.significance import bootstrap_means, summarise
from recfusion.experiments.result import Result, read_results

RESULTS = Path(__file__).parents[1] / "results"
NEW, OLD = "thinning", "thinning, without signals"
MIXTURES = {NEW, OLD, "thinning-fast", "mixture"}
STORES = {
    "ML-100K": ("ml-100k", "default-ml100k", "global-ml100k-10"),
    "ML-1M": ("ml1m", "default-ml1m", "global-ml1m-10"),
    "Online-Retail": ("online-retail", "default-shop", "global-shop-10"),
    "ml-latest-small": ("ml-latest-small", "default-small", "global-small-10"),
}
KINDS = ("binary", "temporal", "global")


def is_single(label: str) -> bool:
    """Return whether a row is no mixture."""
    return label not in MIXTURES and "+" not in label and not label.startswith("mixture")


def values(results: dict[int, Result], seeds: list[int]) -> np.ndarray:
    """Return the NDCG@100 of all test users of these splits."""
    return np.concatenate([results[seed].test[MAIN_METRIC] for seed in seeds])


def line(data: str, kind: str, store: str) -> str:
    """Return a row of the table, on the splits that both defaults and each single model have."""
    rows: dict[str, dict[int, Result]] = {}
    for one in read_results(RESULTS / f"{store}.jsonl"):
        rows.setdefault(one.label, {})[one.seed] = one
    new, old = rows.get(NEW, {}), rows.get(NEW if kind == "binary" else OLD, {})
    singles = {label: its for label, its in rows.items() if is_single(label) and new.keys() & its.keys()}
    if not new or not singles:
        return f"| {data} | {kind} | not run | | | | |"
    seeds = {label: sorted(new.keys() & its.keys()) for label, its in singles.items()}
    most = max(map(len, seeds.values()))
    best = max(
        (label for label in singles if len(seeds[label]) == most), key=lambda x: values(singles[x], seeds[x]).mean()
    )
    shared = seeds[best]
    gains = [new[seed].test[MAIN_METRIC] - singles[best][seed].test[MAIN_METRIC] for seed in shared]
    users = np.concatenate([new[seed].users for seed in shared])
    (drawn,) = bootstrap_means(users, np.concatenate(gains)[:, None]).T
    found = summarise(gains, drawn)
    low, high = (100 * end for end in found.ci95 or (found.mean, found.mean))
    today = f"{100 * values(old, shared).mean():.2f}" if set(shared) <= old.keys() else "not run"
    means = [100 * values(side, shared).mean() for side in (singles[best], new)]
    gain = f"{100 * found.mean:+.2f} ({low:+.2f} to {high:+.2f})"
    return f"| {data} | {kind} | {len(shared)} | {today} | {best} {means[0]:.2f} | {means[1]:.2f} | {gain} |"


def main() -> None:
    """Print the table."""
    print(
        "| data | split | splits | default without signals | best single model | default | default minus best single |"
    )
    print("|---|---|---:|---:|---:|---:|---:|")
    for data, stores in STORES.items():
        for kind, store in zip(KINDS, stores, strict=True):
            print(line(data, kind, store))


if __name__ == "__main__":
    main()
