"""Scaling curves.

CPU seconds and peak memory of a fit on generated data of growing size, from benchmarks/scale.json.
"""

from drawing import COLOURS, Figure, document, plt

SHOWN = ("thinning-linear", "thinning-local", "ials", "implicit als", "implicit cosine")


def draw() -> Figure:
    rows = document("benchmarks/scale.json")["rows"]
    shown, axes = plt.subplots(1, 2, figsize=(6.4, 3.2), layout="constrained")
    for label, colour in zip(SHOWN, COLOURS, strict=False):
        its = [row for row in rows if row["model"] == label]
        size = [row["interactions"] for row in its]
        axes[0].plot(size, [row["cpu_seconds"] for row in its], marker="o", ms=3, color=colour, label=label)
        axes[1].plot(size, [row["peak_bytes"] / 1e9 for row in its], marker="o", ms=3, color=colour)
    axes[0].set(xscale="log", yscale="log", xlabel="interactions", ylabel="CPU seconds")
    axes[1].set(xscale="log", yscale="log", xlabel="interactions", ylabel="peak memory, GB")
    axes[0].legend(frameon=False, fontsize=7)
    return shown
