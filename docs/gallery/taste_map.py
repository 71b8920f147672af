"""A map of tastes.

The 400 most popular films of the embedded data in two dimensions: the leading directions of EASE's weights. Films that
the same people like are close to each other.
"""

import numpy as np
from drawing import COLOURS, Figure, figure, movies, titles

GENRES = ("Action", "Romance", "Animation", "Horror", "Documentary")


def draw() -> Figure:
    bundle = movies()
    names, rows = titles(bundle), bundle.items.to_dicts()
    popular = np.argsort([-row["train_count"] for row in rows])[:400]
    weights = np.asarray(bundle.model.weights_)[np.ix_(popular, popular)]  # type: ignore[attr-defined]
    both = (weights + weights.T) / 2
    _, vectors = np.linalg.eigh(both - both.mean(0) - both.mean(1)[:, None] + both.mean())
    x, y = vectors[:, -1], vectors[:, -2]
    shown, axes = figure(6.4, 4.6)
    for genre, colour in zip(GENRES, COLOURS, strict=False):
        has = np.array([genre in str(rows[item]["genres"]).split("|") for item in popular])
        axes.scatter(x[has], y[has], s=10, color=colour, label=genre, alpha=0.7)
    for place in np.argsort(-(np.abs(x) + np.abs(y)))[:14]:
        axes.annotate(names[str(rows[popular[place]]["item"])][:22], (x[place], y[place]), fontsize=6)
    axes.set(xticks=[], yticks=[])
    axes.legend(frameon=False, fontsize=8)
    return shown
