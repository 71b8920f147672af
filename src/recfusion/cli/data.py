"""`recfusion data`: list, fetch, describe, prepare and generate data sets."""

from collections.abc import Iterable
from dataclasses import astuple, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from rich.table import Column, Table
from typer import Argument, Option

from recfusion.cli.data_options import DataChoice
from recfusion.cli.options import JsonOption
from recfusion.cli.output import download, if_stopped, note, out, print_json, working
from recfusion.cli.request_options import request_options
from recfusion.cli.result_output import print_prepared, print_protocol
from recfusion.core.arrays import column_counts
from recfusion.core.errors import InputError
from recfusion.data.catalog import CATALOG, locate
from recfusion.data.options import SignalChoice, SplitPlan
from recfusion.data.prepared_folder import prepare_folder
from recfusion.data.protocol import Protocol, split_counts
from recfusion.data.published.fetch import fetch
from recfusion.data.signals import used_signals
from recfusion.data.split import split
from recfusion.data.synthetic_files import PRESETS, Form, generate
from recfusion.evaluation.metrics import DEFAULT_METRICS


def data_list(as_json: JsonOption = False) -> None:
    """List the named data sets and their local copies."""
    places = {name: locate(name) for name in CATALOG}
    if as_json:
        here = {name: place is not None for name, place in places.items()}
        print_json({name: {"title": e.title, "here": here[name], "licence": e.licence} for name, e in CATALOG.items()})
        return
    table = Table(Column("name", no_wrap=True), "what", "where")
    for name, entry in CATALOG.items():
        absent = f"missing: recfusion data fetch {name}" if entry.url else f"missing: {entry.absent}"
        place = "in the package" if entry.layout.embedded else str(places[name] or absent)
        table.add_row(name, entry.title, place)
    out().print(table)


def data_fetch(name: Annotated[str, Argument(help="A name of the catalog.")]) -> None:
    """Download a data set from its publisher, verify it and store it in the cache."""
    with download(f"Fetching {name}") as on_progress:
        path = fetch(name, on_progress=on_progress)
    note(f"{name} is at {path}")


@request_options
def data_describe(
    data: Annotated[str, Argument(help="A name of the catalog, or a file.")],  # noqa: ARG001
    choice: DataChoice,
    seed: Annotated[int, Option(help="Seed of the split.", min=0)] = 0,
    as_json: JsonOption = False,
) -> None:
    """Describe a data set: how it was read and prepared, and the counts of a split."""
    found = choice.load()
    used = used_signals(choice.signals, found)
    protocol = Protocol.of(found, choice.plan, DEFAULT_METRICS, used)
    try:
        counts = split_counts(split(found, choice.plan, seed=seed))
    except InputError as error:  # the rest is still useful
        note(str(error))
        counts = {}
    per_user, per_item = np.diff(found.matrix.indptr), column_counts(found.matrix)
    facts: dict[str, Any] = {
        "density": found.n_interactions / (found.n_users * found.n_items),
        "items per user": {q: float(np.quantile(per_user, p)) for q, p in (("median", 0.5), ("p90", 0.9))},
        "users per item": {q: float(np.quantile(per_item, p)) for q, p in (("median", 0.5), ("p90", 0.9))},
    }
    if as_json:
        print_json({"protocol": protocol.document(), "split": counts, "facts": facts})
        return
    console = print_protocol(protocol)
    console.print(_counted("Preparation", "step", "items", map(astuple, found.steps)))
    if counts:
        title = f"Split {protocol.split_id(seed)} (validation and test: the shown histories)"
        parts = ((part, *numbers.values()) for part, numbers in counts.items())
        console.print(_counted(title, "part", "active items", parts))
    console.print(
        f"{100 * facts['density']:.2f} % of all pairs are interactions; a user has {np.median(per_user):g} items "
        f"and an item {np.median(per_item):g} users (medians)."
    )


@request_options
def data_prepare(
    choice: DataChoice,
    folder: Annotated[Path, Option("--out", help="Folder for the prepared data, to use with --data.")],
) -> None:
    """Prepare your own table into a folder that loads quickly.

    The same command resumes after a crash or an interruption.
    """
    if choice.plan != SplitPlan() or choice.used != SignalChoice():
        raise InputError("Data is split when it is used: leave out the split and signal options here.")
    with if_stopped("What is read is kept"), working(f"Reading {choice.source.label}") as show:
        fresh = prepare_folder(
            *(choice.source, choice.preparation, folder), on_rows=lambda done: show(f"{done:,} rows read")
        )
    print_prepared(folder, fresh)


def data_generate(
    folder: Annotated[Path, Option("--out", help="Folder for the files.")],
    preset: Annotated[Literal["ml-20m", "netflix", "shop"] | None, Option(help="A preset size and format.")] = None,
    users: Annotated[int | None, Option(help="Number of users.")] = None,
    items: Annotated[int | None, Option(help="Number of items.")] = None,
    interactions: Annotated[int | None, Option(help="Number of pairs of a user and an item.")] = None,
    seed: Annotated[int, Option(help="The same seed gives the same files.", min=0)] = 0,
    form: Annotated[
        Form | None,
        Option(help="CSV or Parquet with text ids, or a published layout with ratings; default: the preset's."),
    ] = None,
) -> None:
    """Generate synthetic interactions of any size, with items, to test speed and memory."""
    start = PRESETS[preset or "shop"]
    size = {"users": users, "items": items, "interactions": interactions}
    if preset is None and None in size.values():
        raise InputError("Expected --users, --items and --interactions, or a --preset: name them.")
    wanted = replace(start.size, **{name: value for name, value in size.items() if value is not None})
    with working(f"Generating {wanted.interactions:,} interactions") as show:
        names = generate(
            *(wanted, seed, form or start.form, folder), on_rows=lambda done: show(f"{done:,} rows written")
        )
    note(f"Wrote {', '.join(names)} to {folder}")


def _counted(title: str, of: str, items: str, rows: Iterable[tuple[Any, ...]]) -> Table:
    """Return a table with counts of users, items and interactions."""
    heads = (Column(name, justify="right") for name in ("users", items, "interactions"))
    table = Table(of, *heads, title=title, title_justify="left")
    for name, *numbers in rows:
        table.add_row(name, *(f"{number:,}" for number in numbers))
    return table
