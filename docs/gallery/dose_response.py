"""Dose and response of re-ranking.

Two re-ranking weights from none to full strength on the embedded films: the mean popularity of the list, and the mean
similarity of its items. Zero is the plain list.
"""

import numpy as np
from drawing import BLUE, ORANGE, Figure, movies, plt

import recfusion as rf

HISTORIES = {f"user {n}": [318, 356, 296, *((1, 260, 480), (527, 593, 608), (50, 47, 32))[n]] for n in range(3)}


def _lists(**weights: float) -> list[list[int]]:
    bundle = movies()
    rows = {str(item): place for place, item in enumerate(bundle.items["item"])}
    frame = rf.recommend(bundle, HISTORIES, k=20, reranking=rf.Reranking(**weights)).to_frame()
    return [[rows[str(item)] for item in frame.filter(user=user)["item"]] for user in HISTORIES]


def draw() -> Figure:
    bundle = movies()
    counts = bundle.items["train_count"].to_numpy()
    weights = np.asarray(bundle.model.weights_)  # type: ignore[attr-defined]
    shown, axes = plt.subplots(1, 2, figsize=(6.4, 3.0), layout="constrained")
    doses = np.linspace(-1, 1, 9)
    axes[0].plot(
        doses, [np.mean([counts[one].mean() for one in _lists(popularity=dose)]) for dose in doses], "o-", color=BLUE
    )
    axes[0].set(xlabel="popularity", ylabel="users per recommended item")
    doses = np.linspace(0, 1, 6)
    near = [np.mean([np.abs(weights[np.ix_(one, one)]).mean() for one in _lists(diversity=dose)]) for dose in doses]
    axes[1].plot(doses, near, "o-", color=ORANGE)
    axes[1].set(xlabel="diversity", ylabel="mean weight between items of a list")
    return shown
