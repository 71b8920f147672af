"""The long tail.

The share of all interactions that the most popular items have, for the embedded films and the embedded shop. The
diagonal is a catalogue in which all items are equally popular.
"""

import numpy as np
from drawing import BLUE, GREY, ORANGE, Figure, figure

import recfusion as rf


def draw() -> Figure:
    shown, axes = figure()
    for name, colour in (("ml-latest-small", BLUE), ("online-retail", ORANGE)):
        counts = np.sort(np.asarray(rf.load(name).matrix.sum(0)).ravel())[::-1]
        axes.plot(np.linspace(0, 100, len(counts)), 100 * counts.cumsum() / counts.sum(), color=colour, label=name)
    axes.plot([0, 100], [0, 100], color=GREY, lw=1)
    axes.set(xlabel="items, most popular first, percent", ylabel="share of interactions, percent")
    axes.legend(frameon=False)
    return shown
