"""`recfusion complete`: further items for a basket, shelf or playlist."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from recfusion.cli.options import JsonOption, TrustOption, trusted_classes
from recfusion.cli.output import print_json
from recfusion.cli.request_options import control_options, print_items
from recfusion.inference.baskets import complete as find
from recfusion.inference.bundle import Bundle
from recfusion.inference.filters import Rules


@control_options
def complete(
    folder: Annotated[Path, Argument(help="A model folder.")],
    history: Annotated[str, Option(help="Ids of the items in the basket, separated by commas.")],
    rules: Rules,
    n: Annotated[int, Option("-n", help="How many items to add.", min=1)] = 5,
    alternatives: Annotated[int, Option(help="Completions to choose from; no two share an item.", min=1)] = 1,
    together: Annotated[float, Option(help="0 to 1: how much they should go together; 0: the best ones.")] = 0.25,
    seed: Annotated[int | None, Option(help="Draw the completions by this seed; they may share items.", min=0)] = None,
    trust: TrustOption = None,
    as_json: JsonOption = False,
) -> None:
    """Complete a basket, shelf or playlist with items that go together."""
    bundle = Bundle.load(folder, trust=trusted_classes(trust))
    basket = [text.strip() for text in history.split(",") if text.strip()]
    found = find(bundle, basket, n, alternatives=alternatives, together=together, rules=rules, seed=seed)
    if as_json:
        print_json({"model": bundle.name, "completions": found.to_dicts()})
    else:
        print_items(found, f"{bundle.name} on {bundle.protocol.name}")
