"""`recfusion items`: what may be done to the items of a model that is there."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from recfusion.cli.output import counted, note
from recfusion.core.files import check_replaceable
from recfusion.data.reading.item_file import read_items
from recfusion.inference.bundle_files import CONFIG
from recfusion.inference.new_items import add_items


def items_add(
    folder: Annotated[Path, Argument(help="A model folder, of a model with features of items.")],
    items: Annotated[Path, Option(help="A file with a row per new item: its id and the columns that describe it.")],
    out: Annotated[Path, Option("--out", help="Folder for the model with the new items.")],
    item: Annotated[str | None, Option(help="Column of the ids; guessed where not given.")] = None,
    separator: Annotated[str | None, Option(help="Separator of a text file.")] = None,
) -> None:
    """Add new items to a model by their features alone; nothing is fitted again."""
    check_replaceable(out, CONFIG)
    found = add_items(folder, read_items(items, item, separator), out)
    share = f"{found.known:,} of {found.given:,} features"
    note(f"Added {counted(found.added, 'item')}, of whose values the model knows {share}; saved to {out}")
    if found.existing:
        note(f"Left as they were: {counted(found.existing, 'item')} that the model has already")
    if found.without:
        note(f"Not recommended on merit: {counted(found.without, 'new item')} without a known feature")
    if found.absent:
        note(f"Columns that the file lacks and the model knows: {', '.join(found.absent)}")
