"""The entry point: finds the command that is called, and turns errors into one sentence and an exit code."""

import logging
import os
import sys
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from recfusion.core.errors import InputError

BAD_INPUT = 2
INTERRUPTED = 130

# The first line of each command's help. "data list" is the function `data_list` of the module `data`.
COMMANDS = {
    "demo": "Compare models on the embedded movie ratings, save the best one, and write a report page.",
    "models": "List every model and where it comes from, or show the settings of one: defaults, and what they mean.",
    "train": "Train a model on the training users of a data set and save it as a folder.",
    "tune": "Search a model's settings on the validation users; refit the best and judge it once on the test users.",
    "evaluate": "Rebuild the model's own split from its protocol and judge it on the test users; "
    "other data is refused.",
    "compare": "Compare models on the same users of the same splits.",
    "run": "Run what an experiment still lacks, keep each result as soon as it is there, and show the table.",
    "report": "Write a page from results: table, box plots, costs, slices, training curves, protocol, "
    "how to run it again.",
    "reproduce": "Make a table or figure of the paper again: paper, ours and the difference.",
    "recommend": "Recommend items to users, who need not have been seen in training.",
    "similar": "List the most similar items according to the model, corrected for popularity.",
    "complete": "Complete a basket or playlist with items that go together.",
    "serve": "Serve a model over HTTP, with a page to try it on; without a folder, the embedded movies.",
    "events": "Export, compare and delete what a service recorded.",
    "events export": "Write what users have come to have as rows of user, item and time, for training.",
    "events report": "Compare how often the lists of the served models led to an event.",
    "events forget": "Delete all events of users, whom the service then takes for strangers.",
    "items": "Add new items to a model.",
    "items add": "Add new items to a model by their features alone; nothing is fitted again.",
    "data": "List, fetch, describe, prepare and generate data sets.",
    "data list": "List the named data sets and where they are on this machine.",
    "data fetch": "Download a data set from its publisher, check it and keep it in the cache.",
    "data describe": "Show what a data set holds: how it was read and prepared, and the counts of a split.",
    "data prepare": "Prepare a table of your own into a folder that is read at once from then on.",
    "data generate": "Write made-up interactions of any size, with items, for tests of speed and memory.",
    "figure": "Draw the paper's figures, and learned schedules.",
    "figure diffusion": "Draw binary noise on real users, and how a trained network takes it away: "
    "the paper's Figure 2.",
    "figure architecture": "Draw the RecFusion family and what differs between its variants: the paper's Figure 1.",
    "figure schedule": "Draw learned noise rates over training, and the bound with them learned and fixed.",
    "spark": "Prepare data, train and recommend on a Spark cluster.",
    "spark prepare": "Prepare a CSV or Parquet table, or a folder of them, as a Spark job.",
    "spark train": "Train thinning-local with its neighbourhoods solved as Spark tasks, and save it as an ordinary "
    "model folder.",
    "spark recommend": "Write the K best items of every user of a table as a Spark job; "
    "stopped, it goes on after what is done.",
}

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="Diffusion recommenders for binary feedback, and their baselines, under one explicit protocol.",
    epilog="Start with: recfusion demo",
)


class Command(TyperCommand):
    """A command that is listed at once, and imported with all that it needs when it is called."""

    def __init__(self, path: str, text: str) -> None:
        super().__init__(path.split()[-1], help=text)
        self.path = path

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """Leave the arguments to the function behind the command."""
        own = typer.Typer(add_completion=False)
        module = import_module(f"recfusion.cli.{self.path.split()[0]}")
        own.command(self.name)(getattr(module, self.path.replace(" ", "_")))
        return typer.main.get_command(own).make_context(info_name, args, parent, **extra)


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"recfusion {version('recfusion')}")
        raise typer.Exit


@app.callback()
def options(
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Say more on the way.")] = False,
    show_version: Annotated[  # noqa: ARG001
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Options of every command."""
    logging.basicConfig(format="%(message)s", level=logging.WARNING)
    logging.getLogger("recfusion").setLevel(logging.DEBUG if verbose else logging.WARNING)


def command_line() -> TyperGroup:
    """Return the program: its options and all commands, none of which is imported yet."""
    root = typer.main.get_command(app)
    assert isinstance(root, TyperGroup)
    groups = {"": root}
    for path, text in COMMANDS.items():
        group, _, name = path.rpartition(" ")
        if any(other.startswith(f"{path} ") for other in COMMANDS):
            groups[path] = TyperGroup(name=name, help=text, no_args_is_help=True)
        groups[group].add_command(groups.get(path) or Command(path, text))
    return root


def main() -> None:
    """Run the command line and leave with its exit code."""
    # Threads that wait in busy loops turn a second into many where other processes have the cores; must be set before
    # torch is loaded.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    try:
        code = command_line()(standalone_mode=False)
    except InputError as error:
        code = _fail(str(error))
    except typer.TyperException as error:
        message = " ".join(str(getattr(error, "format_message", error.__str__)()).split())
        code = (
            _fail(f"{message.removesuffix('.')}.") if message else BAD_INPUT
        )  # without a message it has printed the help
    except MemoryError:
        code = _fail("There is not enough memory for this: use fewer items or users, or a larger machine.")
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            # The reader of our output has gone (such as `head`): end quietly, and keep Python from flushing again.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            code = 1
        else:
            code = _fail(f"{error.strerror or error}{f': {error.filename}' if error.filename else ''}.")
    except (KeyboardInterrupt, typer.Abort):
        code = INTERRUPTED
    if code == INTERRUPTED:
        typer.echo("Stopped. Nothing half-written was left behind.", err=True)
    sys.exit(code if isinstance(code, int) else 0)


def _fail(message: str) -> int:
    from recfusion.cli.output import note

    note(f"Error: {message}")
    return BAD_INPUT
