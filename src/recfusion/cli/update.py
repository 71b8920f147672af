"""`recfusion update`: add, change and forget users of a trained model, without training it again."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from recfusion.cli.options import TrustOption, load_bundle
from recfusion.cli.output import counted, note, working
from recfusion.cli.request_options import source_options
from recfusion.core.errors import InputError
from recfusion.core.files import check_replaceable
from recfusion.data.options import Source
from recfusion.data.reading.id_lines import read_id_lines
from recfusion.inference.bundle_files import CONFIG
from recfusion.inference.update import update as update_bundle
from recfusion.inference.update import updating
from recfusion.models.updating import Others


@source_options(
    *("user", "item", "rating", "time", "separator", "encoding", "date_format", "max_bad_share"), panel="File of rows"
)
def update(
    folder: Annotated[Path, Argument(help="A model folder that was trained with --updatable.")],
    source: Source,
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
    trust: TrustOption = None,
) -> None:
    """Add, change and forget users of a model, exactly as if it had been trained on the users that remain."""
    if rows is None and forget is None:
        raise InputError("Expected --rows FILE, --forget FILE or both: nothing to update.", "rows")
    check_replaceable(out, CONFIG)
    names = read_id_lines(forget, "forget") if forget is not None else []
    source = source.model_copy(update={"data": str(rows)})
    with updating(out), working("Updating the model"):
        bundle = load_bundle(folder, trust)
        new = update_bundle(
            bundle, rows, forget=names, replace_histories=replace, others=others, source=source, in_place=True
        )
        new.save(out)
    last, before = new.updates[-1], bundle.updates[-1:]
    gained = {
        name: getattr(last, name) - sum(getattr(one, name) for one in before if one.day == last.day)
        for name in last.COUNTS
    }
    done = f"{counted(gained['added'], 'user')} added, {gained['changed']:,} changed, {gained['forgotten']:,} forgotten"
    error = "not tested" if last.error is None else f"error {last.error:.1e} of the spread of scores"
    kind = "" if last.exact else "; some parts are approximate"
    note(f"{done}; {counted(gained['new_items'], 'new item')}; {error}{kind}")
    for sentence in last.notes:
        note(sentence)
    note(f"The model has {new.train_users:,} users and {len(new.items):,} items; saved to {out}")
