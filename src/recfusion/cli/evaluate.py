"""`recfusion evaluate`: evaluate a saved model on the test users of its split."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

from rich.console import Console
from typer import Argument, Option

from recfusion.cli.options import JsonOption, TrustOption, load_bundle
from recfusion.cli.output import note, print_json, working
from recfusion.cli.request_options import request_options
from recfusion.cli.result_output import interval_text, print_groups, print_protocol
from recfusion.core.errors import InputError
from recfusion.experiments.column_report import report_by
from recfusion.experiments.custom_metric import main_metric
from recfusion.experiments.list_report import ListReport, report_lists
from recfusion.experiments.train import evaluate_bundle
from recfusion.inference.request import Filters, Reranking


@request_options
def evaluate(
    folder: Annotated[Path, Argument(help="A model folder.")],
    filters: Filters,
    reranking: Reranking,
    k: Annotated[int, Option("-k", help="Length of the lists of the report.", min=1)] = 10,
    data: Annotated[str | None, Option(help="New place of the same data, if it has moved.")] = None,
    users_file: Annotated[
        str | None,
        Option(help="New place of the file of users, if it has moved; for models with user features."),
    ] = None,
    by: Annotated[
        str | None, Option(help="Also show results by a column of the items, or of --users-file.", metavar="COLUMN")
    ] = None,
    trust: TrustOption = None,
    as_json: JsonOption = False,
) -> None:
    """Evaluate a saved model on the test users of its split, rebuilt from its protocol; other data is refused.

    With filters or re-ranking weights, it also prints what these rules cost: metrics with and without them. A report
    says which products the lists show, and how much better they are than bestsellers.
    """
    bundle = load_bundle(folder, trust)
    source = bundle.protocol.source if data is None else bundle.protocol.source.moved_to(data)
    if users_file is not None:
        if "user_features" not in bundle.protocol.signals.used and by is None:
            raise InputError("This model reads no user features: leave out --users-file.", "users_file")
        source = source.model_copy(update={"users_file": users_file})
    split = bundle.protocol.split_id(bundle.seed)
    with working(f"Evaluating {bundle.name} on the test users of split {split}"):
        metrics = evaluate_bundle(bundle, source)
        report = None
        if len(bundle.items) == bundle.protocol.items or filters != Filters() or reranking != Reranking():
            report = report_lists(bundle, source, filters=filters, reranking=reranking, k=k)
        groups = None if by is None else report_by(bundle, by, source, k)
    if as_json:
        document = {"protocol": bundle.protocol.document(), "split": split, "models": {bundle.name: metrics}}
        more = {"lists": report, "by": groups}
        print_json(document | {name: asdict(found) for name, found in more.items() if found is not None})
    else:
        console = print_protocol(bundle.protocol)
        _print_report(console, metrics, report)
        if groups:
            print_groups(console, [groups])
    try:
        replace(bundle, metrics=bundle.metrics | {"test": metrics}).save(folder)
    except InputError as error:
        note(f"The results were not added to the model folder: {error}")


def _print_report(console: Console, metrics: dict[str, Any], report: ListReport | None) -> None:
    for metric, value in metrics.items():
        interval = interval_text(value.get("ci95"))
        console.print(f"test {metric}: {100 * value['mean']:.2f}{interval}")
        if report and report.costs and report.ruled and metric in report.costs:
            cost = report.costs[metric]
            difference = f"{100 * cost.difference:+.2f}{interval_text(cost.ci95, '+')}"
            console.print(f"  with these rules: {100 * report.ruled[metric]:.2f}, a difference of {difference}")
    if report is None:
        return
    lines = [report.shown.sentence(report.k)]
    if report.costs and report.ruled_shown:
        main = main_metric([*report.costs])
        lines += [f"With these rules: {report.ruled_shown.sentence(report.k)}", report.cost_sentence(main)]
    for line in (*lines, report.gain.sentence(report.k)):
        console.print(line, markup=False, soft_wrap=True)
