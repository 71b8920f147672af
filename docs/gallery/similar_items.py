"""Similar items.

The six items that the model finds most similar to each of two films, with their similarity.
"""

from drawing import BLUE, GREEN, Figure, movies, plt, titles

import recfusion as rf


def draw() -> Figure:
    bundle = movies()
    names = titles(bundle)
    shown, axes = plt.subplots(1, 2, figsize=(6.4, 2.6), layout="constrained")
    for axis, (item, colour) in zip(axes, ((1, BLUE), (260, GREEN)), strict=True):
        rows = rf.similar(bundle, item, k=6).to_dicts()
        axis.barh(
            [names[str(row["item"])][:26] for row in rows][::-1],
            [row["similarity"] for row in rows][::-1],
            color=colour,
        )
        axis.set(title=names[str(item)][:24], xlabel="similarity")
        axis.tick_params(axis="y", labelsize=7)
    return shown
