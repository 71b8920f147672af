"""Gains by activity.

The lead over EASE on MovieLens 1M in four groups of test users, from short histories to long ones.
"""

import numpy as np
from drawing import COLOURS, Figure, comparison, figure

SHOWN = ("thinning", "mixture", "ease-dan")


def draw() -> Figure:
    groups = comparison().activity
    shown, axes = figure()
    base = np.array(groups.models["ease"]["ndcg@100"], float)
    for number, (label, colour) in enumerate(zip(SHOWN, COLOURS, strict=False)):
        lead = 100 * (np.array(groups.models[label]["ndcg@100"], float) - base)
        axes.bar(np.arange(len(base)) + 0.27 * (number - 1), lead, 0.25, color=colour, label=label)
    axes.axhline(0, color="black", lw=1)
    names = [f"{low} to {high}" for low, high in groups.sizes]
    axes.set(xticks=range(len(names)), xticklabels=names, xlabel="items in the history", ylabel="NDCG@100 minus EASE")
    axes.legend(frameon=False)
    return shown
