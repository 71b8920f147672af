"""Accuracy against cost.

Every model on MovieLens 1M: NDCG@100 and seconds of a fit, means of the splits in results/ml1m. The machine was
shared, so seconds are upper limits.
"""

from drawing import BLUE, GREY, Figure, comparison, figure

NAMED = {
    "thinning",
    "thinning-fast",
    "thinning-linear",
    "ease",
    "ease-dan",
    "mixture",
    "recvae",
    "recfusion",
    "slim",
    "ials",
}


def draw() -> Figure:
    shown, axes = figure(6.4, 4.2)
    for label, model in comparison().models.items():
        accuracy = 100 * model.mean("ndcg@100")
        if accuracy < 39:
            continue
        axes.scatter(model.fit_seconds, accuracy, s=18, color=BLUE if label in NAMED else GREY, zorder=2)
        if label in NAMED:
            axes.annotate(label, (model.fit_seconds, accuracy), (4, 3), textcoords="offset points", fontsize=8)
    axes.set(xscale="log", xlabel="seconds of a fit (log scale)", ylabel="NDCG@100, percent")
    axes.grid(alpha=0.3)
    return shown
