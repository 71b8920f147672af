"""Output of the commands: notes and progress on standard error, tables and JSON on standard output."""

import json
import math
import time
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Column
from rich.text import Text

from recfusion.core.steps import listening
from recfusion.evaluation.metrics import MAIN_METRIC
from recfusion.report.formats import counted as counted
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


def seconds_left(seconds: float) -> str:
    """Return the time until a task should end by its forecast, in words."""
    return f"about {clock(seconds)} left" if seconds >= 0 else f"{clock(-seconds)} over the forecast"


class _LeftColumn(ProgressColumn):
    """Counts down the seconds to the time `until` of a task, if it has one."""

    def render(self, task: Task) -> Text:
        until = task.fields.get("until")
        return Text("" if until is None else seconds_left(until - time.monotonic()))


_REST = TextColumn("{task.description}", markup=False, table_column=Column(ratio=1, no_wrap=True))  # cut, unlike times


@contextmanager
def working(text: str, expected: float | None = None) -> Iterator[Callable[[str], None]]:
    """Show a task with its time so far, the time left of the `expected` seconds, and its latest progress message."""
    console = Console(stderr=True)
    if not console.is_terminal:
        note(text)
        yield note
        return
    columns = (SpinnerColumn(), TimeElapsedColumn(), _LeftColumn(), _REST)
    with Progress(*columns, console=console, transient=True, expand=True) as bar:
        task = bar.add_task(text, total=None, until=None if expected is None else time.monotonic() + expected)
        yield lambda progress: bar.update(task, description=f"{text.partition(' on ')[0]}: {progress}")


@contextmanager
def if_stopped(kept: str) -> Iterator[None]:
    """After an interruption, print what is saved and how to resume."""
    try:
        yield
    except KeyboardInterrupt:
        note(f"{kept}: run the same command to resume.")
        raise


@contextmanager
def training(title: str, expected: float | None = None) -> Iterator[Callable[[Epoch], None]]:
    """Show the steps and epochs of a training: the latest on a terminal, one line each elsewhere."""
    step = ""
    with working(title, expected) as report:

        def enter(name: str) -> None:
            nonlocal step
            step = name
            report(name)

        def show(epoch: Epoch) -> None:
            judged = "" if epoch.metric is None else f", validation {MAIN_METRIC} {100 * epoch.metric:.2f}"
            if epoch.best_metric is not None:
                judged += f" (best {100 * epoch.best_metric:.2f} in epoch {epoch.best_epoch})"
            of = f"{step}, " if step else ""
            report(f"{of}epoch {epoch.number}/{epoch.of}: loss {epoch.loss:.4g}{judged}, {epoch.seconds:.1f} s")

        with listening(enter):
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

    def now(self, done: int, total: int | None, text: str, left: float | None = None) -> None:
        """Update the bar, with the seconds that are left; does nothing without a terminal."""
        until = None if left is None else time.monotonic() + left
        self.bar.update(self.bar.task_ids[0], completed=done, total=total, description=text, until=until)


@contextmanager
def live(title: str) -> Iterator[Live]:
    """Show a bar under permanent lines."""
    console = Console(stderr=True)
    columns = (BarColumn(20), MofNCompleteColumn(), TimeElapsedColumn(), _LeftColumn(), _REST)
    bar = Progress(*columns, console=console, expand=True, disable=not console.is_terminal)
    bar.add_task(title, total=None)
    with nullcontext() if bar.disable else bar:  # before rich 14.3, the end of a disabled bar is an empty line
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
