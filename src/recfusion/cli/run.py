"""`recfusion run`: an experiment of a TOML file, in parallel; what is already there is not run again."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from recfusion.cli.options import JsonOption

if TYPE_CHECKING:
    from recfusion.experiments.run import Event, Outcome, Status
    from recfusion.experiments.spec import Experiment

_FAILED = 1


def run(
    file: Annotated[Path, typer.Argument(help="The experiment, a TOML file.")],
    out: Annotated[
        Path | None,
        typer.Option(help="File that keeps the results, a JSON line each; else results/NAME.jsonl in this folder."),
    ] = None,
    workers: Annotated[int | None, typer.Option(help="Processes side by side; else one per core.", min=1)] = None,
    as_json: JsonOption = False,
) -> None:
    """Run what an experiment still lacks, keep each result as soon as it is there, and show the table."""
    from recfusion.cli.output import out as console_out
    from recfusion.cli.output import print_json, print_protocol, print_results
    from recfusion.experiments.spec import read_experiment

    experiment = read_experiment(file)
    outcome = run_what_is_missing(experiment, out or Path("results") / f"{experiment.name}.jsonl", workers)
    if outcome.rows:
        document = outcome.document() | {"experiment": experiment.name, "title": experiment.title}
        if as_json:
            print_json(document)
        else:
            console = console_out()
            print_protocol(console, outcome.protocol)
            print_results(console, document)
            _note_fewer_splits(document)
    leave_on_failures(outcome)


def run_what_is_missing(experiment: "Experiment", store: Path, workers: int | None) -> "Outcome":
    """Run what `store` lacks of an experiment and show how it goes; an interruption says what is kept."""
    from recfusion.cli.output import note
    from recfusion.experiments.run import run_experiment

    status: Status | None = None

    def watch(event: "Event") -> None:
        nonlocal status
        status = event.status
        show(event)

    try:
        with _progress(f"Running {experiment.name}", store, experiment.metrics[-1]) as show:
            return run_experiment(experiment, store, workers=workers, on_event=watch)
    except KeyboardInterrupt:
        if status is not None:
            note(f"{status.done} of {status.total} fits are kept in {store}: run the same command to go on.")
        raise


def leave_on_failures(outcome: "Outcome") -> None:
    """List the fits that failed and leave with an exit code; go on where there are none."""
    if outcome.failures:
        _report_failures(outcome)
        raise typer.Exit(_FAILED)


def _note_fewer_splits(document: dict[str, Any]) -> None:
    from recfusion.cli.output import note

    total = len(document["seeds"])
    fewer = [f"{name} {entry['n_splits']}" for name, entry in document["models"].items() if entry["n_splits"] < total]
    if fewer:
        note(f"Models on fewer than {total} splits: {', '.join(fewer)}; tests are over the splits two models share.")


def _report_failures(outcome: "Outcome") -> None:
    from recfusion.cli.output import note

    count = len(outcome.failures)
    note(f"{count} fit{'s' * (count > 1)} failed and will be tried again by the next run:")
    for failure in outcome.failures:
        note(f"  {failure.task}: {failure.reason}")


@contextmanager
def _progress(title: str, store: Path, metric: str) -> "Iterator[Callable[[Event], None]]":
    """Show a line for each fit that has ended, and the fits that are going on."""
    from recfusion.cli.output import live

    with live(title) as view:

        def show(event: "Event") -> None:
            if text := _told(event, store, metric):
                view.line(text)
            fits = ", ".join(
                f"{fit.task.label}/{fit.task.seed}" + (f" epoch {fit.epoch.number}/{fit.epoch.of}" if fit.epoch else "")
                for fit in event.status.running
            )
            view.now(event.status.done, event.status.total, f"{_left(event.status)}{fits}".removesuffix(", "))

        yield show


def _told(event: "Event", store: Path, metric: str) -> str:
    """Return the line of an event; started fits and epochs have none."""
    from recfusion.cli.output import clock

    status = event.status
    if event.kind == "planned":
        kept = f", {status.done} of them are there already" if status.done else ""
        return f"{status.total} fit{'s' * (status.total != 1)}{kept}; results are kept in {store.absolute()}"
    place = f"[{status.done + status.failed}/{status.total}] {event.task}"
    if event.failure is not None:
        return f"{place} failed: {event.failure.reason}"
    if event.row is not None:
        value = 100 * event.row.run().test.mean()[metric]
        times = f"fitted in {event.row.fit_seconds:.1f} s; {_left(status)}{clock(status.seconds)} gone"
        return f"{place}: {metric} {value:.2f}, {times}"
    return ""


def _left(status: "Status") -> str:
    from recfusion.cli.output import clock

    return "" if status.seconds_left is None else f"about {clock(status.seconds_left)} left, "
