"""`recfusion tune`: search a model's settings on the validation users, on this machine or on Spark."""

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

from typer import Argument, Option

from recfusion.cli.data_options import DataChoice
from recfusion.cli.options import JsonOption, SeedOption, SetOption, parse_settings
from recfusion.cli.output import clock, counted, if_stopped, live, note, print_json, training, working
from recfusion.cli.request_options import request_options
from recfusion.cli.result_output import print_protocol
from recfusion.core.errors import InputError
from recfusion.core.files import check_replaceable, check_writable_file
from recfusion.evaluation.metrics import MAIN_METRIC
from recfusion.experiments.tuning import tune as job
from recfusion.experiments.tuning.engine import local_engine
from recfusion.experiments.tuning.space_file import tuning_space
from recfusion.inference.bundle_files import CONFIG
from recfusion.models.registry import find, typed_settings
from recfusion.spark.session import spark_session
from recfusion.spark.trials import spark_engine
from recfusion.training.trial import Trial

MasterOption = Annotated[
    str | None, Option(help="Spark master, such as spark://host:7077 (default: Spark's configuration, or local[*]).")
]
ConfOption = Annotated[
    list[str] | None,
    Option("--conf", metavar="KEY=VALUE", help="Spark setting, such as spark.task.cpus=2; may be repeated."),
]


@request_options
def tune(
    model: Annotated[str, Argument(help="A model (see `recfusion models`), or file.py:Class.")],
    choice: DataChoice,
    trials: Annotated[int, Option(help="Number of trials, including those of earlier runs.", min=1)] = 50,
    out: Annotated[
        Path | None, Option(help="Folder for trials, best settings and model (default: tuning/MODEL-DATA).")
    ] = None,
    engine: Annotated[Literal["local", "spark"], Option(help="Where trials run.")] = "local",
    parallel: Annotated[
        int | None, Option(help="Trials in parallel (default: 1; on Spark as many as fit).", min=1)
    ] = None,
    threads: Annotated[
        int | None, Option(help="Threads of a local trial (default: a share of the cores).", min=1)
    ] = None,
    timeout: Annotated[float | None, Option(help="Seconds after which this run stops its trials.", min=0)] = None,
    metric: Annotated[str, Option(help="Metric to maximise on the validation users.")] = MAIN_METRIC,
    space: Annotated[Path | None, Option(help="TOML file with the search space, instead of the model's.")] = None,
    algorithm: Annotated[job.Algorithm, Option(help="Search algorithm.")] = "tpe",
    stop_early: Annotated[
        bool, Option("--early-stop/--no-early-stop", help="Stop trials whose epochs stay below the median.")
    ] = True,
    settings: SetOption = None,
    seed: SeedOption = 0,
    master: MasterOption = None,
    conf: ConfOption = None,
    as_json: JsonOption = False,
) -> None:
    """Search a model's settings on the validation users; refit the best and evaluate it once on the test users.

    Every trial is saved when it ends: after an interruption, the same command resumes, on either engine.
    """
    if engine == "local" and (master or conf):
        raise InputError("--master and --conf are for Spark: add --engine spark, or leave them out.", "engine")
    if engine == "spark" and threads is not None:
        raise InputError("On Spark, use --conf spark.task.cpus=N instead of --threads.", "threads")
    entry = find(model)
    given = typed_settings(entry, parse_settings(settings))
    request = job.SearchRequest(
        *(entry, tuning_space(entry, given, space), given, trials, metric, algorithm, choice.plan, seed),
        seconds=float("inf") if timeout is None else timeout,
        stop_early=stop_early,
        signals=choice.signals,
    )
    data = choice.load()
    folder = out or Path("tuning") / re.sub(r"[^\w.-]", "_", f"{entry.name}-{data.name}")
    for file in (job.TRIALS, job.BEST):
        check_writable_file(folder / file)
    check_replaceable(folder / job.MODEL, CONFIG)
    note(f"Searching {', '.join(request.space)}; trials are saved in {folder / job.TRIALS}")
    with if_stopped("The ended trials are saved"), ExitStack() as stack:
        session = stack.enter_context(start_spark(master, conf)) if engine == "spark" else None
        found = local_engine(parallel or 1, threads) if session is None else spark_engine(session, parallel)
        show = stack.enter_context(_shown(request))
        ended = job.run_trials(data, request, found, folder, on_progress=show)
    if missing := trials - sum(number < trials for number in ended):
        note(f"{missing} of {trials} trials are missing: run the same command to resume.")
    tuned = job.known_best(data, request, ended, folder)
    if tuned is None:
        with training(f"Refitting the best {entry.name} of {counted(len(ended), 'trial')}") as on_epoch:
            tuned = job.refit_best(data, request, ended, folder, on_epoch=on_epoch)
    if as_json:
        print_json(tuned.document | {"folder": str(folder)})
    else:
        _print(tuned, folder)


def start_spark(master: str | None, conf: list[str] | None) -> Any:
    with working("Starting Spark"):
        return spark_session(master, parse_settings(conf, "--conf KEY=VALUE"))


@contextmanager
def _shown(request: job.SearchRequest) -> Iterator[job.OnProgress]:
    """Show a line for each ended trial, the best so far, and the running trials."""
    running: dict[int, str] = {}
    with live(f"Tuning {request.entry.name}") as view:

        def show(now: job.Progress) -> None:
            best = f"best {_percent(now.best.score)} in trial {now.best.number}" if now.best else "no best yet"
            left = [f"about {clock(now.seconds_left)} left"] if now.seconds_left else []
            if now.event is None:
                if now.done:
                    view.line(f"{counted(now.done, 'trial')} of earlier runs; {best}")
            elif isinstance(now.event, Trial):
                running.pop(now.event.number, None)
                text = f"[{now.done}/{now.total}] {_line(now.event, request.metric)}; {best}"
                view.line(", ".join([text, *left]))
            else:
                number, epoch = now.event
                running[number] = f"trial {number} in epoch {epoch.number}/{epoch.of}"
            view.now(now.done, now.total, ", ".join([best, *running.values()]), now.seconds_left)

        yield show


def _line(trial: Trial, metric: str) -> str:
    tried = ", ".join(f"{name}={_brief(value)}" for name, value in {**trial.settings, **trial.chosen}.items())
    values = f"trial {trial.number} ({tried or 'the defaults'})"
    if trial.status == "failed":
        return f"{values} failed: {trial.reason}"
    stopped = " when it was stopped" * (trial.status == "stopped")
    return f"{values}: {metric} {_percent(trial.score)}{stopped}, {trial.seconds:.1f} s"


def _print(tuned: job.TuningResult, folder: Path) -> None:
    found, console = tuned.document, print_protocol(tuned.bundle.protocol)
    counts = ", ".join(f"{count} {status}" for status, count in found["trials"].items() if count)
    console.print(f"best of {counted(len(tuned.trials), 'trial')} ({counts}): trial {found['trial']}", markup=False)
    for name, value in found["settings"].items():
        console.print(f"  {name} = {_brief(value)}", markup=False)
    usual = "" if found["default"] is None else f" (the defaults: {_percent(found['default'])})"
    console.print(f"validation {found['metric']}: {_percent(found['validation'])}{usual}", markup=False)
    for metric, value in found["test"].items():
        console.print(f"test {metric}: {_percent(value['mean'])}", markup=False)
    note(f"Settings: {folder / job.BEST}\nModel:    {folder / job.MODEL}")


def _percent(score: float | None) -> str:
    return "-" if score is None else f"{100 * score:.2f}"


def _brief(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
