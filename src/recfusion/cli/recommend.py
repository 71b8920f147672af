"""`recfusion recommend`: lists for one history, or for a file of users."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated

import polars as pl
from rich.table import Column, Table
from typer import Argument, Option

from recfusion.cli.options import JsonOption, TrustOption, parse_settings, trusted_classes
from recfusion.cli.output import counted, literal, note, out, print_json, progress, working
from recfusion.core.errors import InputError, choices
from recfusion.data.interactions import RawData
from recfusion.data.readers import read_table
from recfusion.data.settings import Source
from recfusion.data.writers import table_writer
from recfusion.models.settings import checked
from recfusion.serving.bundle import Bundle
from recfusion.serving.histories import Histories, read_histories
from recfusion.serving.lists import ListMaker
from recfusion.serving.recommend import recommend_batches

_FOR_LISTS = ("steps", "temperature", "draw")  # settings of a fitted model that change its lists and nothing else


def recommend(
    folder: Annotated[Path, Argument(help="A model folder.")],
    history: Annotated[str | None, Option(help="Ids of the items that somebody has, separated by commas.")] = None,
    users: Annotated[Path | None, Option(help="A file with a row per user and item.")] = None,
    file: Annotated[Path | None, Option("--out", help="With --users: csv, parquet or jsonl file to write.")] = None,
    k: Annotated[int, Option("-k", help="Length of the lists.", min=1)] = 10,
    user: Annotated[str | None, Option(help="With --users: column of the user ids.")] = None,
    item: Annotated[str | None, Option(help="With --users: column of the item ids.")] = None,
    rating: Annotated[str | None, Option(help="With --users: column of the ratings.")] = None,
    separator: Annotated[str | None, Option(help="With --users: separator of a text file.")] = None,
    max_bad_share: Annotated[
        float, Option(help="With --users: largest share of unusable rows that is accepted.", min=0, max=1)
    ] = 0.05,
    settings: Annotated[
        list[str] | None,
        Option("--set", metavar="NAME=VALUE", help="How `thinning` draws lists: steps, temperature or draw."),
    ] = None,
    trust: TrustOption = None,
    as_json: JsonOption = False,
) -> None:
    """Recommend items to users, who need not have been seen in training.

    Ids that the model does not know are left out and reported. A user of whom no known item is left gets the most
    popular items, and the column `basis` says so.
    """
    if (history is None) == (users is None):
        raise InputError("Expected either --history ID,ID,... or --users FILE with --out FILE.")
    if (users is None) != (file is None):
        raise InputError("Expected --users FILE and --out FILE (csv, parquet or jsonl) together.")
    bundle = _loaded(folder, settings, trust)
    if users is None or file is None:
        _for_history(bundle, history or "", k, as_json=as_json)
        return
    source = Source(user=user, item=item, rating=rating, time="none", separator=separator, max_bad_share=max_bad_share)
    _for_file(bundle, partial(read_table, users, source, lone_users=True), file, k)


def _loaded(folder: Path, settings: list[str] | None, trust: list[str] | None) -> Bundle:
    """Return the model of a folder, with the settings that may differ from list to list."""
    bundle = Bundle.load(folder, trust=trusted_classes(trust))
    allowed = [name for name in _FOR_LISTS if hasattr(bundle.model, name)]
    for name, value in parse_settings(settings).items():
        if name not in allowed:
            raise choices(f"setting for lists of {bundle.name}", name, allowed or ["(it has none)"])
        setattr(bundle.model, name, checked(type(bundle.model), name, value, called=bundle.name, text=True))
    return bundle


def _for_history(bundle: Bundle, history: str, k: int, *, as_json: bool) -> None:
    ids = [text.strip() for text in history.split(",") if text.strip()]
    rows = pl.DataFrame({"user": ["you"] * max(1, len(ids)), "item": pl.Series(ids or [None], dtype=pl.String)})
    known = read_histories(bundle, rows)
    _report(known)
    found = pl.concat(list(recommend_batches(ListMaker.of(bundle), known, k))).drop("user")
    if as_json:
        print_json({"model": bundle.name, "recommendations": found.to_dicts()})
        return
    heads = (
        Column(literal(name), justify="right" if kind.is_numeric() else "left") for name, kind in found.schema.items()
    )
    table = Table(*heads, title=literal(f"{bundle.name} on {bundle.protocol.name}"), title_justify="left")
    for row in found.iter_rows():
        cells = ("" if cell is None else f"{cell:.4f}" if isinstance(cell, float) else str(cell) for cell in row)
        table.add_row(*map(literal, cells))
    out().print(table)


def _for_file(bundle: Bundle, read: Callable[[], RawData], file: Path, k: int) -> None:
    threshold = bundle.protocol.preparation.min_rating
    with table_writer(file) as write:
        with working("Reading the users"):
            raw = read()
            rows, disliked = _liked(raw.rows, threshold)
            known = read_histories(bundle, rows)
        bad = raw.report.missing + raw.report.unparsable
        _report(known, bad, disliked, threshold)
        with progress("Recommending", len(known.users)) as advance:
            for found in recommend_batches(ListMaker.of(bundle), known, k):
                write(found)
                advance("", found["user"].n_unique())
    note(f"{counted(len(known.users), 'list')} of up to {k} items written to {file}")


def _liked(rows: pl.DataFrame, threshold: object) -> tuple[pl.DataFrame, int]:
    """Return the rows, items rated below the model's threshold blanked so that no user is lost, and their number."""
    if "rating" not in rows.columns or not isinstance(threshold, float):
        return rows, 0
    liked = pl.col("rating") >= threshold
    blanked = rows.with_columns(pl.when(liked).then("item").alias("item"))
    return blanked, int(rows.select((~liked).sum()).item())


def _report(histories: Histories, bad: int = 0, disliked: int = 0, threshold: object = None) -> None:
    more = ", ..." if histories.unknown_rows > len(histories.unknown_ids) else ""
    some = f" ({', '.join(histories.unknown_ids)}{more})"
    note_left_out(histories.unknown_rows, histories.n_empty, bad, disliked, threshold, some)


def note_left_out(unknown: int, empty: int, bad: int, disliked: int, threshold: object, some: str = "") -> None:
    """Say which rows count for nothing, and what the model does not know; `some` are ids of that kind."""
    if bad:
        note(f"Left out: {counted(bad, 'row')} without a value or with one that cannot be parsed")
    if disliked:
        note(f"Not part of a history: {counted(disliked, 'row')} rated below {threshold:g}")
    if unknown:
        note(f"Left out: {counted(unknown, 'id')} unknown to the model{some}")
    if empty:
        note(f"The most popular items are recommended to {counted(empty, 'user')} without a known item")
