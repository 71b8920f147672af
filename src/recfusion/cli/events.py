"""`recfusion events`: what a service recorded, for retraining, for a comparison, or to be deleted."""

import sys
from pathlib import Path
from typing import Annotated

from rich.table import Table
from typer import Argument, Option

from recfusion.cli.options import JsonOption
from recfusion.cli.output import counted, literal, note, out, print_json
from recfusion.core.errors import InputError
from recfusion.data.reading.formats import table_writer
from recfusion.server.event_reports import click_through, every_row, rows_for_training
from recfusion.server.event_store import Store

FileArgument = Annotated[Path, Argument(metavar="FILE", help="The file of events that serve wrote.")]


def events_export(
    file: FileArgument,
    target: Annotated[Path, Option("--out", help="csv, tsv, parquet or jsonl file to write.")],
    everything: Annotated[bool, Option("--all", help="Clicks and returns too, as they were recorded.")] = False,
) -> None:
    """Write what users have come to have as rows of user, item and time, for training."""
    store = Store(file, create=False)
    with table_writer(target) as write:
        rows = every_row(store) if everything else rows_for_training(store)
        write(rows)
    store.close()
    note(f"{counted(len(rows), 'row')} of {counted(rows['user'].n_unique(), 'user')} written to {target}")


def events_report(file: FileArgument, as_json: JsonOption = False) -> None:
    """Compare how often the lists of the served models led to an event."""
    store = Store(file, create=False)
    rates, differences = click_through(store)
    store.close()
    if as_json:
        print_json({"models": [vars(one) for one in rates], "differences": [vars(one) for one in differences]})
        return
    if not rates:
        note("No list was shown yet.")
        return
    table = Table("model", *(f"{name}" for name in ("lists", "clicked", "click-through", "95 % interval")))
    for one in rates:
        low, high = one.ci95
        interval = f"{100 * low:.2f} to {100 * high:.2f} %"
        table.add_row(literal(one.model), f"{one.lists:,}", f"{one.clicked:,}", f"{100 * one.rate:.2f} %", interval)
    out().print(table)
    for two in differences:
        low, high = (100 * end for end in two.ci95)
        told = f"{two.model} against {two.than}: {100 * two.difference:+.2f} points ({low:+.2f} to {high:+.2f})"
        out().print(told, markup=False)


def events_forget(
    file: FileArgument,
    user: Annotated[str | None, Option(help="Id of the user; without it, ids are read from standard input.")] = None,
) -> None:
    """Delete all events of users, whom the service then takes for strangers."""
    users = [user] if user is not None else [line.rstrip("\n") for line in sys.stdin if line.strip()]
    if not users:
        raise InputError("Expected the id of a user with --user, or ids on standard input, one in a line.")
    store = Store(file, create=False)
    with store.writing():
        found = sum(store.forget(one) for one in users)
    store.shrink()
    store.close()
    note(f"{counted(found, 'event')} of {counted(len(users), 'user')} deleted from {file}")
