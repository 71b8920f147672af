"""`recfusion report`: a page, or a table or chart, from the results of any comparison."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from recfusion.report.document import Document

SUFFIXES = (".html", ".md", ".csv", ".tex", ".svg", ".png")


def report(
    results: Annotated[Path, typer.Argument(help="A results store (.jsonl) or the JSON of `compare --out`.")],
    out: Annotated[
        Path | None,
        typer.Option(help=f"File to write ({', '.join(SUFFIXES)}); else the results' name with .html."),
    ] = None,
    experiment: Annotated[
        Path | None,
        typer.Option(help="TOML file of an experiment: show its results alone, where a store holds others too."),
    ] = None,
) -> None:
    """Write a page from results: table, box plots, costs, slices, training curves, protocol, how to run it again.

    The suffix of --out says what is written: a page, the tables as Markdown, CSV or LaTeX, or the box plot.
    """
    from recfusion.cli.output import note
    from recfusion.core.errors import InputError, choices
    from recfusion.core.files import check_writable_file
    from recfusion.experiments.run import stored_rows
    from recfusion.experiments.spec import read_experiment
    from recfusion.experiments.store import is_store
    from recfusion.report.document import read_document, store_document

    path = out or results.with_suffix(".html")
    if path.suffix.lower() not in SUFFIXES:
        raise choices("file type of a report", path.suffix or path.name, SUFFIXES)
    check_writable_file(path)
    if experiment is None:
        document = read_document(results)
    else:
        wanted = read_experiment(experiment)
        if not is_store(results):
            raise InputError(f"Expected a results store (.jsonl) at '{results}' for --experiment, got something else.")
        rows = stored_rows(wanted, results)
        if not rows:
            raise InputError(f"The store '{results}' holds no results of '{experiment}': run that first.")
        document = store_document(rows, str(results), wanted.name)
    write_as(document, path)
    note(f"Report: {path}")


def write_as(document: "Document", path: Path) -> None:
    """Write a result document in the form that the suffix of `path` names."""
    from recfusion.core.files import replacing
    from recfusion.report.figure_boxes import draw_boxes
    from recfusion.report.figures import save_figure
    from recfusion.report.page import render
    from recfusion.report.tables import results_csv, results_latex, results_markdown

    texts: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
        ".html": render,
        ".md": results_markdown,
        ".csv": results_csv,
        ".tex": results_latex,
    }
    suffix = path.suffix.lower()
    if suffix in texts:
        text = texts[suffix](document)
        with replacing(path) as beside:
            beside.write_text(text, encoding="utf-8")
    else:
        save_figure(draw_boxes(document), path)
