"""`recfusion run`: run an experiment from a TOML file in parallel, and skip the fits that its store has."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

from typer import Argument, Exit, Option

from recfusion.cli.options import JsonOption, UserIdsOption, WorkersOption
from recfusion.cli.output import clock, counted, live, note, print_json, seconds_left
from recfusion.cli.result_output import print_protocol, print_results
from recfusion.experiments.comparison import Comparison
from recfusion.experiments.custom_metric import main_metric
from recfusion.experiments.experiment_file import read_experiment
from recfusion.experiments.fit_queue import Task
from recfusion.experiments.plan_file import check_plan, read_plan
from recfusion.experiments.run import Event, OnEvent, RunSummary, Status, run_experiment

_FAILED = 1
KeepStaleOption = Annotated[bool, Option("--keep-stale", help="Use stored results of older code; do not fit again.")]


def run(
    file: Annotated[Path, Argument(help="The experiment, a TOML file.")],
    out: Annotated[
        Path | None, Option(help="Store of the results, one JSON line each (default: results/NAME.jsonl).")
    ] = None,
    workers: WorkersOption = None,
    user_ids: UserIdsOption = False,
    keep_stale: KeepStaleOption = False,
    plan: Annotated[
        Path | None, Option(help="Plan of `recfusion plan`: say whether the run confirms it or explores.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Run the missing fits of an experiment, save each result, and show the table.

    Stored results of older code are fitted again, unless --keep-stale is given.
    """
    experiment = read_experiment(file)
    written = None if plan is None else read_plan(plan)
    store = out or Path("results") / f"{experiment.name}.jsonl"
    with shown(f"Running {experiment.name}", store, experiment.deciding or main_metric(experiment.metrics)) as on_event:
        summary = run_experiment(
            experiment, store, workers=workers, user_ids=user_ids, keep_stale=keep_stale, on_event=on_event
        )
    if summary.results:
        verdict = None if written is None else check_plan(written, experiment, summary.results, plan)
        about = "" if verdict is None else verdict.sentence()
        comparison = Comparison.of(summary.results, title=experiment.title, deciding=experiment.deciding, note=about)
        if as_json:
            print_json(comparison.document() | {"experiment": experiment.name})
        else:
            print_results(print_protocol(summary.protocol), comparison)
            if about:
                note(about)
    leave_on_failures(summary)


@contextmanager
def shown(title: str, store: Path | None, metric: str) -> Iterator[OnEvent]:
    """Show a line for each ended fit, and the running ones; after an interruption, say what is saved."""
    status: Status | None = None
    try:  # the note is printed after the bar has ended, which would erase it
        with live(title) as view:

            def show(event: Event) -> None:
                nonlocal status
                status = event.status
                if text := _line(event, store, metric):
                    view.line(text)
                fits = "; ".join(_fit(task, status) for task in status.running)
                view.now(status.done, status.total, fits, status.seconds_left)

            yield show
    except KeyboardInterrupt:
        if status is not None and store is not None:
            note(f"{status.done} of {status.total} fits are saved in {store}: run the same command to resume.")
        raise


def leave_on_failures(summary: RunSummary) -> None:
    """List the failed fits and exit with an error code, if there are any."""
    if summary.failures:
        note(f"{counted(len(summary.failures), 'fit')} failed and will be retried by the next run:")
        for task, failure in summary.failures.items():
            note(f"  {task}: {failure.reason}")
        if any(failure.details for failure in summary.failures.values()):
            note("`recfusion --verbose`, before the command, shows the lines of the code where they failed.")
        raise Exit(_FAILED)


def _line(event: Event, store: Path | None, metric: str) -> str:
    """Return the line of an event; starts and epochs have none."""
    status = event.status
    if event.kind == "planned":
        there = f", {status.done} of them are stored already" if status.done else ""
        saved = f"; results are saved in {store}" if store is not None else ""
        return f"{counted(status.total, 'fit')}{there}{saved}"
    place = f"[{status.done + status.failed}/{status.total}] {event.task}"
    if event.failure is not None:
        return f"{place} failed: {event.failure.reason}"
    if event.result is not None:
        value = 100 * event.result.mean()[metric]
        times = f"fitted in {event.result.fit_seconds:.1f} s; {_left(status)}{clock(status.seconds)} elapsed"
        return f"{place}: {metric} {value:.2f}, {times}"
    return ""


def _fit(task: Task, status: Status) -> str:
    """Return a running fit, with its step and its epoch."""
    epoch = status.running[task]
    parts = [f"{task.label}/{task.seed}", status.steps.get(task), epoch and f"epoch {epoch.number}/{epoch.of}"]
    return ", ".join(part for part in parts if part)


def _left(status: Status) -> str:
    return "" if status.seconds_left is None else f"{seconds_left(status.seconds_left)}, "
