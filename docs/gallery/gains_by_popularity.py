"""Gains by popularity.

The share of held-out items that are found in the first places, in groups of items from rare to popular (MovieLens 1M).
"""

import numpy as np
from drawing import COLOURS, Figure, comparison, figure

SHOWN = ("thinning", "ease", "recvae", "popularity")


def draw() -> Figure:
    groups = comparison().item_groups
    shown, axes = figure()
    for number, (label, colour) in enumerate(zip(SHOWN, COLOURS, strict=False)):
        metric = list(groups.models[label])[-1]
        found = 100 * np.array(groups.models[label][metric], float)
        axes.bar(np.arange(len(found)) + 0.2 * (number - 1.5), found, 0.18, color=colour, label=label)
    axes.set(xticks=range(len(groups.groups)), xticklabels=groups.groups, ylabel=f"{metric}, percent")
    axes.legend(frameon=False)
    return shown
