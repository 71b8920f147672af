"""`recfusion events`: exports, compares and deletes the events that a service recorded."""

import sys
from contextlib import closing
from pathlib import Path
from typing import Annotated

from rich.table import Table
from typer import Argument, Option

from recfusion.cli.options import JsonOption
from recfusion.cli.output import counted, literal, note, out, print_json
from recfusion.core.errors import InputError
from recfusion.data.reading.formats import table_writer
from recfusion.server.event_reports import all_rows, click_through, rows_for_training
from recfusion.server.event_store import Store

FileArgument = Annotated[Path, Argument(metavar="FILE", help="The file of events that serve wrote.")]


def events_export(
    file: FileArgument,
    target: Annotated[Path, Option("--out", help="csv, tsv, parquet or jsonl file to write.")],
    everything: Annotated[bool, Option("--all", help="Export all events, with clicks and returns.")] = False,
) -> None:
    """Export user, item and time of the items that users have, for training."""
    with closing(Store(file, create=False)) as store, table_writer(target) as write:
        rows = all_rows(store) if everything else rows_for_training(store)
        write(rows)
    note(f"{counted(len(rows), 'row')} of {counted(rows['user'].n_unique(), 'user')} written to {target}")


def events_report(file: FileArgument, as_json: JsonOption = False) -> None:
    """Compare the click-through rates of the served models."""
    with closing(Store(file, create=False)) as store:
        rates, differences = click_through(store)
    if as_json:
        print_json({"models": [vars(one) for one in rates], "differences": [vars(one) for one in differences]})
        return
    if not rates:
        note("No lists have been shown yet.")
        return
    table = Table("model", "lists", "clicked", "click-through", "95 % interval")
    for one in rates:
        low, high = one.ci95
        interval = f"{100 * low:.2f} to {100 * high:.2f} %"
        table.add_row(literal(one.model), f"{one.lists:,}", f"{one.clicked:,}", f"{100 * one.rate:.2f} %", interval)
    out().print(table)
    for two in differences:
        low, high = (100 * end for end in two.ci95)
        line = f"{two.model} against {two.than}: {100 * two.difference:+.2f} points ({low:+.2f} to {high:+.2f})"
        out().print(line, markup=False)


def events_forget(
    file: FileArgument,
    user: Annotated[
        str | None, Option(help="Id of the user; without it, ids are read from standard input, one per line.")
    ] = None,
) -> None:
    """Delete all events of users; the service then knows nothing about them."""
    users = [user] if user is not None else [line.rstrip("\n") for line in sys.stdin if line.strip()]
    if not users:
        raise InputError("Expected the id of a user with --user, or ids on standard input, one per line.", "user")
    with closing(Store(file, create=False)) as store:
        with store.writing():
            deleted = sum(store.forget(one) for one in users)
        store.shrink()
    note(f"{counted(deleted, 'event')} of {counted(len(users), 'user')} deleted from {file}")
