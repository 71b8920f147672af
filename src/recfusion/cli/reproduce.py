"""`recfusion reproduce`: options and output; paper/reproduce.py does the work."""

from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

from rich.table import Column as Head
from rich.table import Table as Shown
from typer import Argument, Exit, Option

from recfusion.cli.options import WorkersOption
from recfusion.cli.output import note, training
from recfusion.cli.output import out as console
from recfusion.cli.result_output import print_protocol
from recfusion.cli.run import KeepStaleOption, leave_on_failures, shown
from recfusion.core.errors import InputError, choices
from recfusion.core.files import check_writable
from recfusion.paper import reproduce as paper
from recfusion.paper.dry_run import dry_run as paper_dry_run
from recfusion.paper.tables import TABLES
from recfusion.report.formats import Table

ALL = "all"
_FOLDER = Path("reproduction")


def reproduce(
    name: Annotated[str, Argument(help=f"Table or figure to reproduce: {', '.join(paper.NAMES)}, or {ALL}.")],
    out: Annotated[Path | None, Option(help=f"Output folder; default: {_FOLDER}/NAME ({_FOLDER} for {ALL}).")] = None,
    quick: Annotated[bool, Option("--quick", help="Run a small version that takes minutes.")] = False,
    splits: Annotated[
        int | None, Option(help="Number of random splits of a table's models (default: 3; the paper has 10).", min=1)
    ] = None,
    workers: WorkersOption = None,
    keep_stale: KeepStaleOption = False,
    dry_run: Annotated[bool, Option("--dry-run", help="Check archive, memory, time and disk; fit nothing.")] = False,
) -> None:
    """Reproduce a table or figure of the paper and show the difference to the published values.

    Finished fits are saved: after an interruption, the same command resumes.
    """
    if name not in (*paper.NAMES, ALL):
        raise choices("reproduction", name, [*paper.NAMES, ALL], "name")
    suffix = "-quick" if quick else ""
    folder = out or (_FOLDER if name == ALL else _FOLDER / f"{name}{suffix}")
    if folder.is_file():
        raise InputError(f"Expected a folder to write to, got the file '{folder}': name another.", "out")
    check_writable(folder)
    if splits is not None and (quick or name not in (*TABLES, ALL)):
        places = f"{', '.join(TABLES)} or {ALL}"
        got = "--quick" if quick else f"'{name}'"
        raise InputError(f"Expected --splits with one of {places} and without --quick, got {got}.", "splits")
    if dry_run:
        _dry_run(name, folder, quick, splits)
        return
    if name != ALL:
        if (missing := paper.missing(name)) is not None:
            raise InputError(missing)
        _reproduce(name, folder, quick, workers, keep_stale, splits)
        return
    left_out, failed = [], False
    for each in paper.NAMES:
        if (missing := paper.missing(each)) is not None:
            left_out.append(f"Left out {each}: {missing}")
            continue
        note(f"\n== {each}")
        try:
            _reproduce(each, folder / f"{each}{suffix}", quick, workers, keep_stale, splits)
        except Exit:  # some fits failed: go on with the next reproduction
            failed = True
    note("\n".join(["", *left_out]) if left_out else "\nNothing was left out.")
    if failed:
        raise Exit(1)


def _reproduce(name: str, folder: Path, quick: bool, workers: int | None, keep_stale: bool, splits: int | None) -> None:
    """Make one reproduction and print its tables and notes; exit with an error if some of its fits failed."""
    with nullcontext() if name in TABLES else training(f"Making {name}"):
        made = paper.reproduce(
            name, folder, quick=quick, workers=workers, show=shown, keep_stale=keep_stale, splits=splits
        )
    if made.run is not None and made.run.results:
        print_protocol(made.run.protocol)
    for table in made.tables:
        _print_table(table)
    for text in made.notes:
        note(text)
    if made.run is not None:
        leave_on_failures(made.run)


def _dry_run(name: str, folder: Path, quick: bool, splits: int | None) -> None:
    """Print the checks of one or all tables; exit with an error if one failed."""
    if name not in (*TABLES, ALL):
        raise InputError(f"Expected one of {', '.join(TABLES)} or {ALL} for --dry-run, got '{name}'.", "name")
    passed = True
    for each in TABLES if name == ALL else (name,):
        place = folder / f"{each}{'-quick' if quick else ''}" if name == ALL else folder
        checks, models, good = paper_dry_run(each, place / paper.STORE, quick=quick, splits=splits)
        _print_table(checks)
        _print_table(models)
        passed &= good
    if not passed:
        raise Exit(1)


def _print_table(table: Table) -> None:
    first, *others = (column.name for column in table.columns)
    heads = (Head(first, no_wrap=True), *(Head(name, justify="right") for name in others))
    printed = Shown(*heads, title=table.title, title_justify="left", caption=table.note, caption_justify="left")
    for row in table.texts():
        printed.add_row(*row)
    console().print(printed)
