"""Output of the commands: notes and progress on standard error, tables and JSON on standard output."""

import json
import math
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from recfusion.data.interactions import ReadReport
from recfusion.data.load import read_about
from recfusion.data.protocol import Protocol
from recfusion.evaluation.metrics import MAIN_METRIC
from recfusion.evaluation.significance import Summary
from recfusion.experiments.comparison import Comparison
from recfusion.report.formats import counted as counted
from recfusion.report.formats import p_text
from recfusion.report.main_table import row_name, stale_note
from recfusion.training.epoch import Epoch

WIDE = 200  # columns if the output is not a terminal, so that tables in files are not folded


def out() -> Console:
    """Return the console for results on standard output."""
    console = Console(highlight=False, soft_wrap=False)
    return console if console.is_terminal else Console(highlight=False, width=WIDE)


def note(text: str) -> None:
    """Print a message on standard error."""
    typer.echo(plain(text), err=True)


def plain(text: str) -> str:
    """Return text from data with control characters escaped, safe for a terminal."""
    return "".join(
        sign if sign in "\n\t" or unicodedata.category(sign) not in ("Cc", "Cf") else f"\\x{ord(sign):02x}"
        for sign in text
    )


def literal(text: str) -> str:
    """Return text from data escaped for a rich console, so that nothing in it is markup."""
    return escape(plain(text)).replace("\n", " ")


def print_json(document: object) -> None:
    """Print one JSON document; numbers that are not finite become null, and other values text."""
    typer.echo(json.dumps(_finite(document), indent=2, ensure_ascii=False, allow_nan=False, default=str))


def _finite(part: object) -> object:
    if isinstance(part, dict):
        return {key: _finite(inner) for key, inner in part.items()}
    if isinstance(part, list | tuple):
        return [_finite(inner) for inner in part]
    return None if isinstance(part, float) and not math.isfinite(part) else part


def clock(seconds: float) -> str:
    """Return a duration as h:mm:ss or m:ss."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


@contextmanager
def working(text: str) -> Iterator[Callable[[str], None]]:
    """Show a task of unknown length, and its latest progress message."""
    console = Console(stderr=True)
    if console.is_terminal:
        with console.status(text) as status:
            yield lambda progress: status.update(f"{text}, {progress}")
    else:
        note(text)
        yield note


@contextmanager
def if_stopped(kept: str) -> Iterator[None]:
    """After an interruption, print what is saved and how to resume."""
    try:
        yield
    except KeyboardInterrupt:
        note(f"{kept}: run the same command to resume.")
        raise


@contextmanager
def training(title: str) -> Iterator[Callable[[Epoch], None]]:
    """Show the epochs of a training: the latest on a terminal, one line each elsewhere."""
    with working(title) as report:

        def show(epoch: Epoch) -> None:
            judged = "" if epoch.metric is None else f", validation {MAIN_METRIC} {100 * epoch.metric:.2f}"
            if epoch.best_metric is not None:
                judged += f" (best {100 * epoch.best_metric:.2f} in epoch {epoch.best_epoch})"
            report(f"epoch {epoch.number}/{epoch.of}: loss {epoch.loss:.4g}{judged}, {epoch.seconds:.1f} s")

        yield show


@dataclass(frozen=True)
class Live:
    """The view of a long task: permanent lines, and on a terminal a bar under them."""

    bar: Progress

    def line(self, text: str) -> None:
        if self.bar.disable:
            note(text)
        else:
            self.bar.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def now(self, done: int, total: int | None, text: str) -> None:
        """Update the bar; does nothing without a terminal."""
        self.bar.update(self.bar.task_ids[0], completed=done, total=total, description=text)


@contextmanager
def live(title: str) -> Iterator[Live]:
    """Show a bar under permanent lines."""
    console = Console(stderr=True)
    columns = (BarColumn(20), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}", markup=False))
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        bar.add_task(title, total=None)
        yield Live(bar)


@contextmanager
def progress(title: str, total: int) -> Iterator[Callable[[str, int], None]]:
    """Show the progress of a known number of pieces, with a permanent line for each message."""
    finished = 0
    with live(title) as view:

        def advance(done: str, amount: int) -> None:
            nonlocal finished
            finished += amount
            if done and amount:
                view.line(f"[{finished}/{total}] {done}")
            view.now(finished, total, title)

        yield advance


@contextmanager
def download(title: str) -> Iterator[Callable[[int, int | None], None]]:
    """Show a download: a bar on a terminal, elsewhere a line for each tenth."""
    shown = -1
    with live(title) as view:

        def update(done: int, total: int | None) -> None:
            nonlocal shown
            tenth = done // (total // 10 + 1) if total else done // 50_000_000
            if tenth > shown and view.bar.disable:
                shown = tenth
                note(f"{title}: {done / 1e6:.0f} MB{f' of {total / 1e6:.0f} MB' if total else ''}")
            view.now(round(done / 1e6), round(total / 1e6) if total else None, f"MB, {title}")

        yield update


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
            sure = f" ({100 * test.ci95[0]:+.2f} to {100 * test.ci95[1]:+.2f}){sure} with Holm's correction"
        gain = f"{test.a} against {test.b}, {test.metric}: {100 * test.difference:+.2f}"
        console.print(f"{gain}{sure}", markup=False)
    if stale := stale_note(comparison):
        note(stale)
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
