"""`recfusion judge`: evaluate the lists of another program under the protocol of an exported split."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from recfusion.cli.options import JsonOption
from recfusion.cli.output import note, print_json, working
from recfusion.cli.result_output import print_protocol, print_results
from recfusion.core.errors import InputError
from recfusion.core.files import check_writable_file
from recfusion.experiments.candidate import check_label
from recfusion.experiments.comparison import Comparison
from recfusion.experiments.foreign_lists import deepest, judge_lists, read_lists
from recfusion.experiments.result import append_result, is_store, read_results
from recfusion.experiments.split_export import read_split


def judge(
    lists: Annotated[Path, Argument(help="Lists or scores: a table with columns user and item, and score or rank.")],
    split: Annotated[Path, Argument(help="Folder that `recfusion split export` wrote.")],
    label: Annotated[str, Option(help="Name of the program or model in tables.")],
    store: Annotated[Path, Option("--out", help="Store of results, for example that of `recfusion compare`.")],
    score: Annotated[str | None, Option(help="Column with scores, the highest first.")] = None,
    rank: Annotated[str | None, Option(help="Column with ranks, the lowest first.")] = None,
    data: Annotated[str | None, Option(help="New place of the same data, if it has moved.")] = None,
    fit_seconds: Annotated[float, Option(help="Seconds of the program's fit, for the table of costs.", min=0)] = 0.0,
    trials: Annotated[int | None, Option(help="Trials of its search for settings.", min=0)] = None,
    as_json: JsonOption = False,
) -> None:
    """Evaluate lists of another program on an exported split, and add the result to a store.

    Seen, repeated and unknown items are removed, as for every model, and counted, like short and missing lists. The
    store's other results of the same protocol are shown beside it, with intervals and paired tests.
    """
    check_label(label)
    check_writable_file(store)
    if store.is_file() and not is_store(store):
        raise InputError(f"Expected a store of results at '{store}', got something else: name another file.", "out")
    if not lists.is_file():
        raise InputError(f"Expected a file of lists at '{lists}', got nothing: check the path.", "lists")
    with working(f"Judging {lists.name}"):
        interactions, protocol, parts = read_split(split, data)
        k = deepest(protocol.metrics)
        items, notes = read_lists(lists, interactions, parts.test, k, score=score, rank=rank)
        result = judge_lists(items, label, interactions, protocol, parts, fit_seconds=fit_seconds, trials=trials)
    append_result(store, result)
    for remark in notes:
        note(f"{lists.name}: {remark}.")
    comparison = Comparison.of([one for one in read_results(store) if one.protocol.hash == protocol.hash])
    if as_json:
        print_json(comparison.document() | {"notes": list(notes)})
    else:
        print_results(print_protocol(protocol), comparison)
