"""Output of protocol cards, prepared folders and comparisons."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from recfusion.cli.output import counted, literal, note, out, plain
from recfusion.data.interactions import ReadReport
from recfusion.data.load import read_about
from recfusion.data.protocol import Protocol
from recfusion.evaluation.significance import Summary
from recfusion.experiments.column_report import ColumnReport
from recfusion.experiments.comparison import Comparison
from recfusion.experiments.rules import cost_text
from recfusion.report.formats import p_text
from recfusion.report.main_table import code_note, row_name


def print_protocol(protocol: Protocol) -> Console:
    """Print the protocol card, and return the console."""
    console = out()
    console.print(
        f"[bold]{literal(protocol.name)}[/bold]: {protocol.users:,} users, {protocol.items:,} items, "
        f"{protocol.interactions:,} interactions (protocol {protocol.hash})"
    )
    for sentence in protocol.assumptions():
        console.print(f"  {sentence}", style="dim", markup=False)
    _print_reading(console, protocol.read)
    return console


def print_prepared(folder: Path, fresh: bool) -> None:
    """Print how a prepared folder was made, with the counts after each step."""
    about, console = read_about(folder), out()
    _print_reading(console, about.report)
    for step in about.steps:
        counts = f"{step.users:,} users, {step.items:,} items, {step.interactions:,} interactions"
        console.print(f"  {step.step}: {counts}", markup=False)
    note(f"{'Prepared data is' if fresh else 'The data was already prepared'} in {folder}: use --data {folder}")


def _print_reading(console: Console, read: ReadReport) -> None:
    if read.missing or read.unparsable:
        bad = f"{read.missing:,} lacked a value and {read.unparsable:,} could not be parsed"
        console.print(f"  Of {read.rows:,} rows read, {bad}.")
    for remark in read.notes:
        console.print(f"  {plain(remark[:1].upper() + remark[1:])}.", style="dim", markup=False)


def print_results(console: Console, comparison: Comparison) -> None:
    """Print the table of a comparison and the tests of the best model; columns that do not fit are left out."""
    tables = [
        _result_table(comparison, intervals=intervals, times=times)
        for intervals, times in ((True, True), (False, True), (False, False))
    ]
    unbounded = console.options.update(max_width=1000)
    fitting = (table for table in tables if console.measure(table, options=unbounded).maximum <= console.width)
    console.print(next(fitting, tables[-1]))
    for test in (test for test in comparison.tests if test.metric == comparison.main_metric):
        sure = f", {p_text(test)}"
        if test.ci95 is not None:
            sure = f"{interval_text(test.ci95, '+')}{sure} with Holm's correction"
        gain = f"{test.a} against {test.b}, {test.metric}: {100 * test.difference:+.2f}"
        console.print(f"{gain}{sure}", markup=False)
    for cost in (cost for cost in comparison.costs if cost.metric == comparison.main_metric):
        text = cost_text(cost.difference, cost.ci95, cost.metric)
        console.print(f"These rules {text} with {cost.a}.", markup=False, soft_wrap=True)
    if marks := code_note(comparison):
        note(marks)
    total = len(comparison.seeds)
    fewer = [f"{label} {len(model.seeds)}" for label, model in comparison.models.items() if len(model.seeds) < total]
    if fewer:
        note(f"Models on fewer than {total} splits: {', '.join(fewer)}; tests are over the splits that both have.")


def _result_table(comparison: Comparison, *, intervals: bool, times: bool) -> Table:
    """Return the means in percent, the best in bold."""
    metrics = comparison.metrics
    known = any(found.ci95 for model in comparison.models.values() for found in model.metrics.values())
    suffix = " with 95 % intervals over users" if intervals and known else ""
    table = Table(title=f"{counted(len(comparison.seeds), 'split')}, means x 100{suffix}", title_justify="left")
    table.add_column("model", no_wrap=times, overflow="fold")  # in narrow terminals long names are folded
    heads = metrics if intervals else [metric.replace("_", "_\n") for metric in metrics]
    for head in (*heads, *(("fit s", "score s") if times else ())):
        table.add_column(head, justify="right", no_wrap=True)
    best = {metric: comparison.best(metric) if len(comparison.models) > 1 else None for metric in metrics}
    for label, model in comparison.models.items():
        cells = [_cell(model.metrics[m], bold=best[m] == label, interval=intervals) for m in metrics]
        seconds = (f"{model.fit_seconds:.2f}", f"{model.score_seconds:.2f}") if times else ()
        table.add_row(literal(row_name(model)), *cells, *seconds)
    return table


def _cell(value: Summary, *, bold: bool, interval: bool) -> str:
    mean = f"{100 * value.mean:.2f}"
    shown = f"[bold]{mean}[/bold]" if bold else mean
    if value.ci95 is None or not interval:
        return shown
    return f"{shown} [dim]{100 * value.ci95[0]:.1f}–{100 * value.ci95[1]:.1f}[/dim]"


def print_groups(console: Console, reports: Sequence[ColumnReport], labels: Sequence[str] = ("",)) -> None:
    """Print the groups of a column for each model; the labels stand before them."""
    for label, report in zip(labels, reports, strict=True):
        what = "held-out items" if report.of == "items" else "users"
        for group in report.groups:
            found = f"{100 * group.mean:.2f}{interval_text(group.ci95)}"
            about = f"{label}{report.column} {group.value} ({group.size:,} {what})"
            console.print(f"{about}: {found}", markup=False)
    first = reports[0]
    console.print(f"By {first.column}: the mean {first.metric} of the test users in each group.", markup=False)


def interval_text(ends: Sequence[float] | None, sign: str = "") -> str:
    """Return an interval in percent points, in parentheses after a space; an empty text if there is none."""
    return f" ({100 * ends[0]:{sign}.2f} to {100 * ends[1]:{sign}.2f})" if ends else ""
