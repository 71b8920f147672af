"""`recfusion data`: the catalog, fetching, and a look at a data set."""

from collections.abc import Iterable
from dataclasses import astuple, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from rich.table import Column, Table
from typer import Argument, Option

from recfusion.cli.options import DataChoice, JsonOption, data_options
from recfusion.cli.output import download, if_stopped, note, out, print_json, print_prepared, print_protocol, working
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
    """List the named data sets and where they are on this machine."""
    places = {name: locate(name) for name in CATALOG}
    if as_json:
        print_json(
            {
                name: {"title": entry.title, "here": places[name] is not None, "licence": entry.licence}
                for name, entry in CATALOG.items()
            }
        )
        return
    table = Table(Column("name", no_wrap=True), "what", "where")
    for name, entry in CATALOG.items():
        absent = f"not here: recfusion data fetch {name}" if entry.url else f"not here, and {entry.absent}"
        place = "in the package" if entry.layout.embedded else str(places[name] or absent)
        table.add_row(name, entry.title, place)
    out().print(table)


def data_fetch(name: Annotated[str, Argument(help="A name of the catalog.")]) -> None:
    """Download a data set from its publisher, check it and keep it in the cache."""
    with download(f"Fetching {name}") as on_progress:
        path = fetch(name, on_progress=on_progress)
    note(f"{name} is at {path}")


@data_options
def data_describe(
    data: Annotated[str, Argument(help="A name of the catalog, or a file.")],  # noqa: ARG001
    choice: DataChoice,
    seed: Annotated[int, Option(help="Seed of the split that is counted.", min=0)] = 0,
    as_json: JsonOption = False,
) -> None:
    """Show what a data set holds: how it was read and prepared, and the counts of a split."""
    found = choice.load()
    used = used_signals(choice.signals, found)
    protocol = Protocol.of(found, choice.plan, DEFAULT_METRICS, used)
    try:
        counts = split_counts(split(found, choice.plan, seed=seed))
    except InputError as error:  # worth a look all the same
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
        title = f"Split {protocol.split_id(seed)} (validation and test: what is shown)"
        parts = ((part, *numbers.values()) for part, numbers in counts.items())
        console.print(_counted(title, "part", "active items", parts))
    console.print(
        f"{100 * facts['density']:.2f} % of all cells are ones; a user has {np.median(per_user):g} items "
        f"and an item {np.median(per_item):g} users (medians)."
    )


@data_options
def data_prepare(
    choice: DataChoice,
    folder: Annotated[Path, Option("--out", help="Folder for the prepared data, which --data then takes.")],
) -> None:
    """Prepare a table of your own into a folder that is read at once from then on.

    Stopped or killed and started again, it goes on with the rows that were not read.
    """
    if choice.plan != SplitPlan() or choice.used != SignalChoice():
        raise InputError("Data is split when it is used: leave out the options of the split and of signals here.")
    with if_stopped("What is read is kept"), working(f"Reading {choice.source.data}") as tell:
        fresh = prepare_folder(
            *(choice.source, choice.preparation, folder), on_rows=lambda done: tell(f"{done:,} rows are read")
        )
    print_prepared(folder, fresh)


def data_generate(
    folder: Annotated[Path, Option("--out", help="Folder for the files.")],
    preset: Annotated[
        Literal["ml-20m", "netflix", "shop"] | None, Option(help="A size and form to begin with.")
    ] = None,
    users: Annotated[int | None, Option(help="How many users.")] = None,
    items: Annotated[int | None, Option(help="How many items.")] = None,
    interactions: Annotated[int | None, Option(help="How many pairs of a user and an item.")] = None,
    seed: Annotated[int, Option(help="The same seed gives the same files.", min=0)] = 0,
    form: Annotated[
        Form | None, Option(help="CSV or Parquet with text ids, or a published layout with ratings; else the preset's.")
    ] = None,
) -> None:
    """Write made-up interactions of any size, with items, for tests of speed and memory."""
    start = PRESETS[preset or "shop"]
    size = {"users": users, "items": items, "interactions": interactions}
    if preset is None and None in size.values():
        raise InputError("Expected --users, --items and --interactions, or a --preset: name them.")
    wanted = replace(start.size, **{name: value for name, value in size.items() if value is not None})
    with working(f"Generating {wanted.interactions:,} interactions") as tell:
        names = generate(
            *(wanted, seed, form or start.form, folder), on_rows=lambda done: tell(f"{done:,} rows are written")
        )
    note(f"Wrote {', '.join(names)} to {folder}")


def _counted(title: str, of: str, items: str, rows: Iterable[tuple[Any, ...]]) -> Table:
    """Return a table of how many users, items and interactions something has."""
    heads = (Column(name, justify="right") for name in ("users", items, "interactions"))
    table = Table(of, *heads, title=title, title_justify="left")
    for name, *numbers in rows:
        table.add_row(name, *(f"{number:,}" for number in numbers))
    return table
