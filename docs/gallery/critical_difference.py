"""Critical-difference diagram.

Mean ranks by NDCG@100 over five data sets. The bar is the critical difference of Nemenyi's test at 5 percent: models
below it do not differ significantly from the best one. With five data sets it is wide.
"""

import numpy as np
from drawing import BLUE, GREY, Figure, comparison, figure
from scipy.stats import rankdata, studentized_range

SETS = ("ml1m", "ml-100k", "ml-latest-small", "online-retail", "lastfm-2k")
SHOWN = ("thinning", "thinning-fast", "thinning-linear", "ease", "edlae", "rdlae", "ease-dan", "elsa")


def draw() -> Figure:
    tables = [comparison(name).models for name in SETS]
    labels = [label for label in SHOWN if all(label in table for table in tables)]
    scores = np.array([[table[label].mean("ndcg@100") for label in labels] for table in tables])
    ranks = rankdata(-scores, axis=1).mean(0)
    k, n = len(labels), len(SETS)
    critical = studentized_range.ppf(0.95, k, np.inf) / np.sqrt(2) * np.sqrt(k * (k + 1) / (6 * n))
    order = np.argsort(ranks)
    shown, axes = figure(6.4, 2.8)
    for place, number in enumerate(order):
        axes.plot([ranks[number]] * 2, [0, -place - 1], color=GREY, lw=1)
        axes.text(ranks[number] + 0.06, -place - 1, f"{labels[number]} ({ranks[number]:.1f})", va="center")
    axes.plot([ranks[order[0]], ranks[order[0]] + critical], [0.6, 0.6], color=BLUE, lw=4, solid_capstyle="butt")
    axes.text(ranks[order[0]], 0.9, f"critical difference {critical:.1f}", color=BLUE)
    axes.axhline(0, color="black", lw=1)
    axes.set(xlim=(0.8, k + 1.5), ylim=(-k - 1, 2), yticks=[], xlabel="mean rank (1 is best)")
    axes.spines["left"].set_visible(False)
    return shown
