"""`recfusion similar`: items like an item."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from recfusion.cli.options import JsonOption, TrustOption, trusted_classes
from recfusion.cli.output import print_json
from recfusion.cli.request_options import control_options, print_items
from recfusion.inference.bundle import Bundle
from recfusion.inference.filters import Rules
from recfusion.inference.similar import similar as find


@control_options
def similar(
    folder: Annotated[Path, Argument(help="A model folder.")],
    item: Annotated[str, Argument(help="Id of an item.")],
    rules: Rules,
    k: Annotated[int, Option("-k", help="Length of the list.", min=1)] = 8,
    trust: TrustOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the items that are most like an item in the model's own eyes, corrected for popularity."""
    bundle = Bundle.load(folder, trust=trusted_classes(trust))
    found = find(bundle, item, k, rules)
    if as_json:
        print_json({"model": bundle.name, "item": item, "similar": found.to_dicts()})
    else:
        print_items(found, f"Like {item}, by {bundle.name} on {bundle.protocol.name}")
