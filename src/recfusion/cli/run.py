"""`recfusion run`: an experiment of a TOML file, in parallel; what is already there is not run again."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

from typer import Argument, Exit, Option

from recfusion.cli.options import JsonOption, UserIdsOption, WorkersOption
from recfusion.cli.output import clock, counted, live, note, print_json, print_protocol, print_results
from recfusion.experiments.comparison import Comparison
from recfusion.experiments.experiment_file import read_experiment
from recfusion.experiments.run import Event, OnEvent, Ran, Status, run_experiment

_FAILED = 1


def run(
    file: Annotated[Path, Argument(help="The experiment, a TOML file.")],
    out: Annotated[
        Path | None,
        Option(help="File that keeps the results, a JSON line each; else results/NAME.jsonl in this folder."),
    ] = None,
    workers: WorkersOption = None,
    user_ids: UserIdsOption = False,
    as_json: JsonOption = False,
) -> None:
    """Run what an experiment still lacks, keep each result as soon as it is there, and show the table."""
    experiment = read_experiment(file)
    store = out or Path("results") / f"{experiment.name}.jsonl"
    with shown(f"Running {experiment.name}", store, experiment.metrics[-1]) as on_event:
        ran = run_experiment(experiment, store, workers=workers, user_ids=user_ids, on_event=on_event)
    if ran.results:
        comparison = Comparison.of(ran.results, title=experiment.title)
        if as_json:
            print_json(comparison.document() | {"experiment": experiment.name})
        else:
            print_results(print_protocol(ran.protocol), comparison)
    leave_on_failures(ran)


@contextmanager
def shown(title: str, store: Path | None, metric: str) -> Iterator[OnEvent]:
    """Show a line for each fit that has ended, and the fits that are going on; an interruption says what is kept."""
    status: Status | None = None
    with live(title) as view:

        def show(event: Event) -> None:
            nonlocal status
            status = event.status
            if text := _told(event, store, metric):
                view.line(text)
            fits = ", ".join(
                f"{task.label}/{task.seed}" + (f" epoch {epoch.number}/{epoch.of}" if epoch else "")
                for task, epoch in status.running.items()
            )
            view.now(status.done, status.total, f"{_left(status)}{fits}".removesuffix(", "))

        try:
            yield show
        except KeyboardInterrupt:
            if status is not None and store is not None:
                note(f"{status.done} of {status.total} fits are kept in {store}: run the same command to go on.")
            raise


def leave_on_failures(ran: Ran) -> None:
    """List the fits that failed and leave with an exit code; go on where there are none."""
    if ran.failures:
        note(f"{counted(len(ran.failures), 'fit')} failed and will be tried again by the next run:")
        for task, failure in ran.failures.items():
            note(f"  {task}: {failure.reason}")
        raise Exit(_FAILED)


def _told(event: Event, store: Path | None, metric: str) -> str:
    """Return the line of an event; started fits and epochs have none."""
    status = event.status
    if event.kind == "planned":
        there = f", {status.done} of them are there already" if status.done else ""
        kept = f"; results are kept in {store}" if store is not None else ""
        return f"{counted(status.total, 'fit')}{there}{kept}"
    place = f"[{status.done + status.failed}/{status.total}] {event.task}"
    if event.failure is not None:
        return f"{place} failed: {event.failure.reason}"
    if event.result is not None:
        value = 100 * event.result.mean()[metric]
        times = f"fitted in {event.result.fit_seconds:.1f} s; {_left(status)}{clock(status.seconds)} gone"
        return f"{place}: {metric} {value:.2f}, {times}"
    return ""


def _left(status: Status) -> str:
    return "" if status.seconds_left is None else f"about {clock(status.seconds_left)} left, "
