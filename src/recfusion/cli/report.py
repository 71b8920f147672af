"""`recfusion report`: write a page, tables or a box plot from stored results."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from recfusion.cli.options import DecidingOption, load_bundle
from recfusion.cli.output import counted, note
from recfusion.core.errors import InputError, choices
from recfusion.core.files import check_writable_file
from recfusion.core.jsonl import plain_path
from recfusion.experiments.comparison import Comparison
from recfusion.experiments.experiment_file import read_experiment
from recfusion.experiments.result import is_store, newest_source, read_results
from recfusion.experiments.run import stored_results
from recfusion.paper.tables import TABLES
from recfusion.report.files import SUFFIXES, write_report
from recfusion.report.page import render, write_text


def report(
    results: Annotated[Path, Argument(help="Store of results, written by `run` or `compare`.")],
    out: Annotated[
        Path | None, Option(help=f"File to write ({', '.join(SUFFIXES)}); default: the store's name with .html.")
    ] = None,
    experiment: Annotated[Path | None, Option(help="TOML file of an experiment: show only its results.")] = None,
    reference: Annotated[
        str | None, Option(help="Label of the model that the others are tested against (default: ease).")
    ] = None,
    deciding: DecidingOption = None,
    map_of: Annotated[
        Path | None, Option("--map", help="Model folder: the page shows on its map where the model is good.")
    ] = None,
) -> None:
    """Write a page from stored results: tables, charts, training curves, examples and the protocol.

    The suffix of --out selects the format: a page, tables as Markdown, CSV or LaTeX, or a box plot.
    """
    name = plain_path(results).stem
    path = out or results.with_name(f"{name}.html")
    if path.suffix.lower() not in SUFFIXES:
        raise choices("file type of a report", path.suffix or path.name, SUFFIXES, "out")
    check_writable_file(path)
    if map_of is not None and path.suffix.lower() != ".html":
        raise InputError(f"Expected a page (.html) with --map, got '{path.suffix}': leave out --map.", "map")
    if not is_store(results):
        found = "something else" if results.is_file() else "no such file"
        raise InputError(
            f"Expected a results store at '{results}', written by `recfusion run` or `recfusion compare`, got "
            f"{found}: name another file."
        )
    stored, title = read_results(results), ""
    if experiment is not None:
        wanted = read_experiment(experiment)
        stored, name, title = stored_results(wanted, stored), wanted.name, wanted.title
    if len(newest := newest_source(stored)) < len(stored):
        note(f"Left out: {counted(len(stored) - len(newest), 'result')} of earlier code of an edited model")
        stored = newest
    if not stored:
        of = f" of '{experiment}'" if experiment is not None else ""
        raise InputError(f"Expected results{of} in the store '{results}', got none: run them first.")
    table = name if name in TABLES else None
    comparison = Comparison.of(stored, reference=reference, table=table, title=title, deciding=deciding)
    if map_of is None:
        write_report(comparison, path)
    else:
        from recfusion.report.map_figure import accuracy_map

        write_text(path, render(comparison, accuracy_map(load_bundle(map_of, None), comparison.protocol)))
    note(f"Report: {path}")
