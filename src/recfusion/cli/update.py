"""`recfusion update`: add, change and forget users of a trained model, without training it again."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from recfusion.cli.options import TrustOption, load_bundle
from recfusion.cli.output import counted, note, working
from recfusion.core.errors import InputError
from recfusion.core.files import check_regular, check_replaceable
from recfusion.data.options import Source
from recfusion.inference.bundle_files import CONFIG
from recfusion.inference.update import update as update_bundle
from recfusion.inference.update import updating
from recfusion.models.updating import Others


def update(
    folder: Annotated[Path, Argument(help="A model folder that was trained with --updatable.")],
    out: Annotated[Path, Option("--out", help="Folder for the updated model; it may be the same folder.")],
    rows: Annotated[Path | None, Option(help="A file with a row per user and item, as in training.")] = None,
    forget: Annotated[Path | None, Option(help="A file with the id of a user to forget in each line.")] = None,
    replace: Annotated[
        bool, Option("--replace", help="The rows are whole histories: they replace those of known users.")
    ] = False,
    others: Annotated[
        Others | None,
        Option(help="Parts of a mixture that cannot be updated; by default keep, or drop if users are forgotten."),
    ] = None,
    user: Annotated[str | None, Option(help="Column of the user ids; guessed by default.")] = None,
    item: Annotated[str | None, Option(help="Column of the item ids; guessed by default.")] = None,
    rating: Annotated[str | None, Option(help="Column of the ratings; guessed by default.")] = None,
    time: Annotated[str | None, Option(help="Column of the times, for a model that reads them.")] = None,
    separator: Annotated[str | None, Option(help="Separator of a text file.")] = None,
    encoding: Annotated[str | None, Option(help="Encoding of a text file; detected by default.")] = None,
    date_format: Annotated[str | None, Option(help="Form of dates, such as %d/%m/%Y.")] = None,
    max_bad_share: Annotated[float, Option(help="Largest accepted share of unusable rows.", min=0, max=1)] = 0.05,
    trust: TrustOption = None,
) -> None:
    """Add, change and forget users of a model, exactly as if it had been trained on the users that remain."""
    if rows is None and forget is None:
        raise InputError("Expected --rows FILE, --forget FILE or both: nothing to update.", "rows")
    check_replaceable(out, CONFIG)
    columns = {"user": user, "item": item, "rating": rating, "time": time, "separator": separator}
    columns |= {"encoding": encoding, "date_format": date_format}
    source = Source.model_validate({"data": str(rows), **columns, "max_bad_share": max_bad_share})
    names = _lines(forget) if forget is not None else []
    with updating(out), working("Updating the model"):
        bundle = load_bundle(folder, trust)
        new = update_bundle(bundle, rows, forget=names, replace_histories=replace, others=others, source=source)
        new.save(out)
    last, before = new.updates[-1], bundle.updates[-1:]
    gained = {
        name: getattr(last, name) - sum(getattr(one, name) for one in before if one.day == last.day)
        for name in last.COUNTS
    }
    done = f"{counted(gained['added'], 'user')} added, {gained['changed']:,} changed, {gained['forgotten']:,} forgotten"
    kind = "" if last.exact else "; some parts are approximate"
    note(f"{done}; {counted(gained['new_items'], 'new item')}; error {last.error:.1e} of the spread of scores{kind}")
    for sentence in last.notes:
        note(sentence)
    note(f"The model has {new.train_users:,} users and {len(new.items):,} items; saved to {out}")


def _lines(path: Path) -> list[str]:
    check_regular(path)
    try:
        return path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, ValueError):
        raise InputError(f"Expected a text file with the id of a user in each line at '{path}'.", "forget") from None
