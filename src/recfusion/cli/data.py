"""`recfusion data`: the catalog, fetching, and a look at a data set."""

from typing import Annotated, Any

import typer

from recfusion.cli.options import DataChoice, JsonOption, data_options

app = typer.Typer(no_args_is_help=True, help="List, fetch and describe data sets.")


@app.command("list")
def list_sets(as_json: JsonOption = False) -> None:
    """List the named data sets and where they are on this machine."""
    from rich.table import Table

    from recfusion.cli.output import out, print_json
    from recfusion.data.catalog import CATALOG, locate

    places = {name: locate(name) for name in CATALOG}
    if as_json:
        print_json(
            {
                name: {"title": entry.title, "here": places[name] is not None, "licence": entry.licence}
                for name, entry in CATALOG.items()
            }
        )
        return
    table = Table()
    for column in ("name", "what", "where"):
        table.add_column(column, no_wrap=column == "name")
    for name, entry in CATALOG.items():
        place = places[name]
        absent = f"not here: recfusion data fetch {name}" if entry.url else "not here, and no longer published"
        table.add_row(name, entry.title, "in the package" if name == "ml-latest-small" else str(place or absent))
    out().print(table)


@app.command("fetch")
def fetch_set(name: Annotated[str, typer.Argument(help="A name of the catalog.")]) -> None:
    """Download a data set from its publisher, check it and keep it in the cache."""
    from recfusion.cli.output import download, note
    from recfusion.data.fetch import fetch

    with download(f"Fetching {name}") as on_progress:
        path = fetch(name, on_progress=on_progress)
    note(f"{name} is at {path}")


@app.command("describe")
@data_options
def describe(
    data: Annotated[str, typer.Argument(help="A name of the catalog, or a file.")],
    choice: DataChoice,
    seed: Annotated[int, typer.Option(help="Seed of the split that is counted.", min=0)] = 0,
    as_json: JsonOption = False,
) -> None:
    """Show what a data set holds: how it was read and prepared, and the counts of a split."""
    import numpy as np
    from rich.table import Table

    from recfusion.cli.output import note, out, print_json, print_protocol, working
    from recfusion.core.arrays import column_counts
    from recfusion.core.errors import InputError
    from recfusion.data.load import load
    from recfusion.data.protocol import Protocol, split_counts
    from recfusion.data.split import split
    from recfusion.evaluation.metrics import DEFAULT_METRICS

    with working(f"Reading {data}"):
        found = load(choice.source, choice.preparation)
    protocol = Protocol.of(found, choice.plan, DEFAULT_METRICS)
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
    console = out()
    print_protocol(console, protocol)
    table = Table(title="Preparation", title_justify="left")
    for column in ("step", "users", "items", "interactions"):
        table.add_column(column, justify="left" if column == "step" else "right")
    for step in found.steps:
        table.add_row(step.step, f"{step.users:,}", f"{step.items:,}", f"{step.interactions:,}")
    console.print(table)
    table = Table(title=f"Split {protocol.split_id(seed)} (validation and test: what is shown)", title_justify="left")
    for column in ("part", "users", "active items", "interactions"):
        table.add_column(column, justify="left" if column == "part" else "right")
    for part, numbers in counts.items():
        table.add_row(part, *(f"{number:,}" for number in numbers.values()))
    if counts:
        console.print(table)
    console.print(
        f"{100 * facts['density']:.2f} % of all cells are ones; a user has {np.median(per_user):g} items "
        f"and an item {np.median(per_item):g} users (medians)."
    )
