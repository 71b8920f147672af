"""`recfusion figure`: the paper's two figures and learned schedules, drawn from real data and from the registry."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Option

from recfusion.cli.options import DataChoice, SeedOption, data_options
from recfusion.cli.output import note, progress
from recfusion.core.errors import InputError
from recfusion.data.interactions import Interactions
from recfusion.data.options import SignalChoice, SplitPlan
from recfusion.paper.architecture_figure import draw_architecture, recfusion_family
from recfusion.report.figures import check_figure_path, save_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

OutOption = Annotated[Path, Option("--out", help="File to draw to: .png or .svg.")]


@data_options
def figure_diffusion(
    choice: DataChoice,
    path: OutOption = Path("figure.png"),
    epochs: Annotated[int, Option(help="Passes over the training users for each network.", min=1)] = 20,
    seed: SeedOption = 0,
) -> None:
    """Draw binary noise on real users, and how a trained network takes it away: the paper's Figure 2."""
    check_figure_path(path)
    _check_signals(choice)
    save(train_and_draw(choice.load(), choice.plan, epochs=epochs, seed=seed), path)


def train_and_draw(data: Interactions, plan: SplitPlan, *, epochs: int, seed: int) -> "Figure":
    """Return the figure of the processes on `data`, its networks trained as a bar tells."""
    # They load torch, which the other figure can do without.
    from recfusion.paper.diffusion_figure import OPTIONS, diffusion_figure
    from recfusion.paper.drawing import draw_diffusion

    with progress("Training", epochs * len(OPTIONS)) as advance:

        def on_epoch(name: str, epoch: int) -> None:
            advance(f"option ({name})" if epoch == epochs else "", 1)

        shown = diffusion_figure(data, plan=plan, epochs=epochs, seed=seed, on_epoch=on_epoch)
    return draw_diffusion(shown, data.name, epochs)


@data_options
def figure_schedule(
    choice: DataChoice,
    path: OutOption = Path("figure.png"),
    epochs: Annotated[int, Option(help="Passes over the training users for each network.", min=1)] = 60,
    seed: SeedOption = 0,
) -> None:
    """Draw learned noise rates over training, and the bound with them learned and fixed."""
    check_figure_path(path)
    _check_signals(choice)
    save(train_schedules(choice.load(), choice.plan, epochs=epochs, seed=seed), path)


def train_schedules(data: Interactions, plan: SplitPlan, *, epochs: int, seed: int) -> "Figure":
    """Return the figure of learned schedules on `data`, its networks trained as a bar tells."""
    from recfusion.paper.drawing import draw_schedules
    from recfusion.paper.schedule_figure import PROCESSES, schedule_figure

    with progress("Training", 2 * epochs * len(PROCESSES)) as advance:

        def on_epoch(process: str, epoch: int) -> None:
            advance(process if epoch == epochs else "", 1)

        courses = schedule_figure(data, plan=plan, epochs=epochs, seed=seed, on_epoch=on_epoch)
    return draw_schedules(courses, data.name)


def _check_signals(choice: DataChoice) -> None:
    if choice.used != SignalChoice():
        raise InputError("The figure shows who has what and nothing else: leave out --signals.")


def figure_architecture(path: OutOption = Path("figure.png")) -> None:
    """Draw the RecFusion family and what differs between its variants: the paper's Figure 1."""
    check_figure_path(path)
    save(draw_architecture(recfusion_family()), path)


def save(figure: "Figure", *paths: Path) -> None:
    """Save a figure in each of some files."""
    for path in paths:
        note(f"Figure: {save_figure(figure, path)}")
