"""`recfusion figure`: draws the paper's figures and learned noise schedules."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

from matplotlib.figure import Figure
from typer import Option

from recfusion.cli.options import DataChoice, SeedOption, data_options
from recfusion.cli.output import note, progress
from recfusion.core.errors import InputError
from recfusion.data.options import SignalChoice
from recfusion.paper.architecture_figure import architecture_figure
from recfusion.report.figures import check_figure_path, save_figure

OutOption = Annotated[Path, Option("--out", help="Output file: .png or .svg.")]
EpochsOption = Annotated[int, Option(help="Training epochs of each network.", min=1)]


@data_options
def figure_diffusion(
    choice: DataChoice, path: OutOption = Path("figure.png"), epochs: EpochsOption = 20, seed: SeedOption = 0
) -> None:
    """Draw binary noise on real users and its removal by a trained network: the paper's Figure 2."""
    from recfusion.paper.diffusion_figure import diffusion_figure  # imports torch

    _draw(diffusion_figure, choice, path, epochs, seed)


@data_options
def figure_schedule(
    choice: DataChoice, path: OutOption = Path("figure.png"), epochs: EpochsOption = 60, seed: SeedOption = 0
) -> None:
    """Draw learned noise rates during training, and the bound with learned and with fixed rates."""
    from recfusion.paper.schedule_figure import schedule_figure  # imports torch

    _draw(schedule_figure, choice, path, epochs, seed)


def figure_architecture(path: OutOption = Path("figure.png")) -> None:
    """Draw the RecFusion family and the differences between its variants: the paper's Figure 1."""
    check_figure_path(path)
    note(f"Figure: {save_figure(architecture_figure(), path)}")


def _draw(draw: Callable[..., Figure], choice: DataChoice, path: Path, epochs: int, seed: int) -> None:
    """Draw and save a figure; raise before any data is read if it cannot be written, or if signals are chosen."""
    check_figure_path(path)
    if choice.used != SignalChoice():
        raise InputError("Expected no --signals: the figure shows interactions only, so leave them out.", "signals")
    figure = draw(choice.load(), choice.plan, epochs=epochs, seed=seed, progress=progress)
    note(f"Figure: {save_figure(figure, path)}")
