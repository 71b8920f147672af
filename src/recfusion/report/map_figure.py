"""The map of a model's items as a figure: by category, or by how well the model finds them."""

from base64 import b64encode
from collections.abc import Sequence
from io import BytesIO

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.spatial import cKDTree

from recfusion.core.arrays import FloatArray, IntArray, column_counts
from recfusion.core.errors import InputError, choices
from recfusion.data.options import Source
from recfusion.data.protocol import Protocol
from recfusion.experiments.column_report import found_items
from recfusion.experiments.train import rebuild_split
from recfusion.inference.bundle import COUNT, Bundle
from recfusion.inference.item_layout import Layout
from recfusion.inference.new_items import without_new
from recfusion.report.figures import DPI, FAINT, INK, QUIET

COLOURS = ("#0068a8", "#d98200", "#00856a", "#b3579a", "#c0392b", "#3aa3d8", "#8a8000")  # as on the page
_K = 20  # length of the lists in which items are found
_NEAR = 40  # items around a place that share its accuracy
_LABELS, _TRIED, _WIDEST = 60, 600, 26  # titles, items tried for them, and characters of a title


def item_accuracy(bundle: Bundle, source: Source | None = None) -> FloatArray:
    """Return for each item of the map the share of held-out interactions found in the first 20, around its place.

    Hits and held-out items of the test users are summed over the 40 nearest items; NaN if nobody held one out.
    """
    layout, parts = _layout(bundle), rebuild_split(bundle, source)
    n_items, held_out = len(bundle.items), parts.test.held_out.indices
    hits = np.bincount(held_out[found_items(without_new(bundle).model, parts, _K)], minlength=n_items)
    counts = np.bincount(held_out, minlength=n_items)
    near = cKDTree(layout.places).query(layout.places, min(_NEAR, len(layout.items)))[1].reshape(len(layout.items), -1)
    found, wanted = (values[layout.items][near].sum(1) for values in (hits, counts))
    return np.where(wanted > 0, found / np.maximum(wanted, 1), np.nan)


def draw_map(bundle: Bundle, column: str | None = None, accuracy: FloatArray | None = None) -> Figure:
    """Draw the map of the items: size is popularity, colour a category of `column` or, if given, the accuracy."""
    layout = _layout(bundle)
    places, counts = layout.places, bundle.counts[layout.items]
    logs = np.log1p(counts)
    sizes = 3 + 55 * ((logs - logs.min()) / max(float(np.ptp(logs)), 1e-12)) ** 4
    figure = Figure(figsize=(10, 8.6), dpi=DPI, facecolor="white", layout="constrained")
    axes = figure.subplots()
    axes.set_axis_off()
    axes.set_aspect("equal")
    axes.set(xlim=(-0.02, 1.02), ylim=(1.02, -0.02))
    order = np.argsort(-counts, kind="stable")
    if accuracy is not None:
        dots = axes.scatter(
            places[order, 0], places[order, 1], s=sizes[order], c=accuracy[order], cmap="viridis", vmin=0, linewidths=0
        )
        bar = figure.colorbar(dots, ax=axes, shrink=0.5, pad=0.01, format=lambda value, _: f"{100 * value:.0f} %")
        bar.outline.set_visible(False)
        bar.set_label(f"held-out items found in the first {_K}, around each place", size=9, color=INK)
        bar.ax.tick_params(labelsize=8, labelcolor=INK, color=QUIET, length=3)
    else:
        _draw_categories(axes, bundle, layout.items, places, sizes, column)
    _write_titles(axes, [bundle.names[item][1] for item in layout.items.tolist()], places, order)
    title = f"{bundle.name} on {bundle.protocol.name}: {len(layout.items):,} items"
    axes.set_title(title, fontsize=12, color=INK, loc="left", parse_math=False)
    return figure


def accuracy_map(bundle: Bundle, protocol: Protocol) -> str:
    """Return the map by accuracy as the address of an image; raise if the model was trained under another protocol."""
    if bundle.protocol.hash != protocol.hash:
        raise InputError(
            f"Expected a model trained under the protocol {protocol.hash} of the results, got one of "
            f"{bundle.protocol.hash}: train it on the same data.",
            "map",
        )
    buffer = BytesIO()
    draw_map(bundle, accuracy=item_accuracy(bundle)).savefig(buffer, format="png", dpi=130)
    return f"data:image/png;base64,{b64encode(buffer.getvalue()).decode('ascii')}"


def _layout(bundle: Bundle) -> Layout:
    layout = bundle.layout
    if layout is None:
        raise InputError("Expected a model folder with a map, got one of an older version: train the model again.")
    if not len(layout.items):
        raise InputError(f"The model {bundle.name} finds no items similar, so there is no map of them: use another.")
    return layout


def _draw_categories(
    axes: Axes, bundle: Bundle, items: IntArray, places: FloatArray, sizes: FloatArray, column: str | None
) -> None:
    """Draw the dots in the colours of the most frequent values; an item with several has the rarest of them."""
    if column is not None and column not in bundle.items.columns:
        raise choices("column of the item table", column, bundle.items.columns, "column")
    column = column or _category_column(bundle)
    groups = [("other" if column else "items", np.ones(len(items), bool), FAINT if column else COLOURS[0])]
    if column is not None:
        categories = bundle.categories(column)
        has = categories.matrix[items]
        frequent = np.argsort(-column_counts(has), kind="stable")[: len(COLOURS)]
        groups += [
            (categories.names[number], has[:, [number]].toarray()[:, 0] > 0, colour)
            for number, colour in zip(frequent.tolist(), COLOURS, strict=False)
        ]
    free = np.ones(len(items), bool)
    for name, inside, colour in reversed(groups):
        chosen = inside & free
        free &= ~chosen
        if chosen.any():
            axes.scatter(
                places[chosen, 0], places[chosen, 1], s=sizes[chosen], c=colour, alpha=0.75, linewidths=0, label=name
            )
    handles, names = axes.get_legend_handles_labels()
    shown = axes.legend(handles[::-1], names[::-1], loc="upper right", fontsize=8, frameon=False, labelcolor=INK)
    for handle in shown.legend_handles:
        handle.set_sizes([30])  # type: ignore[union-attr]


def _category_column(bundle: Bundle) -> str | None:
    """Return the first column with 2 to 100 categories, fewer than half as many as items; None if there is none."""
    for name in bundle.items.columns:
        if name in ("item", COUNT, *bundle.roles.values()) or bundle.items[name].dtype.is_numeric():
            continue
        try:
            if 2 <= len(bundle.categories(name).names) <= min(100, len(bundle.items) // 2):
                return name
        except InputError:
            continue
    return None


def _write_titles(axes: Axes, titles: Sequence[str], places: FloatArray, order: IntArray) -> None:
    """Write titles that do not overlap, the most popular items first; sizes are estimated from the characters."""
    boxes: list[tuple[float, float, float, float]] = []
    for place in order[:_TRIED].tolist():
        text = titles[place] if len(titles[place]) <= _WIDEST else f"{titles[place][: _WIDEST - 1]}…"
        x, y = places[place].tolist()
        box = (x, y - 0.011, x + 0.012 + 0.0082 * len(text), y + 0.011)
        if box[2] > 1.02 or any(box[0] < b[2] and b[0] < box[2] and box[1] < b[3] and b[1] < box[3] for b in boxes):
            continue
        boxes.append(box)
        axes.text(x + 0.009, y, text, fontsize=6.5, color=INK, va="center", parse_math=False)
        if len(boxes) == _LABELS:
            return
