"""`recfusion split`: write a split as files for other programs."""

from pathlib import Path
from typing import Annotated

from typer import Option

from recfusion.cli.data_options import DataChoice
from recfusion.cli.output import note
from recfusion.cli.request_options import request_options, split_commas
from recfusion.evaluation.metrics import DEFAULT_METRICS
from recfusion.experiments.custom_metric import named_metrics
from recfusion.experiments.split_export import ExportForm, export_split


@request_options
def split_export(
    choice: DataChoice,
    out: Annotated[Path, Option(help="Folder for the files.")],
    form: Annotated[ExportForm, Option("--for", help="The program that reads the files.")] = "csv",
    seed: Annotated[int, Option(help="Seed of the split.", min=0)] = 0,
    metrics: Annotated[str, Option(help="Metrics that lists will be judged by, separated by commas.")] = ",".join(
        DEFAULT_METRICS
    ),
) -> None:
    """Write train, validation and test files with the ids of a split, for csv, RecBole, Elliot, LensKit or RecPack.

    `recfusion judge` evaluates lists that another program makes from them. Test users of a strong split are not in the
    training users: their shown items are in test_history.csv, or among the training rows for the other programs.
    """
    names = named_metrics(split_commas(metrics))
    counts = export_split(choice.load(), out, plan=choice.plan, seed=seed, metrics=names, form=form)
    for file, rows in counts.items():
        note(f"{out / file}: {rows:,} rows")
    note(f"Judge lists with: recfusion judge LISTS.csv {out} --label NAME --out STORE.jsonl")
