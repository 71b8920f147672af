"""Print the default model beside the best single model, and all models of the global splits, from the stores.

Usage: python scripts/default_table.py [--write]

--write puts the tables into docs/explanation/signals.md instead.
Splits: binary (a random fifth of unseen users' histories, no signals), per-user temporal (the last fifth, graded and
timed) and global (after one moment, timed). Means of NDCG@100 are over the splits that the compared rows have; the
interval is that of the new default minus the best single model, paired by user. Mixtures are no single models. The
second table has the models of the global splits, which do not depend on a seed.
"""

import re
import sys
from pathlib import Path

import numpy as np

from recfusion.evaluation.metrics import MAIN_METRIC
from recfusion.evaluation.significance import bootstrap_means, summarise
from recfusion.experiments.result import Result, read_results

RESULTS = Path(__file__).parents[1] / "results"
PAGE = Path(__file__).parents[1] / "docs" / "explanation" / "signals.md"
NEW, OLD = "thinning", "thinning, without signals"
MIXTURES = {NEW, OLD, "thinning-fast", "mixture"}
STORES = {
    "ML-100K": ("ml-100k", "default-ml100k", "global-ml100k-10"),
    "ML-1M": ("ml1m", "default-ml1m", "global-ml1m-10"),
    "Online-Retail": ("online-retail", "default-shop", "global-shop-10"),
    "ml-latest-small": ("ml-latest-small", "default-small", "global-small-10"),
}
KINDS = ("binary", "per-user temporal", "global")
# Stores that end in the percentage of all interactions after the moment of the cut.
CUTS = {
    "ML-100K": ("global-ml100k-05", "global-ml100k-10", "global-ml100k-20"),
    "ML-1M": ("global-ml1m-05", "global-ml1m-10", "global-ml1m-20"),
    "Online-Retail": ("global-shop-05", "global-shop-10", "global-shop-20"),
    "ml-latest-small": ("global-small-10",),
}
SHOWN = (
    *("popularity", "recent-popularity", "ease", "thinning-linear", "thinning-signals"),
    *("sasrec", "recfusion-seq", OLD, NEW),
)


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
    gain = f"{100 * found.mean:+.2f} ({low:+.2f} to {high:+.2f})".replace("-", "−")
    return f"| {data} | {kind} | {len(shared)} | {today} | {best} {means[0]:.2f} | {means[1]:.2f} | {gain} |"


def cut_line(data: str, store: str) -> str:
    """Return a row of the table of global splits: the NDCG@100 of each model."""
    found = {one.label: values({one.seed: one}, [one.seed]) for one in read_results(RESULTS / f"{store}.jsonl")}
    means = [f"{100 * found[label].mean():.2f}" if label in found else "" for label in SHOWN]
    users = f"{len(next(iter(found.values()))):,}" if found else "not run"
    return f"| {data} | {int(store[-2:])} % | {users} | {' | '.join(means)} |"


def default_table() -> str:
    """Return the default model beside the best single model of each data set and kind of split."""
    heads = ("data", "split", "splits", "default without signals", "best single model", "default")
    rows = [line(data, *pair) for data, stores in STORES.items() for pair in zip(KINDS, stores, strict=True)]
    return "\n".join(
        [f"| {' | '.join(heads)} | default minus best single |", "|---|---|---:|---:|---:|---:|---:|", *rows]
    )


def cut_table() -> str:
    """Return the models of the global splits."""
    rows = [cut_line(data, store) for data, stores in CUTS.items() for store in stores]
    return "\n".join(
        [f"| data | after the cut | test users | {' | '.join(SHOWN)} |", f"|---|{'---:|' * (2 + len(SHOWN))}", *rows]
    )


def with_tables(text: str) -> str:
    """Return the page with both tables replaced by new ones."""
    for table in (default_table(), cut_table()):
        head = table.partition("\n")[0]
        found = re.findall(rf"^{re.escape(head)}\n(?:\|.*\n)+", text, flags=re.MULTILINE)
        if len(found) != 1:
            raise SystemExit(f"Expected one table with the head '{head}' in {PAGE}, got {len(found)}.")
        text = text.replace(found[0], f"{table}\n")
    return text


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    elif sys.argv[1:]:
        sys.exit(__doc__)
    else:
        print(default_table(), cut_table(), sep="\n\n")
