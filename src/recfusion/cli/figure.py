"""`recfusion figure`: draws the paper's figures and the map of a model."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from recfusion.cli.data_options import DataChoice
from recfusion.cli.options import SeedOption, TrustOption, load_bundle
from recfusion.cli.output import note, training
from recfusion.cli.request_options import request_options
from recfusion.core.errors import InputError
from recfusion.data.options import SignalChoice
from recfusion.paper.architecture_figure import architecture_figure
from recfusion.report.figures import check_figure_path, save_figure

OutOption = Annotated[Path, Option("--out", help="Output file: .png or .svg.")]


@request_options
def figure_diffusion(
    choice: DataChoice,
    path: OutOption = Path("figure.png"),
    epochs: Annotated[int, Option(help="Training epochs of each network.", min=1)] = 20,
    seed: SeedOption = 0,
) -> None:
    """Draw binary noise on real users and its removal by a trained network: the paper's Figure 2."""
    from recfusion.paper.diffusion_figure import diffusion_chains, draw_diffusion  # imports torch

    check_figure_path(path)  # before any data is read
    if choice.used != SignalChoice():
        raise InputError("Expected no --signals: the figure shows interactions only, so leave them out.", "signals")
    data = choice.load()
    with training("Training"):
        chains = diffusion_chains(data, plan=choice.plan, epochs=epochs, seed=seed)
    figure = draw_diffusion(chains, data.name, epochs)
    note(f"Figure: {save_figure(figure, path)}")


def figure_architecture(path: OutOption = Path("figure.png")) -> None:
    """Draw the pipeline of the RecFusion family: the paper's Figure 1."""
    check_figure_path(path)
    note(f"Figure: {save_figure(architecture_figure(), path)}")


def figure_map(
    folder: Annotated[Path, Argument(help="Model folder.")],
    path: OutOption = Path("figure.png"),
    column: Annotated[str | None, Option(help="Column of the item table to colour by; default: the first one.")] = None,
    accuracy: Annotated[
        bool, Option("--accuracy", help="Colour by the share of the test users' held-out items that the model finds.")
    ] = False,
    trust: TrustOption = None,
) -> None:
    """Draw the map of a model's items: similar items lie together."""
    from recfusion.report.map_figure import draw_map, item_accuracy

    check_figure_path(path)
    bundle = load_bundle(folder, trust)
    if accuracy and column is not None:
        raise InputError("Expected --column or --accuracy, got both: choose one.", "column")
    note(f"Figure: {save_figure(draw_map(bundle, column, item_accuracy(bundle) if accuracy else None), path)}")
