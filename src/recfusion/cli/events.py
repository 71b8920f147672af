"""`recfusion events`: exports, compares and deletes the events that a service recorded."""

import sys
from contextlib import closing
from pathlib import Path
from typing import Annotated, cast, get_args

from rich.table import Table
from typer import Argument, Option

from recfusion.cli.options import JsonOption
from recfusion.cli.output import counted, literal, note, out, print_json
from recfusion.core.errors import InputError, choices
from recfusion.data.reading.formats import table_writer
from recfusion.data.reading.ids import id_text
from recfusion.server.event_reports import all_rows, purchases_and_returns
from recfusion.server.event_store import Store
from recfusion.server.outcomes import Group, Measure, compare_outcomes

FileArgument = Annotated[Path, Argument(metavar="FILE", help="The file of events that serve wrote.")]


def events_export(
    file: FileArgument,
    target: Annotated[Path, Option("--out", help="csv, tsv, parquet or jsonl file to write.")],
    everything: Annotated[bool, Option("--all", help="Export all events, with clicks.")] = False,
) -> None:
    """Export user, item, quantity (below 0 for a return) and time of purchases and returns."""
    with closing(Store(file, create=False)) as store, table_writer(target) as write:
        rows = all_rows(store) if everything else purchases_and_returns(store)
        write(rows)
    note(f"{counted(len(rows), 'row')} of {counted(rows['user'].n_unique(), 'user')} written to {target}")


def events_report(
    file: FileArgument,
    by: Annotated[str, Option(help=f"{' or '.join(get_args(Group))}: what to compare.")] = "model",
    as_json: JsonOption = False,
) -> None:
    """Compare click-through, conversion and revenue of models or placements; the intervals may be checked daily."""
    if by not in get_args(Group):
        raise choices("group", by, get_args(Group), "by")
    with closing(Store(file, create=False)) as store, store.undamaged():
        outcomes, differences = compare_outcomes(store, cast(Group, by))
    if as_json:
        print_json({"outcomes": [vars(one) for one in outcomes], "differences": [vars(one) for one in differences]})
        return
    if not outcomes:
        note("No lists have been shown yet.")
        return
    table = Table("measure", by, "lists", "total", "per list", "95 % interval, at any time")
    for one in outcomes:
        rate, low, high = (_amount(one.measure, value) for value in (one.rate, *one.ci95))
        table.add_row(one.measure, literal(one.name), f"{one.lists:,}", f"{one.total:,.10g}", rate, f"{low} to {high}")
    out().print(table)
    for two in differences:
        value, low, high = (_amount(two.measure, value, sign="+") for value in (two.difference, *two.ci95))
        out().print(f"{two.measure}, {two.name} against {two.than}: {value} ({low} to {high})", markup=False)


def _amount(measure: Measure, value: float, sign: str = "") -> str:
    return f"{value:{sign},.4f}" if measure == "revenue" else f"{100 * value:{sign}.2f} %"


def events_forget(
    file: FileArgument,
    user: Annotated[
        str | None, Option(help="Id of the user; without it, ids are read from standard input, one per line.")
    ] = None,
) -> None:
    """Delete all events of users; the service then knows nothing about them."""
    users = list(filter(None, map(id_text, [user] if user is not None else sys.stdin)))
    if not users:
        raise InputError("Expected the id of a user with --user, or ids on standard input, one per line.", "user")
    with closing(Store(file, create=False)) as store:
        deleted = store.forget_for_good(users)
    note(f"{counted(deleted, 'event')} of {counted(len(users), 'user')} deleted from {file}")


def events_clear(
    file: FileArgument,
    item: Annotated[list[str] | None, Option(help="Id of an item; may be repeated.")] = None,
    column: Annotated[list[str] | None, Option(help="Column of the item table; may be repeated.")] = None,
) -> None:
    """Clear item columns that were changed with PUT /items: those of some items or columns, or all."""
    with closing(Store(file, create=False)) as store, store.writing():
        cleared = store.clear_changes(item or (), column or ())
    note(f"{counted(cleared, 'changed value')} cleared from {file}")
