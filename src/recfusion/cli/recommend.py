"""`recfusion recommend`: lists for one history, or for a file of users."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import polars as pl
from typer import Argument, Option

from recfusion.cli.options import JsonOption, TrustOption, trusted_classes
from recfusion.cli.output import counted, note, print_json, progress, working
from recfusion.cli.request_options import because_texts, control_options, note_unknown_rules, print_items
from recfusion.core.errors import InputError
from recfusion.data.interactions import RawData
from recfusion.data.load import read_users
from recfusion.data.options import Source
from recfusion.data.protocol import Protocol
from recfusion.data.reading.formats import table_writer
from recfusion.data.reading.reader import read_table
from recfusion.inference.bundle import Bundle
from recfusion.inference.filters import Rules
from recfusion.inference.histories import Histories, added_up, histories_of, liked_rows, read_histories, with_users
from recfusion.inference.lists import ListMaker
from recfusion.inference.recommending import recommend_batches
from recfusion.inference.reranking import Knobs


@control_options
def recommend(
    folder: Annotated[Path, Argument(help="A model folder.")],
    rules: Rules,
    knobs: Knobs,
    history: Annotated[
        str | None,
        Option(
            help="Ids of the items that somebody has, separated by commas, or a JSON list of ids or of "
            '{"item": 318, "rating": 5, "time": 1600000000}, for a model that reads these.'
        ),
    ] = None,
    users: Annotated[Path | None, Option(help="A file with a row per user and item.")] = None,
    file: Annotated[Path | None, Option("--out", help="With --users: csv, parquet or jsonl file to write.")] = None,
    k: Annotated[int, Option("-k", help="Length of the lists.", min=1)] = 10,
    user: Annotated[str | None, Option(help="With --users: column of the user ids.")] = None,
    item: Annotated[str | None, Option(help="With --users: column of the item ids.")] = None,
    rating: Annotated[str | None, Option(help="With --users: column of the ratings.")] = None,
    time: Annotated[str | None, Option(help="With --users: column of the times, for a model that reads them.")] = None,
    separator: Annotated[str | None, Option(help="With --users: separator of a text file.")] = None,
    max_bad_share: Annotated[
        float, Option(help="With --users: largest share of unusable rows that is accepted.", min=0, max=1)
    ] = 0.05,
    users_file: Annotated[
        str | None, Option(help="A file with what is known of the users, for a model with their features.")
    ] = None,
    why: Annotated[int, Option(help="Reasons for each item, at the most.", min=0)] = 0,
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
    maker = ListMaker.of(Bundle.load(folder, trust=trusted_classes(trust)), rules, knobs)
    note_unknown_rules(maker.allowed.unknown)
    if users is None or file is None:
        _for_history(maker, history or "", k, why, as_json=as_json)
        return
    when = read_times(maker.bundle.protocol, time)
    source = Source(user=user, item=item, rating=rating, time=when, separator=separator, max_bad_share=max_bad_share)
    _for_file(maker, partial(read_table, users, source, lone_users=True), file, k, why, users_file)


def read_times(protocol: Protocol, asked: str | None) -> str | None:
    """Return the column of times that is read: the one asked for or guessed, none for a model that reads no times."""
    timed = "times" in protocol.signals.used
    if asked is not None and not timed:
        raise InputError("This model reads no times: leave out --time, or train one with --signals timed.")
    return asked if timed else "none"


def _for_history(maker: ListMaker, history: str, k: int, why: int, *, as_json: bool) -> None:
    known = histories_of(maker.bundle, _given(history))
    _report(known, threshold=maker.bundle.protocol.preparation.min_rating)
    found = pl.concat(list(recommend_batches(maker, known, k, why=why))).drop("user")
    if as_json:
        print_json({"model": maker.bundle.name, "recommendations": found.to_dicts()})
    else:
        print_items(found, f"{maker.bundle.name} on {maker.bundle.protocol.name}")


def _given(history: str) -> list[Any]:
    """Return the entries of a history that was given in the command line."""
    if not history.lstrip().startswith("["):
        return [text.strip() for text in history.split(",") if text.strip()]
    try:
        found = json.loads(history)
    except ValueError:
        raise InputError(
            "Expected ids with commas or a JSON list as --history, got neither: check the quotes."
        ) from None
    assert isinstance(found, list)
    return found


def _for_file(maker: ListMaker, read: Callable[[], RawData], file: Path, k: int, why: int, about: str | None) -> None:
    protocol = maker.bundle.protocol
    threshold = protocol.preparation.min_rating
    texts = why > 0 and file.suffix.lower() in (".csv", ".tsv")
    with table_writer(file) as write:
        with working("Reading the users"):
            raw = read()
            rows, disliked = liked_rows(added_up(raw.rows, protocol), protocol)
            known = read_histories(maker.bundle, rows)
            if about is not None:
                known = with_users(maker.bundle, known, read_users(about, raw.report.columns["user"], raw.name))
        bad = raw.report.missing + raw.report.unparsable
        _report(known, bad, disliked, threshold)
        with progress("Recommending", len(known.users)) as advance:
            for found in recommend_batches(maker, known, k, why=why):
                write(found.with_columns(because_texts(found)) if texts else found)
                advance("", found["user"].n_unique())
    note(f"{counted(len(known.users), 'list')} of up to {k} items written to {file}")


def _report(histories: Histories, bad: int = 0, disliked: int = 0, threshold: object = None) -> None:
    more = ", ..." if histories.unknown_rows > len(histories.unknown_ids) else ""
    some = f" ({', '.join(histories.unknown_ids)}{more})"
    if histories.extra is not None and histories.disliked:
        why = "given back" if threshold is None else f"rated below {threshold:g}"
        note(f"Seen and not liked: {counted(histories.disliked, 'row')} {why}")
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
