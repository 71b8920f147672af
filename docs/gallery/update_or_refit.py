"""Updates and refits.

CPU seconds of an update and of a refit with the same settings: over the users of MovieLens 1M that are forgotten at
once, and over the items of generated shops, one user forgotten, from benchmarks/updates.json.
"""

from drawing import BLUE, ORANGE, Figure, document, plt

PANELS = (
    ("over_users", "users", "users forgotten at once (thinning-linear)"),
    ("over_items", "items", "items (thinning-linear)"),
    ("over_local", "items", "items (thinning-local)"),
)


def draw() -> Figure:
    stored = document("benchmarks/updates.json")
    shown, axes = plt.subplots(1, 3, figsize=(9.0, 3.2), layout="constrained", sharey=True)
    for panel, (part, key, label) in zip(axes, PANELS, strict=True):
        rows = [row for row in stored[part] if "update" in row and row.get("data") != "gowalla"]
        for name, marker, colour in (("refit", "s", ORANGE), ("update", "o", BLUE)):
            its = [row for row in rows if row[name] is not None]
            panel.plot(
                [row[key] for row in its], [row[name] for row in its], marker=marker, ms=3, color=colour, label=name
            )
        panel.set(xscale="log", yscale="log", xlabel=label)
        panel.grid(alpha=0.3)
    axes[0].set_ylabel("CPU seconds")
    axes[0].legend(frameon=False, fontsize=7)
    return shown
