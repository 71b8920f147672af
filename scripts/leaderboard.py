"""Write results/leaderboard.md (also a page of the site) and its diagrams: all models, data sets and protocols.

Usage: python scripts/leaderboard.py
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import rankdata, studentized_range

from recfusion.core.files import read_json, replacing
from recfusion.evaluation.metrics import MAIN_METRIC
from recfusion.experiments.comparison_parts import joint_code_state
from recfusion.experiments.custom_metric import main_metric
from recfusion.experiments.foreign_lists import PLACE
from recfusion.experiments.result import Result, read_results
from recfusion.inference.model_card import WATTS
from recfusion.models.registry import MODELS
from recfusion.report.main_table import CODE_MARKS, code_mark

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results"
BEYOND = ROOT / "studies" / "results" / "beyond_accuracy.json"
PLANNED = "Planned data sets and a given split"
# Title -> name of the diagram, and stores. With ratings, known dislikes are no candidates, which raises all values.
PROTOCOLS = {
    "Binary, users outside of the training data": (
        "binary",
        ("ml1m", "ml-100k", "ml-latest-small", "online-retail", "lastfm-2k"),
    ),
    "Per-user temporal, ratings and times": (
        "per-user",
        ("default-ml1m", "default-ml100k", "default-small", "default-shop"),
    ),
    "Per-user temporal, times alone": ("times", ("sequential-ml1m", "sequential-ml100k", "sequential-shop")),
    "Global temporal": ("global", ("global-ml1m-10", "global-ml100k-10", "global-small-10", "global-shop-10")),
    PLANNED: ("planned", ("msweb", "douban", "gowalla")),
}
MORE = {"ml-100k": ("unets", "judged-ml100k")}  # stores with other models under the same protocol
KNOWN = "mixture of known models"  # the one label of a mixture that is in all stores of PLANNED
POWER = 2.8  # standard errors of a difference that a test at 5 % finds with a chance of 80 %
FEWEST = 5  # models that a diagram needs


def main() -> None:
    """Write the leaderboard and its diagrams."""
    for path, text in texts().items():
        with replacing(path) as beside:
            beside.write_text(text, encoding="utf-8")


def texts() -> dict[Path, str]:
    """Return the leaderboard and its diagrams, by their paths."""
    text, found = ["# Leaderboard\n", INTRODUCTION], {}
    for title, (short, names) in PROTOCOLS.items():
        sets = {name: of_registry(stored(name)) for name in names}
        sets = {name: its for name, its in sets.items() if its}
        if not sets:
            continue
        text += [f"\n## {title}\n", *([ABOUT_PLANNED] if title == PLANNED else []), table(sets), facts(sets)]
        common = everywhere(sets)
        if len(sets) > 1 and len(common) >= FEWEST:
            ranks, distance = mean_ranks(shared_means(sets, common)), critical_difference(len(common), len(sets))
            name = f"leaderboard-{short}.svg"
            found[RESULTS / name] = diagram(dict(zip(common, ranks.tolist(), strict=True)), distance)
            text.append(
                f"\n![Mean ranks of the models that all data sets have]({name})\n\nMean ranks of the {len(common)} "
                f"models that all {len(sets)} data sets have. A bar joins models with mean ranks that differ by less "
                f"than the critical difference of {distance:.2f} (Nemenyi, 5 %): with so few data sets, that is most "
                "of them.\n"
            )
    if BEYOND.exists():
        measured: Any = read_json(BEYOND)
        text += beyond(measured)
    return {RESULTS / "leaderboard.md": "\n".join(text), **found}


INTRODUCTION = f"""
{MAIN_METRIC} x 100 of every model of the registry with its defaults, from the stores of this folder
(`python scripts/leaderboard.py`). A mean is over the splits that the model has, so means with fewer splits (in
brackets) are not quite comparable; the tables of each store have paired tests. Rank: the mean rank among the models
that all data sets of the table have, on the splits that all of them have. The other columns are of the first data set
that has the model. Rare: the recall@100 of the rarest items divided by that of the most popular ones; items are sorted
by popularity and cut so that each third has a third of the training interactions. 1 is no popularity bias, 0 is a model
that never finds a rare item. Fit: seconds of a fit with its search. Energy: its watt hours, estimated as CPU seconds
times {WATTS:g} W, or measured (with an m); older results do not have it. In the tables with ratings, items that a test
user is known to dislike are no candidates, so their values are higher than without ratings. An empty cell was not run.
Trials, intervals and tests are in the table of each store.
{" ".join(f"{mark}: {meaning}" for mark, meaning in CODE_MARKS.items())}
"""
ABOUT_PLANNED = f"""
The models, settings and hypotheses of msweb and douban were written down before the runs. Gowalla has the published
split, and its metric is NDCG@20. `{KNOWN}` has the members of `mixture`, on Gowalla known models that need no matrix of
items by items.
"""


def stored(name: str) -> list[Result]:
    """Return the results of a store, and those of other models in the stores that have its protocol too."""
    found = read_results(RESULTS / f"{name}.jsonl")
    for other in MORE.get(name, ()):
        labels, hashes = {one.label for one in found}, {one.protocol.hash for one in found}
        more = read_results(RESULTS / f"{other}.jsonl")  # nothing if there is no such store
        found += [one for one in more if one.protocol.hash in hashes and one.label not in labels]
    return found


def of_registry(results: Sequence[Result]) -> dict[str, list[Result]]:
    """Return the results of models with their own names, so with their defaults, and those of other libraries."""
    found: dict[str, list[Result]] = {}
    for one in results:
        named = (one.label == one.model and one.model in MODELS) or one.label == KNOWN or one.place == PLACE
        if named and deciding(one) in one.test:
            found.setdefault(one.label, []).append(one)
    return found


def deciding(result: Result) -> str:
    """Return the metric that ranks the models of a result's store."""
    return main_metric(result.protocol.metrics)


def everywhere(sets: Mapping[str, Mapping[str, Sequence[Result]]]) -> list[str]:
    """Return the models that all data sets have."""
    return [label for label in next(iter(sets.values())) if all(label in its for its in sets.values())]


def mean(results: Sequence[Result]) -> float:
    return float(np.concatenate([one.test[deciding(one)] for one in results]).mean())


def shared_means(sets: Mapping[str, Mapping[str, Sequence[Result]]], common: Sequence[str]) -> np.ndarray:
    """Return the means of models that all data sets have (data sets, models), over the splits that all of them have."""
    rows = []
    for its in sets.values():
        seeds = set.intersection(*({one.seed for one in its[label]} for label in common))
        rows.append([mean([one for one in its[label] if one.seed in seeds]) for label in common])
    return np.array(rows)


def mean_ranks(means: np.ndarray) -> np.ndarray:
    """Return the mean rank of each model, 1 for the best, from means (data sets, models)."""
    return np.asarray(rankdata(-means, axis=1).mean(0))


def critical_difference(models: int, sets: int) -> float:
    """Return Nemenyi's critical difference of mean ranks at 5 % (Demsar, 2006)."""
    q = studentized_range.ppf(0.95, models, np.inf) / np.sqrt(2)
    return float(q * np.sqrt(models * (models + 1) / (6 * sets)))


def table(sets: Mapping[str, Mapping[str, Sequence[Result]]]) -> str:
    """Return the table of models x data sets, by mean rank."""
    common = everywhere(sets)
    ranks = dict(zip(common, mean_ranks(shared_means(sets, common)).tolist(), strict=True)) if common else {}
    labels = dict.fromkeys(label for its in sets.values() for label in its)
    most = {name: max(len(results) for results in its.values()) for name, its in sets.items()}
    heads = [f"[{name}]({name}.md){other_metric(its)}" for name, its in sets.items()]
    lines = [f"| model | {' | '.join(heads)} | rank | rare | fit | energy |", f"|---|{'---:|' * (len(sets) + 4)}"]
    first_mean = {label: next(mean(its[label]) for its in sets.values() if label in its) for label in labels}
    for label in sorted(labels, key=lambda label: (ranks.get(label, np.inf), -first_mean[label])):
        cells = []
        for name, its in sets.items():
            cells.append(cell(its[label], most[name]) if label in its else "")
        first = next(its[label] for its in sets.values() if label in its)
        seconds = float(np.mean([one.fit_seconds for one in first]))
        cells += [f"{ranks[label]:.1f}" if label in ranks else "", f"{rare_share(first):.2f}", f"{seconds:.0f} s"]
        other = " (another library)" if first[0].place == PLACE else ""
        lines.append(f"| `{label}`{other} | {' | '.join([*cells, energy(first)])} |")
    return "\n".join(lines) + "\n"


def cell(results: Sequence[Result], most: int) -> str:
    """Return a mean with the number of splits, if it is below `most`, and the mark of the code."""
    fewer = f"({len(results)})" if len(results) < most else ""
    mark = code_mark(joint_code_state(results), results[0].place)
    return " ".join(filter(None, (f"{100 * mean(results):.2f}", fewer, mark)))


def other_metric(its: Mapping[str, Sequence[Result]]) -> str:
    """Return the metric of a data set after a space, if it is not the usual one."""
    metric = deciding(next(iter(its.values()))[0])
    return "" if metric == MAIN_METRIC else f" {metric}"


def energy(results: Sequence[Result]) -> str:
    """Return the mean watt hours of fits, measured if all of them are, else estimated; empty if nothing is known."""
    measured = [one.energy_joules for one in results if one.energy_joules is not None]
    if len(measured) == len(results):
        return f"{np.mean(measured) / 3600:.3f} m"
    cpu = [one.cpu_seconds for one in results if one.cpu_seconds is not None]
    return f"{np.mean(cpu) * WATTS / 3600:.3f}" if cpu else ""


def rare_share(results: Sequence[Result]) -> float:
    """Return the recall@100 of the least popular group of items divided by that of the most popular one."""
    depth = max(results[0].slices.hits)
    hits = np.sum([one.slices.hits[depth] for one in results], axis=0)
    recall = hits / np.maximum(1, np.sum([one.slices.held_out for one in results], axis=0))
    return float(recall[-1] / recall[0]) if recall[0] else float("nan")


def beyond(found: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the section on coverage, popularity, users with few items and training seeds, from the study's file."""
    text = ["\n## Coverage, popularity, users with few items, training seeds\n", ABOUT_BEYOND]
    for data, its in found.items():
        users, seeds = its["users"], its["seeds"]
        text.append(f"\n### {data}\n")
        head = ("model", "NDCG, pruned", "NDCG, unpruned", "coverage", "Gini", "popularity", "s. d. of seeds")
        text += [f"| {' | '.join(head)} |", f"|---|{'---:|' * (len(head) - 1)}"]
        means = {
            name: its["pruned"].get(name, {}).get(MAIN_METRIC, seeds.get(name, {}).get("0"))
            for name in (*its["pruned"], *seeds)
        }
        for name in sorted(means, key=lambda name: -means[name]):
            pruned, unpruned = its["pruned"].get(name, {}), its["unpruned"].get(name, {})
            cells = [f"{100 * means[name]:.2f}", f"{100 * unpruned[MAIN_METRIC]:.2f}" if unpruned else ""]
            cells += [
                f"{100 * pruned[f'{key}@100']:.1f}" if pruned else "" for key in ("coverage", "gini", "popularity")
            ]
            several = list(seeds.get(name, {}).values())
            cells.append(f"{100 * np.std(several, ddof=1):.2f} ({len(several)})" if len(several) > 1 else "")
            text.append(f"| `{name}` | {' | '.join(cells)} |")
        parts = [
            f"{kind} {one['tested']:,} users, {one['with fewer than five items']:,} of them with fewer than five items"
            for kind, one in users.items()
        ]
        text.append(f"\nTested: {'; '.join(parts)}.\n")
    return text


ABOUT_BEYOND = """
Split 0, lists of 100 items (`python studies/beyond_accuracy.py`). Pruned: users with at least five items, as in all
other tables. Unpruned: the others are kept in training, and tested if they have two items, one of them shown.
The two draw other test users, so differences between both columns are mostly chance.
Coverage: percent of the items that some list has. Gini of how often items are recommended: 0 is equal, 100 is all
lists the same. Popularity: mean percent of the training users who have a recommended item. Seeds: standard deviation
of the pruned NDCG@100 between trainings on the same split with different random numbers (their number in brackets);
closed forms have no random numbers, apart from their search. Networks get other weights on another processor, so
models with networks differ here from split 0 of the tables, by up to a quarter of a point. An empty cell or a
missing model was not measured; the command fills it.
"""


def facts(sets: Mapping[str, Mapping[str, Sequence[Result]]]) -> str:
    """Return the number of splits, their variation, and the smallest difference that a data set can show."""
    lines = ["\n| data set | users tested | splits | between splits, s. d. | smallest detectable difference |"]
    lines.append("|---|---:|---:|---:|---:|")
    for name, its in sets.items():
        most = max(len(results) for results in its.values())
        complete = [label for label in its if len(its[label]) == most]
        first, second, *_ = sorted(complete, key=lambda label: -mean(its[label]))[:2] * 2
        by_seed = {one.seed: one for one in its[first]}
        other = {one.seed: one for one in its[second]}
        seeds = [seed for seed in by_seed if seed in other]
        metric = deciding(its[first][0])
        spread = float(np.std([one.test[metric].mean() for one in its[first]], ddof=1)) if len(its[first]) > 1 else None
        users = np.concatenate([by_seed[seed].users for seed in seeds]) if seeds else np.zeros(0, np.int64)
        least = "–"
        if seeds and first != second:
            gaps = [by_seed[seed].test[metric] - other[seed].test[metric] for seed in seeds]
            least = f"{100 * POWER * clustered_error(users, np.concatenate(gaps)):.2f}"
        shown = "–" if spread is None else f"{100 * spread:.2f}"
        lines.append(f"| {name} | {len(np.unique(users)):,} | {len(its[first])} | {shown} | {least} |")
    note = (
        "\nBetween splits: of the best model on all splits. Smallest detectable difference: of the two best of these "
        "models, found by a paired test four times out of five. –: there is one split.\n"
    )
    return "\n".join(lines) + "\n" + note


def clustered_error(users: np.ndarray, values: np.ndarray) -> float:
    """Return the standard error of the mean of values, whose users may have several."""
    _, own = np.unique(users, return_inverse=True)
    sums = np.bincount(own, values - values.mean())
    return float(np.sqrt((sums**2).sum()) / len(values))


def diagram(ranks: Mapping[str, float], distance: float) -> str:
    """Return a critical-difference diagram as SVG: models by mean rank, and bars over those that may be equal."""
    order = sorted(ranks, key=lambda label: ranks[label])
    low, high, left, width, row = 1.0, float(max(len(order), 2)), 190.0, 420.0, 16.0
    bars = groups([ranks[label] for label in order], distance)
    top = 50.0 + 7 * len(bars)

    def x(rank: float) -> float:
        return left + width * (rank - low) / (high - low)

    half = (len(order) + 1) // 2
    height = top + row * (half + 1)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {left * 2 + width:.0f} {height:.0f}" '
        'font-family="sans-serif" font-size="11">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<path d="M{x(low):.1f} 30H{x(high):.1f}" stroke="black"/>',
        f'<path d="M{x(low):.1f} 12H{x(min(high, low + distance)):.1f}" stroke="black" stroke-width="2"/>',
        f'<text x="{x(min(high, low + distance)) + 6:.1f}" y="16">critical difference {distance:.2f}</text>',
    ]
    for tick in np.unique(np.linspace(low, high, 6).round()):
        parts.append(f'<path d="M{x(tick):.1f} 26V34" stroke="black"/>')
        parts.append(f'<text x="{x(tick):.1f}" y="24" text-anchor="middle">{tick:.0f}</text>')
    for number, (start, stop) in enumerate(bars):
        y = 42 + 7 * number
        parts.append(f'<path d="M{x(start) - 3:.1f} {y}H{x(stop) + 3:.1f}" stroke="#0a6" stroke-width="3"/>')
    for place, label in enumerate(order):
        first = place < half
        height_of = top + row * (place if first else len(order) - 1 - place)
        end, anchor = (left - 10, "end") if first else (left + width + 10, "start")
        parts.append(f'<path d="M{x(ranks[label]):.1f} 30V{height_of:.1f}H{end:.1f}" stroke="#888" fill="none"/>')
        at = f'x="{end + (-4 if first else 4):.1f}" y="{height_of + 4:.1f}"'
        parts.append(f'<text {at} text-anchor="{anchor}">{label} {ranks[label]:.1f}</text>')
    return "\n".join([*parts, "</svg>", ""])


def groups(ranks: Sequence[float], distance: float) -> list[tuple[float, float]]:
    """Return the longest runs of sorted ranks within the distance, without runs inside of others."""
    found: list[tuple[float, float]] = []
    for start in ranks:
        stop = max(rank for rank in ranks if rank - start < distance)
        if stop > start and (not found or stop > found[-1][1]):
            found.append((start, stop))
    return found


if __name__ == "__main__":
    main()
