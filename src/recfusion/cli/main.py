"""The entry point of the command line: finds the command, and converts errors into a sentence and an exit code."""

import inspect
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

# The first paragraph of each command's help. "data list" is the function `data_list` of the module `cli/data.py`.
COMMANDS = {
    "demo": "Compare models on the embedded movie ratings, save the best one, and write a report page.",
    "models": "List all models and their origin, or the settings of one with defaults and meaning.",
    "train": "Train a model on the training users of a data set and save it as a folder.",
    "tune": "Search a model's settings on the validation users; refit the best and evaluate it once on the test users.",
    "evaluate": "Evaluate a saved model on the test users of its split, rebuilt from its protocol; "
    "other data is refused.",
    "compare": "Compare models on the same users of the same splits.",
    "run": "Run the missing fits of an experiment, save each result, and show the table.",
    "report": "Write a page from stored results: tables, charts, training curves, examples and the protocol.",
    "reproduce": "Reproduce a table or figure of the paper and show the difference to the published values.",
    "recommend": "Recommend items to users, also to those who were not in the training data.",
    "similar": "List the most similar items according to the model, corrected for popularity.",
    "complete": "Complete a basket or playlist with items that go together.",
    "serve": "Serve a model over HTTP, with a page to try it on; without a folder, the embedded movies.",
    "events": "Export, compare and delete the events that a service recorded.",
    "events export": "Export user, item and time of the items that users have, for training.",
    "events report": "Compare the click-through rates of the served models.",
    "events forget": "Delete all events of users; the service then knows nothing about them.",
    "items": "Add new items to a model.",
    "items add": "Add new items to a model from their features, without training it again.",
    "data": "List, fetch, describe, prepare and generate data sets.",
    "data list": "List the named data sets and their local copies.",
    "data fetch": "Download a data set from its publisher, verify it and store it in the cache.",
    "data describe": "Describe a data set: how it was read and prepared, and the counts of a split.",
    "data prepare": "Prepare your own table into a folder that loads quickly.",
    "data generate": "Generate synthetic interactions of any size, with items, to test speed and memory.",
    "figure": "Draw the paper's figures and learned noise schedules.",
    "figure diffusion": "Draw binary noise on real users and its removal by a trained network: the paper's Figure 2.",
    "figure architecture": "Draw the RecFusion family and the differences between its variants: the paper's Figure 1.",
    "figure schedule": "Draw learned noise rates during training, and the bound with learned and with fixed rates.",
    "spark": "Prepare data, train and recommend on a Spark cluster.",
    "spark prepare": "Prepare a CSV or Parquet table, or a folder of them, as a Spark job.",
    "spark train": "Train thinning-local with Spark tasks, and save it as an ordinary model folder.",
    "spark recommend": "Write the top K items of every user of a table as a Spark job; resumes after an interruption.",
}

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="Diffusion recommenders for binary feedback, and their baselines, under one explicit protocol.",
    epilog="Start with: recfusion demo",
)


class Command(TyperCommand):
    """A command that is listed without importing it; its module is imported when it is called."""

    def __init__(self, path: str, text: str) -> None:
        super().__init__(path.split()[-1], help=text)
        self.path = path

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """Parse the arguments by the function of the command; its help is our text and the rest of its docstring."""
        own = typer.Typer(add_completion=False)
        module = import_module(f"recfusion.cli.{self.path.split()[0]}")
        function = getattr(module, self.path.replace(" ", "_"))
        details = (inspect.getdoc(function) or "").partition("\n\n")[2]
        own.command(self.name, help=f"{self.help}\n\n{details}")(function)
        return typer.main.get_command(own).make_context(info_name, args, parent, **extra)


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"recfusion {version('recfusion')}")
        raise typer.Exit


@app.callback()
def options(
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log more details.")] = False,
    show_version: Annotated[  # noqa: ARG001
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Set the options of every command."""
    logging.basicConfig(format="%(message)s", level=logging.WARNING)
    logging.getLogger("recfusion").setLevel(logging.DEBUG if verbose else logging.WARNING)


def command_line() -> TyperGroup:
    """Return the program: its options and all commands, not imported yet."""
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
    # Threads that busy-wait are many times slower if other processes use the cores; must be set before torch is loaded.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    try:
        code = command_line()(standalone_mode=False)
    except InputError as error:
        code = _fail(str(error))
    except typer.TyperException as error:
        message = " ".join(str(getattr(error, "format_message", error.__str__)()).split())
        ended = message if message.endswith(("?", ".")) else f"{message}."
        code = _fail(ended) if message else BAD_INPUT  # without a message, the help was printed
    except MemoryError:
        code = _fail("There is not enough memory for this: use fewer items or users, or a larger machine.")
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            # The reader of our output has ended (such as `head`): exit quietly, and keep Python from flushing again.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            code = 1
        else:
            code = _fail(f"{error.strerror or error}{f': {error.filename}' if error.filename else ''}.")
    except (KeyboardInterrupt, typer.Abort):
        code = INTERRUPTED
    if code == INTERRUPTED:
        typer.echo("Stopped. No incomplete files were left behind.", err=True)
    sys.exit(code if isinstance(code, int) else 0)


def _fail(message: str) -> int:
    from recfusion.cli.output import note

    note(f"Error: {message}")
    return BAD_INPUT
