"""`recfusion complete`: items that complete a basket or playlist."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from recfusion.cli.options import JsonOption, TrustOption, trusted_classes
from recfusion.cli.output import print_json
from recfusion.cli.request_options import print_items, request_options, split_ids
from recfusion.inference.baskets import complete as complete_basket
from recfusion.inference.bundle import Bundle
from recfusion.inference.request import ItemFilters


@request_options
def complete(
    folder: Annotated[Path, Argument(help="A model folder.")],
    history: Annotated[str, Option(metavar="ID,ID", help="Ids of the items in the basket.")],
    filters: ItemFilters,
    n: Annotated[int, Option("-n", help="Number of items to add.", min=1)] = 5,
    alternatives: Annotated[int, Option(help="Number of completions; no two share an item.", min=1)] = 1,
    together: Annotated[
        float, Option(help="Weight of the similarity among the added items; 0: the best single items.", min=0, max=1)
    ] = 0.25,
    seed: Annotated[
        int | None, Option(help="Draw the completions with this seed; they may share items.", min=0)
    ] = None,
    trust: TrustOption = None,
    as_json: JsonOption = False,
) -> None:
    """Complete a basket or playlist with items that go together."""
    bundle = Bundle.load(folder, trust=trusted_classes(trust))
    found = complete_basket(
        bundle, split_ids(history), n, alternatives=alternatives, together=together, filters=filters, seed=seed
    )
    if as_json:
        print_json({"model": bundle.name, "completions": found.to_dicts()})
    else:
        print_items(found, f"{bundle.name} on {bundle.protocol.name}")
