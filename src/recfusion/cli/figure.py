"""`recfusion figure`: the paper's two figures, drawn from real data and from the registry."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from recfusion.cli.options import DataChoice, SeedOption, data_options

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from recfusion.data.interactions import Interactions
    from recfusion.data.settings import SplitPlan

app = typer.Typer(no_args_is_help=True, help="Draw the paper's figures.")

OutOption = Annotated[Path, typer.Option("--out", help="File to draw to: .png or .svg.")]


@app.command("diffusion")
@data_options
def diffusion(
    choice: DataChoice,
    path: OutOption = Path("figure.png"),
    epochs: Annotated[int, typer.Option(help="Passes over the training users for each network.", min=1)] = 20,
    seed: SeedOption = 0,
) -> None:
    """Draw binary noise on real users, and how a trained network takes it away: the paper's Figure 2."""
    from recfusion.cli.output import note, working
    from recfusion.data.load import load
    from recfusion.report.figures import check_figure_path, save_figure

    check_figure_path(path)
    with working(f"Reading {choice.source.data}"):
        data = load(choice.source, choice.preparation)
    note(f"Figure: {save_figure(train_and_draw(data, choice.plan, epochs=epochs, seed=seed), path)}")


def train_and_draw(data: "Interactions", plan: "SplitPlan", *, epochs: int, seed: int) -> "Figure":
    """Return the figure of the processes on `data`, its networks trained as a bar tells."""
    from recfusion.cli.output import progress
    from recfusion.experiments.diffusion_figure import OPTIONS, diffusion_figure
    from recfusion.report.figures import draw_diffusion

    with progress("Training", epochs * len(OPTIONS)) as advance:

        def on_epoch(name: str, epoch: int) -> None:
            advance(f"option ({name})" if epoch == epochs else "")

        shown = diffusion_figure(data, plan=plan, epochs=epochs, seed=seed, on_epoch=on_epoch)
    return draw_diffusion(shown, data.name, epochs)


@app.command("architecture")
def architecture(path: OutOption = Path("figure.png")) -> None:
    """Draw the RecFusion family and what differs between its variants: the paper's Figure 1."""
    from recfusion.cli.output import note
    from recfusion.report.figure_architecture import draw_architecture, recfusion_family
    from recfusion.report.figures import check_figure_path, save_figure

    check_figure_path(path)
    note(f"Figure: {save_figure(draw_architecture(recfusion_family()), path)}")
