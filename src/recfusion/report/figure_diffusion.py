"""The paper's Figure 2: for each option the forward noise on top and the learned way back below, step by step."""

from typing import TYPE_CHECKING

import numpy as np

from recfusion.experiments.diffusion_figure import Chains, DiffusionFigure, activity
from recfusion.report.figures import QUIET, Canvas

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# In pixels: with 100 items and 30 users, an entry is 3 wide and 6 high, so that none is smeared.
_WIDTH, _HEIGHT = 300, 180
_GAP, _NUMBER = 18, 48
_LEFT, _RIGHT, _HEAD, _FOOT = 350, 190, 190, 20
_TITLE = 84
_BLOCK = _TITLE + 2 * (_HEIGHT + _NUMBER) + 8


def draw_diffusion(shown: DiffusionFigure) -> "Figure":
    """Return the figure of both chains of every option; columns are the steps t = 0..T."""
    n_steps, n_users, n_items = shown.chains[0].forward.shape
    canvas = Canvas(width=_x(n_steps) - _GAP + _RIGHT, height=_HEAD + len(shown.chains) * _BLOCK + _FOOT)
    canvas.text(36, 46, f"Binomial diffusion on {shown.name}", size=15, bold=True)
    explained = (
        f"Each picture shows {n_users} test users (rows, the most active on top) and the {n_items} most popular items "
        f"(columns, from the left).  T = {n_steps - 1}.  One network for each option, trained for {shown.epochs} "
        f"epoch{'s' * (shown.epochs != 1)} on the training users."
    )
    canvas.text(36, 96, explained, size=9.5, colour=QUIET)
    for t in range(n_steps):
        remark = {0: " (data)", n_steps - 1: " (most noise)"}.get(t, "")
        canvas.text(_x(t) + _WIDTH / 2, _HEAD - 34, f"$t = {t}${remark}", size=10.5, align="center")
    for number, chains in enumerate(shown.chains):
        _draw_option(canvas, chains, _HEAD + number * _BLOCK)
    _draw_scale(canvas, canvas.width - _RIGHT + 40, _HEAD + _TITLE, canvas.height - _FOOT - _NUMBER - 8)
    return canvas.figure


def _draw_option(canvas: Canvas, chains: Chains, top: float) -> None:
    option = chains.option
    canvas.line(36, top, _x(len(chains.forward)) - _GAP, top)
    canvas.text(36, top + 46, f"({option.name}) {option.title}", size=12, bold=True)
    canvas.text(_LEFT + 90, top + 46, option.remark, size=10, colour=QUIET)
    rows = (
        (chains.forward, "forward  →", r"$q(x^t \mid x^{t-1})$"),
        (chains.reverse, "←  learned reverse", r"$p_\theta(x^{t-1} \mid x^t)$"),
    )
    for number, (chain, name, formula) in enumerate(rows):
        y = top + _TITLE + number * (_HEIGHT + _NUMBER)
        canvas.text(_LEFT - 22, y + 70, name, size=11, align="right")
        canvas.text(_LEFT - 22, y + 110, formula, size=9.5, colour=QUIET, align="right")
        for t, (entries, mean) in enumerate(zip(chain, activity(chain), strict=True)):
            canvas.image(_x(t), y, _WIDTH, _HEIGHT, entries)
            canvas.text(
                _x(t) + _WIDTH / 2, y + _HEIGHT + 18, f"mean {mean:.3f}", size=7.5, colour=QUIET, align="center"
            )


def _draw_scale(canvas: Canvas, x: float, top: float, bottom: float) -> None:
    """Draw the one colour bar."""
    canvas.image(x, top, 26, bottom - top, np.linspace(1, 0, 256, dtype=np.float32)[:, None])
    for value in (0.0, 0.5, 1.0):
        y = bottom - value * (bottom - top)
        canvas.line(x + 26, y, x + 34, y, colour=QUIET)
        canvas.text(x + 42, y, f"{value:g}", size=9.5)
    middle = (top + bottom) / 2
    canvas.text(
        x + 110, middle, "forward: $x^t$, 0 or 1;   reverse: probability of a 1", size=10, align="center", turned=True
    )


def _x(t: int) -> float:
    return _LEFT + t * (_WIDTH + _GAP)
