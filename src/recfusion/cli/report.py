"""`recfusion report`: a page, or a table or chart, from the results of any comparison."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from recfusion.cli.output import note
from recfusion.core.errors import InputError, choices
from recfusion.core.files import check_writable_file
from recfusion.experiments.comparison import Comparison
from recfusion.experiments.experiment_file import read_experiment
from recfusion.experiments.result import is_store, read_results
from recfusion.experiments.run import stored_results
from recfusion.paper.tables import TABLES
from recfusion.report.files import SUFFIXES, write_report


def report(
    results: Annotated[Path, Argument(help="A results store, as `run` and `compare` write it.")],
    out: Annotated[
        Path | None, Option(help=f"File to write ({', '.join(SUFFIXES)}); else the results' name with .html.")
    ] = None,
    experiment: Annotated[
        Path | None, Option(help="TOML file of an experiment: show its results alone, where a store holds others too.")
    ] = None,
    reference: Annotated[
        str | None, Option(help="Label of the model that the others are tested against; else ease.")
    ] = None,
) -> None:
    """Write a page from results: table, box plots, costs, slices, training curves, protocol, how to run it again.

    The suffix of --out says what is written: a page, the tables as Markdown, CSV or LaTeX, or the box plot.
    """
    path = out or results.with_suffix(".html")
    if path.suffix.lower() not in SUFFIXES:
        raise choices("file type of a report", path.suffix or path.name, SUFFIXES)
    check_writable_file(path)
    if not is_store(results):
        found = "something else" if results.is_file() else "no such file"
        raise InputError(
            f"Expected a results store at '{results}', as `recfusion run` and `recfusion compare` write it, got "
            f"{found}: name another file."
        )
    stored, name, title = read_results(results), results.stem, ""
    if experiment is not None:
        wanted = read_experiment(experiment)
        stored, name, title = stored_results(wanted, stored), wanted.name, wanted.title
    if not stored:
        of = f" of '{experiment}'" if experiment is not None else ""
        raise InputError(f"The store '{results}' holds no results{of} yet: run that first.")
    write_report(Comparison.of(stored, reference=reference, table=name if name in TABLES else None, title=title), path)
    note(f"Report: {path}")
