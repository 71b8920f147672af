"""The entry point: gathers the commands and turns errors into one sentence and an exit code."""

import logging
import os
import sys
from typing import Annotated

import typer

from recfusion.cli import (
    compare,
    data,
    demo,
    evaluate,
    figure,
    models,
    recommend,
    report,
    reproduce,
    run,
    spark,
    train,
    tune,
)
from recfusion.core.errors import InputError

BAD_INPUT = 2
INTERRUPTED = 130

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Diffusion recommenders for binary feedback, and their baselines, under one explicit protocol.",
    epilog="Start with: recfusion demo",
)
app.command("demo")(demo.demo)
app.command("models")(models.models)
app.command("train")(train.train)
app.command("tune")(tune.tune)
app.command("evaluate")(evaluate.evaluate)
app.command("compare")(compare.compare)
app.command("run")(run.run)
app.command("report")(report.report)
app.command("reproduce")(reproduce.reproduce)
app.command("recommend")(recommend.recommend)
app.add_typer(data.app, name="data")
app.add_typer(figure.app, name="figure")
app.add_typer(spark.app, name="spark")


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


def main() -> None:
    """Run the command line and leave with its exit code."""
    # Threads that wait in busy loops turn a second into many where other processes have the cores; must be set before
    # torch is loaded.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    try:
        code = app(standalone_mode=False)
    except InputError as error:
        code = _fail(str(error))
    except typer.TyperException as error:
        message = " ".join(str(getattr(error, "format_message", error.__str__)()).split())
        code = _fail(message) if message else BAD_INPUT  # without a message it has printed the help
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
