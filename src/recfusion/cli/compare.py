"""`recfusion compare`: several models on the same splits, with intervals and paired tests."""

from pathlib import Path
from typing import Annotated

import typer

from recfusion.cli.options import DataChoice, JsonOption, SetOption, data_options, parse_settings

_METRICS = "calibrated_recall@20,calibrated_recall@50,ndcg@100"


@data_options
def compare(
    choice: DataChoice,
    models: Annotated[str, typer.Option(help="Names of the models, separated by commas.")] = "popularity,slim,ease",
    splits: Annotated[int, typer.Option(help="Number of random splits.", min=1)] = 1,
    seed: Annotated[int, typer.Option(help="Seed of the first split; the others follow.", min=0)] = 0,
    metrics: Annotated[str, typer.Option(help="Metrics, separated by commas.")] = _METRICS,
    settings: SetOption = None,
    as_json: JsonOption = False,
    file: Annotated[Path | None, typer.Option("--out", help="File for the results as JSON.")] = None,
    page: Annotated[Path | None, typer.Option(help="File for a report page (HTML).")] = None,
) -> None:
    """Compare models on the same users of the same splits."""
    from recfusion.cli.output import note, out, print_json, print_protocol, print_results, progress, working
    from recfusion.core.files import check_writable, write_json
    from recfusion.data.load import load
    from recfusion.data.protocol import Protocol
    from recfusion.evaluation.metrics import parse_metric
    from recfusion.experiments.compare import compare as run
    from recfusion.experiments.results import result_document
    from recfusion.models.registry import make_model
    from recfusion.report.page import write_page

    chosen = _settings_by_model(_names(models), parse_settings(settings))
    for name, its_settings in chosen.items():
        make_model(name, its_settings)
    names = tuple(_names(metrics))
    for name in names:
        parse_metric(name)
    for path in (file, page):
        if path is not None:
            check_writable(path)
    with working(f"Reading {choice.source.data}"):
        data = load(choice.source, choice.preparation)
    protocol = Protocol.of(data, choice.plan, names)
    runs = []
    with progress("Comparing", splits * len(chosen)) as advance:
        for done in run(data, chosen, range(seed, seed + splits), plan=choice.plan, metrics=names):
            runs.append(done)
            judged = 100 * done.test.mean()[names[-1]]
            advance(f"split {done.seed}, {done.name}: {names[-1]} {judged:.2f}, fitted in {done.fit_seconds:.1f} s")
    document = result_document(protocol, runs)
    if as_json:
        print_json(document)
    else:
        console = out()
        print_protocol(console, protocol)
        print_results(console, document)
    if file is not None:
        write_json(file, document)
        note(f"Results written to {file}")
    if page is not None:
        write_page(document, page)
        note(f"Report written to {page}")


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _settings_by_model(names: list[str], settings: dict[str, str]) -> dict[str, dict[str, str]]:
    """Return name -> its settings, from `model.setting` keys."""
    from recfusion.core.errors import InputError, choices

    if not names:
        raise InputError("Expected at least one model in --models, got none.")
    chosen: dict[str, dict[str, str]] = {name: {} for name in names}
    for key, value in settings.items():
        name, dot, setting = key.partition(".")
        if not dot:
            raise InputError(f"Expected --set MODEL.NAME=VALUE, got '{key}={value}': say which model it is for.")
        if name not in chosen:
            raise choices("model in --set", name, names)
        chosen[name][setting] = value
    return chosen
