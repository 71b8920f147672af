"""`recfusion nightly`: the nightly run of a shop, from orders and events to a reloaded service."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Exit, Option

from recfusion.cli.options import JsonOption
from recfusion.cli.output import note, out, plain, print_json, training
from recfusion.nightly.config import read_shop
from recfusion.nightly.run import run_night

REFUSED, NOT_NOTIFIED = 3, 4  # exit codes


def nightly(
    file: Annotated[Path, Argument(metavar="SHOP.toml", help="The file that describes the shop.")],
    dry_run: Annotated[bool, Option("--dry-run", help="Read, compare and fit, but write nothing.")] = False,
    accept_drop: Annotated[
        bool, Option("--accept-drop", help="Accept data with far fewer rows, customers or products than last time.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Train the better one of two recipes on orders and events, replace the model folder and reload the service.

    Exit code 0: the model folder is that of today. 2: wrong input. 3: refused, since the data is far smaller than last
    time. 4: the folder is replaced, but the service could not be asked to load it.
    """
    shop = read_shop(file)
    with training(f"Running the night of {file.name}") as on_epoch:
        night, repeated = run_night(
            shop, dry_run=dry_run, accept_drop=accept_drop, on_phase=lambda phase: note(f"  {phase}"), on_epoch=on_epoch
        )
    for sentence in (*night.choices, night.sentence, *night.comparison.get("answers", ())):
        note(sentence)
    if repeated:
        note("Nothing has changed since that run.")
    if as_json:
        print_json(night.model_dump(mode="json"))
    else:
        out().print(plain(night.line()), markup=False, soft_wrap=True)
    if night.outcome == "refused":
        raise Exit(REFUSED)
    if not night.notified:
        note(f"The service at {shop.service} was {night.service}: check its address and admin_key_env.")
        raise Exit(NOT_NOTIFIED)
