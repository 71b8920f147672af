"""`recfusion similar`: the most similar items to an item."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from recfusion.cli.options import JsonOption, TrustOption, load_bundle
from recfusion.cli.output import counted, note, print_json, progress
from recfusion.cli.request_options import print_items, request_options
from recfusion.core.errors import InputError
from recfusion.data.reading.formats import table_writer
from recfusion.inference.bundle import Bundle
from recfusion.inference.new_items import can_add
from recfusion.inference.request import ItemFilters
from recfusion.inference.similar import similar as find_similar
from recfusion.inference.similar import similar_batches


@request_options
def similar(
    folder: Annotated[Path, Argument(help="A model folder.")],
    filters: ItemFilters,
    item: Annotated[str | None, Argument(help="Id of an item.")] = None,
    every: Annotated[bool, Option("--all", help="Write the similar items of all items to a file.")] = False,
    file: Annotated[Path | None, Option("--out", help="With --all: csv, parquet or jsonl file to write.")] = None,
    k: Annotated[int, Option("-k", help="Length of the list.", min=1)] = 8,
    trust: TrustOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the most similar items according to the model, corrected for popularity."""
    if (item is None) != every or every != (file is not None):
        raise InputError("Expected either the id of an item, or --all with --out FILE (csv, parquet or jsonl).", "item")
    bundle = load_bundle(folder, trust)
    if file is not None:
        _write_all(bundle, k, filters, file)
        return
    found = find_similar(bundle, item, k, filters)
    if as_json:
        print_json({"model": bundle.name, "item": item, "similar": found.to_dicts()})
    else:
        print_items(found, f"Like {item}, by {bundle.name} on {bundle.protocol.name}")


def _write_all(bundle: Bundle, k: int, filters: ItemFilters, file: Path) -> None:
    with table_writer(file) as write, progress("Searching", len(bundle.items)) as advance:
        written = 0
        for found in similar_batches(bundle, k, filters):
            write(found)
            written += found["item"].n_unique()
            advance("", found["item"].n_unique())
    note(f"{counted(written, 'list')} of up to {k} similar items written to {file}")
    if missing := len(bundle.items) - written:
        why = "no known feature" if can_add(bundle) else "no purchases with others (the model reads no features)"
        note(f"Without a list: {counted(missing, 'item')} with {why}, or without items that the filters allow")
