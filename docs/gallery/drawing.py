"""Colours, sizes and data that the figures of the gallery share."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import recfusion as rf

__all__ = ["Axes", "Figure", "comparison", "document", "figure", "movies", "plt", "titles"]
__all__ += ["BLUE", "COLOURS", "GREEN", "GREY", "ORANGE", "RED", "ROOT"]

ROOT = Path(__file__).parents[2]
BLUE, ORANGE, GREEN, RED, GREY = "#1f5f99", "#c2570c", "#2a7f4f", "#a3262a", "#777777"
COLOURS = (BLUE, ORANGE, GREEN, RED, "#6a4c93", GREY)
mpl.rcParams.update({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False, "axes.titlesize": 10})


def figure(width: float = 6.4, height: float = 3.6) -> tuple[Figure, Axes]:
    """Return a figure with one pair of axes."""
    return plt.subplots(figsize=(width, height), layout="constrained")


@cache
def comparison(store: str = "ml1m", reference: str = "ease") -> Any:
    """Return the comparison of a store in results/."""
    return rf.Comparison.of(rf.read_results(ROOT / "results" / f"{store}.jsonl"), reference=reference)


def document(path: str) -> Any:
    """Return a JSON file of the repository."""
    return json.loads((ROOT / path).read_text(encoding="utf-8"))


@cache
def movies() -> rf.Bundle:
    """Return EASE on the embedded movie ratings."""
    return rf.train(rf.EASE(l2=200.0), rf.load("ml-latest-small"), all_users=True)


def titles(bundle: rf.Bundle) -> dict[str, str]:
    """Return item id -> title without the year."""
    return {str(row["item"]): str(row["title"]).rpartition(" (")[0] for row in bundle.items.iter_rows(named=True)}
