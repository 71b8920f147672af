"""`recfusion why-not`: why an item is not in a list."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from typer import Argument

from recfusion.cli.options import JsonOption, TrustOption, load_bundle
from recfusion.cli.output import literal, out, print_json
from recfusion.cli.request_options import request_options
from recfusion.inference.request import ListRequest
from recfusion.inference.why_not import why_not as decide


@request_options
def why_not(
    folder: Annotated[Path, Argument(help="A model folder.")],
    item: Annotated[str, Argument(help="Id of an item.")],
    request: ListRequest,
    trust: TrustOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say why an item is not in a list, and what would bring it in."""
    bundle = load_bundle(folder, trust)
    found = decide(bundle, item, request)
    if as_json:
        print_json({"model": bundle.name, **asdict(found)})
        return
    excluded, verb = ", ".join(found.excluded_by), "is" if found.listed else "is not"
    place = f"excluded by {excluded}" if found.rank is None else f"at rank {found.rank:,}"
    out().print(literal(f"{found.name} {verb} in the list of {request.k:,}: it is {place}."))
    for word, reasons in (("For", found.supporting), ("Against", found.opposing)):
        if reasons:
            out().print(literal(f"{word} it: {'; '.join(f'{one.text} ({one.weight:+.3g})' for one in reasons)}"))
    for remedy in found.remedies:
        out().print(literal(f"At rank {remedy.rank:,} {remedy.text}"))
