"""`recfusion recommend`: lists for one history, or for a file of histories."""

from pathlib import Path
from typing import Annotated

import polars as pl
from typer import Argument, Option

from recfusion.cli.options import JsonOption, TrustOption, load_bundle
from recfusion.cli.output import counted, note, print_json, progress, working
from recfusion.cli.request_options import because_texts, print_items, request_options, source_options
from recfusion.core.errors import InputError
from recfusion.data.options import Source
from recfusion.data.reading.formats import table_writer
from recfusion.data.reading.reader import read_table
from recfusion.inference.histories import (
    Histories,
    parse_histories,
    read_histories,
    with_user_features,
)
from recfusion.inference.lists import ListMaker
from recfusion.inference.recommending import recommend_batches
from recfusion.inference.request import ListRequest
from recfusion.inference.training_source import source_as_trained


@request_options
@source_options(
    *("user", "item", "rating", "time", "rows", "separator", "encoding", "date_format", "max_bad_share"),
    panel="File of histories",
)
def recommend(
    folder: Annotated[Path, Argument(help="A model folder.")],
    request: ListRequest,
    source: Source,
    histories: Annotated[Path | None, Option(help="A file with a row per user and item.")] = None,
    file: Annotated[Path | None, Option("--out", help="With --histories: csv, parquet or jsonl file to write.")] = None,
    users_file: Annotated[
        str | None, Option(help="With --histories: a file of user features, for a model that reads them.")
    ] = None,
    parts: Annotated[bool, Option("--parts", help="Add what each part of a mixture adds to the score.")] = False,
    trust: TrustOption = None,
    as_json: JsonOption = False,
) -> None:
    """Recommend items to users, also to those who were not in the training data.

    Ids that the model does not know are left out and reported. Users with no known items get the most popular ones,
    and the column `basis` says so.
    """
    if (request.history is None) == (histories is None):
        raise InputError("Expected either --history ID,ID,... or --histories FILE with --out FILE.", "history")
    if (histories is None) != (file is None):
        raise InputError("Expected --histories FILE and --out FILE (csv, parquet or jsonl) together.", "histories")
    maker = ListMaker.of(load_bundle(folder, trust), request, request.reranking)
    if maker.n_unknown:
        note(f"Not known to the model: {maker.n_unknown} of the ids in --allow, --deny and --pins")
    if histories is None or file is None:
        _print_list(maker, request, parts=parts, as_json=as_json)
        return
    rows, times = source.rows, time_column(source.time, reads_times=maker.bundle.reads_times)
    source = source_as_trained(maker.bundle, histories, source.model_copy(update={"time": times}))
    if source.rows != rows:
        note(f"Only rows that meet the condition of the training count: {source.rows}")
    _write_lists(maker, histories, source, file, request, users_file, parts=parts)


def time_column(asked: str | None, *, reads_times: bool) -> str | None:
    """Return the column of times to read: `asked`, None to guess it, "none" for a model that reads no times."""
    if asked is not None and not reads_times:
        raise InputError("This model reads no times: leave out --time, or train one with --signals timed.", "time")
    return asked if reads_times else "none"


def _print_list(maker: ListMaker, request: ListRequest, *, parts: bool, as_json: bool) -> None:
    known = parse_histories(maker.bundle, request.history)
    _report(known, threshold=maker.bundle.protocol.preparation.min_rating)
    found = pl.concat(list(recommend_batches(maker, known, request.k, why=request.why, parts=parts))).drop("user")
    if as_json:
        print_json({"model": maker.bundle.name, "recommendations": found.to_dicts()})
    else:
        print_items(found, f"{maker.bundle.name} on {maker.bundle.protocol.name}")


def _write_lists(
    maker: ListMaker,
    histories: Path,
    source: Source,
    file: Path,
    request: ListRequest,
    users_file: str | None,
    *,
    parts: bool,
) -> None:
    protocol = maker.bundle.protocol
    threshold = protocol.preparation.min_rating
    texts = request.why > 0 and file.suffix.lower() in (".csv", ".tsv")
    with table_writer(file) as write:
        with working("Reading the histories"):
            raw = read_table(histories, source, lone_users=True)
            known = read_histories(maker.bundle, raw.rows)
            if users_file is not None:
                from recfusion.data.load import read_users  # imports the readers of all data sets

                table = read_users(users_file, raw.report.columns["user"], raw.name, source)
                known = with_user_features(maker.bundle, known, table)
        bad = raw.report.missing + raw.report.unparsable
        _report(known, bad, threshold)
        n_users = known.matrix.shape[0]
        with progress("Recommending", n_users) as advance:
            for found in recommend_batches(maker, known, request.k, why=request.why, parts=parts):
                write(found.with_columns(because_texts(found)) if texts else found)
                advance("", found["user"].n_unique())
    note(f"{counted(n_users, 'list')} of up to {request.k} items written to {file}")


def _report(histories: Histories, bad: int = 0, threshold: object = None) -> None:
    more = ", ..." if histories.unknown_rows > len(histories.unknown_ids) else ""
    some = f" ({', '.join(histories.unknown_ids)}{more})"
    note_left_out(histories.unknown_rows, histories.n_empty, bad, histories.disliked, threshold, some)


def note_left_out(unknown: int, empty: int, bad: int, disliked: int, threshold: object, some: str = "") -> None:
    """Print how many rows and ids were left out; `some` are unknown ids."""
    if bad:
        note(f"Left out: {counted(bad, 'row')} without a value or with one that cannot be parsed")
    if disliked:
        why = "returned" if threshold is None else f"rated below {threshold:g}"
        note(f"Seen and not liked: {counted(disliked, 'row')} {why}")
    if unknown:
        note(f"Left out: {counted(unknown, 'id')} unknown to the model{some}")
    if empty:
        note(f"The most popular items are recommended to {counted(empty, 'user')} without a known item")
