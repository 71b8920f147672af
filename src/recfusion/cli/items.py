"""`recfusion items`: adds new items to a trained model."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from recfusion.cli.output import counted, note
from recfusion.cli.request_options import source_options
from recfusion.core.files import check_replaceable
from recfusion.data.options import Source
from recfusion.data.reading.item_file import read_items
from recfusion.inference.bundle_files import CONFIG
from recfusion.inference.new_items import add_items


@source_options("item", "separator", "encoding", "date_format", panel="File of items")
def items_add(
    folder: Annotated[Path, Argument(help="A model folder; the model must read item features.")],
    source: Source,
    items: Annotated[Path, Option(help="A file with a row per new item: its id and its feature columns.")],
    out: Annotated[Path, Option("--out", help="Folder for the model with the new items.")],
) -> None:
    """Add new items to a model from their features, without training it again."""
    check_replaceable(out, CONFIG)
    result = add_items(folder, read_items(items, source.item, source.separator, source=source), out)
    known = f"the model knows {result.known:,} of their {result.given:,} features"
    note(f"Added {counted(result.added, 'item')}; {known}; saved to {out}")
    if result.existing:
        note(f"Unchanged: {counted(result.existing, 'item')} that the model already has")
    if result.without:
        note(f"Not recommended: {counted(result.without, 'new item')} without a known feature")
    if result.absent:
        note(f"Feature columns missing from the file: {', '.join(result.absent)}")
    if result.columns:
        note(f"New columns, without values for items that are not in the file: {', '.join(result.columns)}")
    for column, count in result.unfit.items():
        note(f"Missing now: {counted(count, 'value')} of {column} that do not fit the type of the model's column")
