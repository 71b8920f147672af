"""Explanations.

Five recommendations for a history of three films. Each bar is the score, divided into the contributions of the films
in the history.
"""

import numpy as np
from drawing import COLOURS, GREY, Figure, figure, movies, titles

import recfusion as rf

HISTORY = [318, 356, 296]


def draw() -> Figure:
    bundle = movies()
    names = titles(bundle)
    rows = rf.recommend(bundle, {"somebody": HISTORY}, k=5, why=3).to_frame().to_dicts()
    shown, axes = figure(6.4, 2.9)
    for place, row in enumerate(rows):
        parts = {one["items"][0]: float(one["weight"]) for one in row["because"]}
        left = 0.0
        for item, colour in zip(map(str, HISTORY), COLOURS, strict=False):
            share = max(parts.get(item, 0.0), 0.0)
            axes.barh(-place, share, left=left, color=colour, label=names[item] if not place else None)
            left += share
        axes.barh(-place, max(float(row["score"]) - left, 0), left=left, color=GREY, alpha=0.4)
    axes.set(yticks=-np.arange(len(rows)), yticklabels=[names[str(row["item"])] for row in rows], xlabel="score")
    axes.legend(frameon=False, title="in the history", loc="lower right")
    axes.set_xlim(0, 1.35 * max(float(row["score"]) for row in rows))
    return shown
