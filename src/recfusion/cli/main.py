"""The entry point of the command line: finds the command, and converts errors into a sentence and an exit code."""

import atexit
import gc
import logging
import os
import re
import sqlite3
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from recfusion.cli.loading import loading, without_collection
from recfusion.cli.low_memory import NO_MEMORY, guard_low_memory, report
from recfusion.core.errors import InputError
from recfusion.core.extras import missing_package
from recfusion.core.memory import is_out_of_memory

BAD_INPUT = 2
INTERRUPTED = 130
_USAGE_ERROR: type[Exception] = typer.BadParameter.__mro__[-4]  # TyperException, or click's class before typer 0.26

# "data list" is the function `data_list` of the module `cli/data.py`; its docstring is the help.
COMMANDS = (
    *("demo", "models", "train", "update", "tune", "evaluate"),
    *("compare", "plan", "run", "judge", "diff", "report", "reproduce"),
    *("recommend", "why-not", "similar", "complete", "serve", "nightly"),
    *("events export", "events report", "events forget", "events clear", "items add"),
    *("data list", "data fetch", "data describe", "data prepare", "data generate"),
    *("split export",),
    *("figure diffusion", "figure architecture", "figure map"),
    *("spark prepare", "spark train", "spark recommend"),
)
GROUPS = {
    "events": "Export, compare and delete the events that a service recorded.",
    "items": "Add new items to a model.",
    "data": "List, fetch, describe, prepare and generate data sets.",
    "split": "Write splits for other programs.",
    "figure": "Draw the paper's figures and the map of a model.",
    "spark": "Prepare data, train and recommend on a Spark cluster.",
}

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="Diffusion recommenders for binary feedback, and their baselines, under one explicit protocol.",
    epilog="Start with: recfusion demo",
)


class Command(TyperCommand):
    """A command that is listed without importing it; its module is imported when it is called."""

    def __init__(self, path: str) -> None:
        super().__init__(path.split()[-1], help=summary(path))
        self.path = path

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """Parse the arguments by the function of the command."""
        own = typer.Typer(add_completion=False)
        with loading("recfusion", silent=time.process_time()), without_collection():
            module = import_module(f"recfusion.cli.{self.path.split()[0].replace('-', '_')}")
        own.command(self.name)(getattr(module, re.sub("[ -]", "_", self.path)))
        return typer.main.get_command(own).make_context(info_name, args, parent, **extra)


def summary(path: str) -> str:
    """Return the first paragraph of a command's help, from the source of its function."""
    source = Path(__file__).with_name(f"{path.split()[0].replace('-', '_')}.py").read_text(encoding="utf-8")
    function = re.sub("[ -]", "_", path)
    found = re.search(rf'^def {function}\(.*?^    """(.+?)(?:\n\n|""")', source, re.MULTILINE | re.DOTALL)
    assert found is not None
    return " ".join(found[1].split())


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
    for path in COMMANDS:
        group, _, name = path.rpartition(" ")
        if group not in groups:
            groups[group] = TyperGroup(name=group, help=GROUPS[group], no_args_is_help=True)
            root.add_command(groups[group])
        groups[group].add_command(Command(path), name)
    return root


def main() -> None:
    """Run the command line and leave with its exit code."""
    # As in core/pool.py, for this process. They must be set before numpy and torch are loaded.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")
    atexit.register(gc.freeze)  # or the exit searches all objects of torch for garbage
    guard_low_memory(BAD_INPUT)
    try:
        code = command_line()(standalone_mode=False)
    except InputError as error:
        code = _fail(str(error))
    except _USAGE_ERROR as error:
        message = " ".join(str(getattr(error, "format_message", error.__str__)()).split()).replace("Value error, ", "")
        ended = message if message.endswith(("?", ".")) else f"{message}."
        code = _fail(ended) if message else BAD_INPUT  # without a message, the help was printed
    except (MemoryError, ImportError, RuntimeError) as error:
        if missing := missing_package(error, "This command"):
            code = _fail(str(missing))
        elif is_out_of_memory(error):
            report(NO_MEMORY)
            code = BAD_INPUT
        else:
            raise
    except sqlite3.Error as error:
        code = _fail(f"Cannot use the file of events ({error}): restore a copy of it, or name another.")
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
