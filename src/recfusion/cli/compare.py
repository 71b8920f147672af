"""`recfusion compare`: several models on the same splits, with intervals and paired tests."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from recfusion.cli.options import (
    DataChoice,
    JsonOption,
    SetOption,
    TuneOption,
    data_options,
    parse_settings,
    with_tune_trials,
)
from recfusion.data.settings import SplitPlan

if TYPE_CHECKING:
    from recfusion.data.interactions import Interactions
    from recfusion.experiments.compare import Run
    from recfusion.training.epoch import Epoch

_METRICS = "calibrated_recall@20,calibrated_recall@50,ndcg@100"


@data_options
def compare(
    choice: DataChoice,
    models: Annotated[str, typer.Option(help="Names of the models, separated by commas.")] = "popularity,ease,thinning",
    splits: Annotated[int, typer.Option(help="Number of random splits.", min=1)] = 1,
    seed: Annotated[int, typer.Option(help="Seed of the first split; the others follow.", min=0)] = 0,
    metrics: Annotated[str, typer.Option(help="Metrics, separated by commas.")] = _METRICS,
    settings: SetOption = None,
    tune_trials: TuneOption = None,
    as_json: JsonOption = False,
    file: Annotated[Path | None, typer.Option("--out", help="File for the results as JSON.")] = None,
    page: Annotated[Path | None, typer.Option(help="File for a report page (HTML).")] = None,
) -> None:
    """Compare models on the same users of the same splits."""
    from recfusion.cli.output import note, out, print_json, print_protocol, print_results, working
    from recfusion.core.errors import InputError
    from recfusion.core.files import check_writable_file, write_json
    from recfusion.data.load import load
    from recfusion.evaluation.metrics import parse_metric
    from recfusion.experiments.results import result_document
    from recfusion.models.registry import make_model
    from recfusion.report.page import write_page

    chosen = _settings_by_model(_names(models), parse_settings(settings))
    chosen = {name: with_tune_trials(name, given, tune_trials) for name, given in chosen.items()}
    for name, given in chosen.items():
        make_model(name, given)
    names = tuple(_names(metrics))
    if not names:
        raise InputError(f"Expected at least one metric in --metrics, such as {_METRICS}, got none.")
    for name in names:
        parse_metric(name)
    for path in (file, page):
        if path is not None:
            check_writable_file(path)
    with working(f"Reading {choice.source.data}"):
        data = load(choice.source, choice.preparation)
    runs = run_comparison(data, chosen, range(seed, seed + splits), choice.plan, names)
    document = result_document(runs)
    if as_json:
        print_json(document)
    else:
        console = out()
        print_protocol(console, runs[0].protocol)
        print_results(console, document)
    if file is not None:
        write_json(file, document)
        note(f"Results written to {file}")
    if page is not None:
        write_page(document, page)
        note(f"Report written to {page}")


def run_comparison(
    data: "Interactions",
    models: Mapping[str, Mapping[str, Any]],
    seeds: range,
    plan: SplitPlan,
    metrics: tuple[str, ...],
) -> "list[Run]":
    """Return the runs of a comparison, shown as they come in; the last metric is the one that is shown."""
    from recfusion.cli.output import progress
    from recfusion.experiments.compare import compare as run

    runs = []
    with progress("Comparing", len(seeds) * len(models)) as advance:

        def on_epoch(name: str, seed: int, epoch: "Epoch") -> None:
            best = "" if epoch.best_metric is None else f", best validation ndcg@100 {100 * epoch.best_metric:.2f}"
            advance(f"split {seed}, {name}: epoch {epoch.number}{best}", 0)

        for done in run(data, models, seeds, plan=plan, metrics=metrics, on_epoch=on_epoch):
            runs.append(done)
            judged = 100 * done.test.mean()[metrics[-1]]
            advance(f"split {done.seed}, {done.name}: {metrics[-1]} {judged:.2f}, fitted in {done.fit_seconds:.1f} s")
    return runs


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _settings_by_model(names: list[str], settings: dict[str, str]) -> dict[str, dict[str, str]]:
    """Return name -> its settings, from `model.setting` keys."""
    from recfusion.core.errors import InputError, choices

    if not names or len(set(names)) < len(names):
        raise InputError(f"Expected at least one model in --models, and none twice, got '{','.join(names)}'.")
    chosen: dict[str, dict[str, str]] = {name: {} for name in names}
    for key, value in settings.items():
        name, dot, setting = key.partition(".")
        if not dot:
            raise InputError(f"Expected --set MODEL.NAME=VALUE, got '{key}={value}': say which model it is for.")
        if name not in chosen:
            raise choices("model in --set", name, names)
        chosen[name][setting] = value
    return chosen
