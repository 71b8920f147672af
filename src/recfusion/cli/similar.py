"""`recfusion similar`: the most similar items to an item."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from recfusion.cli.options import JsonOption, TrustOption, trusted_classes
from recfusion.cli.output import print_json
from recfusion.cli.request_options import print_items, request_options
from recfusion.inference.bundle import Bundle
from recfusion.inference.request import ItemFilters
from recfusion.inference.similar import similar as find_similar


@request_options
def similar(
    folder: Annotated[Path, Argument(help="A model folder.")],
    item: Annotated[str, Argument(help="Id of an item.")],
    filters: ItemFilters,
    k: Annotated[int, Option("-k", help="Length of the list.", min=1)] = 8,
    trust: TrustOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the most similar items according to the model, corrected for popularity."""
    bundle = Bundle.load(folder, trust=trusted_classes(trust))
    found = find_similar(bundle, item, k, filters)
    if as_json:
        print_json({"model": bundle.name, "item": item, "similar": found.to_dicts()})
    else:
        print_items(found, f"Like {item}, by {bundle.name} on {bundle.protocol.name}")
