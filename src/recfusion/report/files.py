"""Writes comparisons and tables to files, in the format that the suffix names."""

from pathlib import Path

from recfusion.experiments.comparison import Comparison
from recfusion.report.formats import Table, csv_text, latex, markdown
from recfusion.report.page import render, write_text
from recfusion.report.tables import results_csv, results_latex, results_markdown

_TEXTS = {".html": render, ".md": results_markdown, ".csv": results_csv, ".tex": results_latex}
SUFFIXES = (*_TEXTS, ".svg", ".png")


def write_report(comparison: Comparison, path: Path) -> None:
    """Write a comparison as a page, as tables or as a box plot."""
    if text := _TEXTS.get(path.suffix.lower()):
        write_text(path, text(comparison))
    else:
        from recfusion.report.figures import draw_boxes, save_figure

        save_figure(draw_boxes(comparison), path)


def write_table(table: Table, stem: Path) -> None:
    """Write a table as Markdown, CSV and LaTeX."""
    for suffix, text in ((".md", markdown(table)), (".csv", csv_text([table])), (".tex", latex(table))):
        write_text(stem.with_suffix(suffix), text)
