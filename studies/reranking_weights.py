"""The effect and the cost of each re-ranking weight: its own measure and NDCG@100 at eleven positions.

    RESULTS=studies/results/reranking_weights.json
    python studies/reranking_weights.py --shop online-retail.csv.gz --products products.csv --out $RESULTS
    python studies/reranking_weights.py --draw $RESULTS --figure docs/images/reranking.png

`thinning-linear`, split 0, the test users of ml-1m and ml-latest-small and, where its files are named, of a shop (see
examples/shop_products.py). A list's own measures are taken over its first ten places:

    adventurousness  distance from the history: 1 - the largest cosine of co-occurrence in training with an item of it;
                     the share of places with one of the hundred best-known items; and the spread of a list, the mean
                     of 1 - cosine over its pairs
    popularity       mean of log(1 + users of the item)
    wish             share of items that have the wished value, the commonest one
    shares           - KL(target, list), the target being 60/30/10 % of the three commonest values
    diversity        the spread of a list
"""

import argparse
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import spearmanr

import recfusion as rf
from recfusion.core.arrays import Csr, FloatArray, IntArray, column_counts
from recfusion.core.files import write_json
from recfusion.data.options import Preparation, Source
from recfusion.data.split import Fold, split
from recfusion.evaluation.evaluate import batches
from recfusion.evaluation.metrics import Values, judge, per_user
from recfusion.inference.histories import Histories
from recfusion.inference.lists import ListMaker
from recfusion.inference.request import Reranking

PLACES = 10
STEPS = np.linspace(0, 1, 11)


@dataclass(frozen=True)
class Scene:
    """A model, its test users, and what its lists are measured with."""

    bundle: rf.Bundle
    test: Fold
    column: str  # of categories
    cosine: FloatArray  # (items, items)
    counts: IntArray


def scene(source: str | Source, preparation: Preparation, column: str) -> Scene:
    """Fit the model on split 0 and keep its test users."""
    data = rf.load(source, preparation)
    bundle = rf.train("thinning-linear", data)
    parts = split(data, bundle.protocol.plan, seed=0)
    counts = column_counts(parts.train)
    root = np.sqrt(np.maximum(counts, 1)).astype(np.float32)
    cosine = (parts.train.T @ parts.train).toarray() / np.outer(root, root)
    return Scene(bundle, parts.test, column, cosine, counts)


def lists(scene: Scene, controls: Reranking, k: int, users: int | None = None) -> IntArray:
    """Return the test users' lists."""
    history = scene.test.history[:users]
    maker = ListMaker.of(scene.bundle, None, controls)
    return np.vstack([maker.lists(Histories(history[rows]), k).items for rows in batches(*history.shape)])


def distance(scene: Scene, items: IntArray, history: Csr) -> float:
    near = [
        scene.cosine[own][:, history.indices[history.indptr[u] : history.indptr[u + 1]]].max(1).mean()
        for u, own in enumerate(items)
    ]
    return 1 - float(np.mean(near))


def spread(scene: Scene, items: IntArray) -> float:
    pairs = ~np.eye(items.shape[1], dtype=bool)
    return 1 - float(np.mean([scene.cosine[np.ix_(own, own)][pairs].mean() for own in items]))


def control_settings(
    scene: Scene,
) -> dict[str, tuple[Values, Callable[[float], Reranking], Callable[[IntArray], dict[str, float]]]]:
    """Return each control's positions, what it is set to there, and its own measures of lists."""
    table = scene.bundle.categories(scene.column)
    order = np.argsort(-table.matrix.T @ scene.counts)
    names = [table.names[place] for place in order[:3]]
    target = np.array([0.6, 0.3, 0.1])
    chance = table.chances[:, order[:3]].toarray()
    both = np.linspace(-1, 1, 11)

    def divergence(items: IntArray) -> dict[str, float]:
        q = chance[items].mean(1)  # (users, 3)
        return {"minus divergence": -float(np.mean(np.sum(target * np.log(target / (0.99 * q + 0.01 * target)), 1)))}

    wished = chance[:, 0] > 0
    history = scene.test.history
    best_known = np.argsort(-scene.counts)[:100]
    return {
        "adventurousness": (
            STEPS,
            lambda value: Reranking(adventurousness=value),
            lambda items: {
                "distance from the history": distance(scene, items, history),
                "share of the hundred best-known": float(np.isin(items, best_known).mean()),
                "spread": spread(scene, items),
            },
        ),
        "popularity": (
            both,
            lambda value: Reranking(popularity=value),
            lambda items: {"mean log users": float(np.log1p(scene.counts[items]).mean())},
        ),
        f"wish for {names[0]}": (
            both,
            lambda value: Reranking(wish={scene.column: {names[0]: value}}),
            lambda items: {"share of the wished": float(wished[items].mean())},
        ),
        f"shares 60/30/10 of {', '.join(names)}": (
            STEPS,
            lambda value: Reranking(shares={scene.column: dict(zip(names, target, strict=True))}, calibration=value),
            divergence,
        ),
        "diversity": (STEPS, lambda value: Reranking(diversity=value), lambda items: {"spread": spread(scene, items)}),
    }


def doses(scene: Scene) -> dict[str, Any]:
    """Return measures, NDCG@100 and the rank correlation of each control."""
    found: dict[str, Any] = {}
    popularity = np.zeros(len(scene.counts))
    for name, (positions, setting, measure) in control_settings(scene).items():
        rows = []
        for value in positions.tolist():
            items = lists(scene, setting(value), 100)
            ndcg = per_user(judge(items, scene.test.held_out, popularity), ["ndcg@100"])["ndcg@100"].mean()
            # A list of ten is chosen for its own length: a greedy choice of a hundred begins otherwise.
            rows.append(
                {"position": value, "ndcg@100": 100 * float(ndcg), **measure(lists(scene, setting(value), PLACES))}
            )
        first = next(key for key in rows[0] if key not in ("position", "ndcg@100"))
        rank = float(spearmanr(positions, [row[first] for row in rows]).statistic)
        found[name] = {"measure": first, "spearman": rank, "rows": rows}
        print(
            f"  {name}: Spearman {rank:.3f}, NDCG@100 {rows[0]['ndcg@100']:.2f} -> {rows[-1]['ndcg@100']:.2f}",
            flush=True,
        )
    return found


# One colour, marker and line for each data set, so that the lines are told apart without colours, too.
LINES = (("#0072b2", "o", "-"), ("#d55e00", "s", "--"), ("#007a5e", "^", ":"))


def draw(document: dict[str, Any], path: Path) -> None:
    """Draw a column per control, the effect above the cost, and a line per data set."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    sets = document["sets"]
    figure, axes = plt.subplots(2, 5, figsize=(15, 5.6), sharex="col", layout="constrained")
    for (data, controls), (colour, marker, line) in zip(sets.items(), LINES, strict=False):
        for place, (name, dose) in enumerate(controls.items()):
            at = [point["position"] for point in dose["rows"]]
            own = [point[dose["measure"]] for point in dose["rows"]]
            cost = np.array([point["ndcg@100"] for point in dose["rows"]])
            best = cost[np.argmin(np.abs(at))] if "shares" not in name else cost[0]
            for axis, values in zip(axes[:, place], (own, 100 * cost / best), strict=True):
                axis.plot(at, values, color=colour, marker=marker, ms=4, ls=line, lw=1.4, label=data)
            axes[0, place].set_title(f"{name.partition(' ')[0]}: {dose['measure']}", fontsize=9.5)
            axes[1, place].set_title("NDCG@100, % of that at the default", fontsize=9.5)
            axes[1, place].set_ylim(0, 105)
            axes[1, place].set_xlabel("position of the control", fontsize=9)
    for axis in axes.flat:
        axis.grid(color="#dddddd", lw=0.6)
        axis.spines[["top", "right"]].set_visible(False)
        axis.tick_params(labelsize=8)
    axes[0, 0].legend(fontsize=8.5, frameon=False)
    figure.savefig(path, dpi=110)


def main() -> None:
    """Measure, or draw what was measured."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--shop", help="invoices of the Online Retail data")
    parser.add_argument("--products", help="the products file that examples/shop_products.py makes")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--draw", type=Path, help="a document that was measured before")
    parser.add_argument("--figure", type=Path)
    arguments = parser.parse_args()
    if arguments.draw:
        draw(json.loads(arguments.draw.read_text()), arguments.figure)
        return
    scenes: dict[str, tuple[str | Source, Preparation, str]] = {
        "ml-latest-small": ("ml-latest-small", Preparation(), "genres"),
        "ml-1m": ("ml-1m", Preparation(), "genres"),
    }
    if arguments.shop:
        shop = Source(
            data=arguments.shop,
            user="CustomerID",
            item="StockCode",
            rating="none",
            items=arguments.products,
            max_bad_share=0.3,
        )
        scenes["online-retail"] = (shop, Preparation(), "category")
    document: dict[str, Any] = {"model": "thinning-linear", "split": 0, "sets": {}}
    for name, (source, preparation, column) in scenes.items():
        print(name, flush=True)
        document["sets"][name] = doses(scene(source, preparation, column))
        if arguments.out:
            write_json(arguments.out, document)


if __name__ == "__main__":
    main()
