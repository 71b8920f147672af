"""`recfusion compare`: compare models on the same splits, with intervals and paired tests."""

import re
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from typer import Option

from recfusion.cli.data_options import DataChoice
from recfusion.cli.options import (
    DecidingOption,
    JsonOption,
    SetOption,
    TuneOption,
    UserIdsOption,
    WorkersOption,
    parse_settings,
)
from recfusion.cli.output import note, print_json
from recfusion.cli.request_options import request_options, split_commas
from recfusion.cli.result_output import print_groups, print_protocol, print_results
from recfusion.cli.run import KeepStaleOption, leave_on_failures, shown
from recfusion.core.errors import InputError
from recfusion.core.files import check_writable_file
from recfusion.evaluation.metrics import DEFAULT_METRICS
from recfusion.experiments.candidate import parse_models
from recfusion.experiments.column_report import check_user_column, compare_by
from recfusion.experiments.comparison import Comparison
from recfusion.experiments.custom_metric import check_search_metric, deciding_metric, main_metric, named_metrics
from recfusion.experiments.rules import rules_document
from recfusion.experiments.run import run_candidates
from recfusion.inference.request import Filters, Reranking
from recfusion.models.registry import DEFAULT_MODEL
from recfusion.report.page import write_page


@request_options
def compare(
    choice: DataChoice,
    filters: Filters,
    reranking: Reranking,
    models: Annotated[
        str, Option(help="Models, separated by commas: a name, file.py:Class, or LABEL=either.")
    ] = f"popularity,ease,{DEFAULT_MODEL}",
    splits: Annotated[int, Option(help="Number of random splits.", min=1)] = 1,
    seed: Annotated[int, Option(help="Seed of the first split; the others follow.", min=0)] = 0,
    metrics: Annotated[
        str, Option(help="Metrics, separated by commas: a name with @K, or file.py:function@K.")
    ] = ",".join(DEFAULT_METRICS),
    deciding: DecidingOption = None,
    settings: SetOption = None,
    tune_trials: TuneOption = None,
    tune: Annotated[
        int | None, Option(help="Equal budgets: trials of a search for every model, on each split.", min=1)
    ] = None,
    workers: WorkersOption = None,
    user_ids: UserIdsOption = False,
    by: Annotated[
        str | None,
        Option(help="Also show results by a column of --users-file, from the stored fits.", metavar="COLUMN"),
    ] = None,
    keep_stale: KeepStaleOption = False,
    as_json: JsonOption = False,
    store: Annotated[
        Path | None, Option("--out", help="Store of the results, one JSON line each (default: comparisons/DATA.jsonl).")
    ] = None,
    page: Annotated[Path | None, Option(help="File for a report page (HTML).")] = None,
) -> None:
    """Compare models on the same users of the same splits.

    Each result is saved at once: after an interruption, the same command resumes. Stored results of older code are
    fitted again, unless --keep-stale is given. With filters or re-ranking weights, the lists of the test users are made
    under these rules, and it says what they cost each model.
    """
    chosen = parse_models(models, parse_settings(settings), tune_trials, tune)
    names = named_metrics(split_commas(metrics))
    ranked_by = deciding_metric(deciding, names)
    check_search_metric(ranked_by, names, chosen)
    for path in (store, page):
        if path is not None:
            check_writable_file(path)
    rules, data = rules_document(filters, reranking), choice.load()
    if by is not None:
        check_user_column(data.user_table, by)
    seeds = tuple(range(seed, seed + splits))
    store = store or _default_store(data.name)
    with shown("Comparing", store, ranked_by or main_metric(names)) as on_event:
        summary = run_candidates(
            data,
            [(candidate, seeds) for candidate in chosen],
            plan=choice.plan,
            metrics=names,
            signals=choice.signals,
            store=store,
            workers=workers,
            user_ids=user_ids,
            keep_stale=keep_stale,
            rules=rules,
            on_event=on_event,
        )
    if summary.results:
        comparison = Comparison.of(summary.results, deciding=ranked_by)
        groups = {} if by is None else compare_by(summary.results, by, data, comparison.main_metric)
        if as_json:
            more = {"by": {label: asdict(report) for label, report in groups.items()}} if groups else {}
            print_json(comparison.document() | more)
        else:
            console = print_protocol(summary.protocol)
            print_results(console, comparison)
            if groups:
                print_groups(console, [*groups.values()], [f"{label}, " for label in groups])
            console.print(comparison.advice(), markup=False, soft_wrap=True)
        if page is not None:
            note(f"Report written to {write_page(comparison, page)}")
    leave_on_failures(summary)


def _default_store(data: str) -> Path | None:
    """Return the default store, or None if this folder cannot be written to."""
    path = Path("comparisons") / (re.sub(r"[^\w.-]", "_", data) + ".jsonl")
    try:
        check_writable_file(path)
    except InputError:
        note("Results are not saved, because this folder cannot be written to: name a file with --out.")
        return None
    return path
