"""`recfusion figure`: draws the paper's figures."""

from pathlib import Path
from typing import Annotated

from typer import Option

from recfusion.cli.options import DataChoice, SeedOption, data_options
from recfusion.cli.output import note, progress
from recfusion.core.errors import InputError
from recfusion.data.options import SignalChoice
from recfusion.paper.architecture_figure import architecture_figure
from recfusion.report.figures import check_figure_path, save_figure

OutOption = Annotated[Path, Option("--out", help="Output file: .png or .svg.")]


@data_options
def figure_diffusion(
    choice: DataChoice,
    path: OutOption = Path("figure.png"),
    epochs: Annotated[int, Option(help="Training epochs of each network.", min=1)] = 20,
    seed: SeedOption = 0,
) -> None:
    """Draw binary noise on real users and its removal by a trained network: the paper's Figure 2."""
    from recfusion.paper.diffusion_figure import diffusion_figure  # imports torch

    check_figure_path(path)  # before any data is read
    if choice.used != SignalChoice():
        raise InputError("Expected no --signals: the figure shows interactions only, so leave them out.", "signals")
    figure = diffusion_figure(choice.load(), choice.plan, epochs=epochs, seed=seed, progress=progress)
    note(f"Figure: {save_figure(figure, path)}")


def figure_architecture(path: OutOption = Path("figure.png")) -> None:
    """Draw the pipeline of the RecFusion family: the paper's Figure 1."""
    check_figure_path(path)
    note(f"Figure: {save_figure(architecture_figure(), path)}")
