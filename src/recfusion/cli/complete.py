"""`recfusion complete`: items that complete a basket or playlist."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import polars as pl
from typer import Argument, Option

from recfusion.cli.options import JsonOption, TrustOption, load_bundle
from recfusion.cli.output import counted, note, print_json, progress
from recfusion.cli.recommend import note_left_out
from recfusion.cli.request_options import print_items, request_options, split_commas
from recfusion.core.arrays import FloatArray, IntArray
from recfusion.core.errors import InputError
from recfusion.data.options import Source
from recfusion.data.reading.formats import table_writer
from recfusion.data.reading.reader import read_table
from recfusion.inference.baskets import complete as complete_basket
from recfusion.inference.baskets import complete_sets
from recfusion.inference.bundle import Bundle
from recfusion.inference.histories import Histories, read_histories
from recfusion.inference.request import ItemFilters

Sets = list[tuple[IntArray, FloatArray]]


@request_options
def complete(
    folder: Annotated[Path, Argument(help="A model folder.")],
    filters: ItemFilters,
    history: Annotated[str | None, Option(metavar="ID,ID", help="Ids of the items in the basket.")] = None,
    baskets: Annotated[Path | None, Option(help="A file with a row per basket and item.")] = None,
    file: Annotated[Path | None, Option("--out", help="With --baskets: csv, parquet or jsonl file to write.")] = None,
    basket: Annotated[str | None, Option(help="With --baskets: column of the ids of baskets.")] = None,
    item: Annotated[str | None, Option(help="With --baskets: column of the item ids.")] = None,
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
    """Complete a basket or playlist with items that go together, or all baskets of a file."""
    ways: dict[str, Any] = {
        "n": n,
        "alternatives": alternatives,
        "together": together,
        "filters": filters,
        "seed": seed,
    }
    if (history is None) == (baskets is None) or (baskets is None) != (file is None):
        raise InputError("Expected either --history ID,ID, or --baskets FILE with --out FILE.", "history")
    bundle = load_bundle(folder, trust)
    if baskets is not None and file is not None:
        source = Source(user=basket, item=item, rating="none", time="none")
        _write_baskets(bundle, baskets, source, file, partial(complete_sets, bundle, **ways))
        return
    found = complete_basket(bundle, split_commas(history or ""), **ways)
    if as_json:
        print_json({"model": bundle.name, "completions": found.to_dicts()})
    else:
        print_items(found, f"{bundle.name} on {bundle.protocol.name}")


def _write_baskets(
    bundle: Bundle, baskets: Path, source: Source, file: Path, fill: Callable[[Histories], Sets]
) -> None:
    with table_writer(file) as write:
        raw = read_table(baskets, source, lone_users=True)
        known = read_histories(bundle, raw.rows.select("user", "item"))
        assert known.users is not None
        ids, filled = bundle.items["item"], np.flatnonzero(np.diff(known.matrix.indptr) > 0)
        with progress("Completing", len(filled)) as advance:
            for row in filled.tolist():
                for number, (columns, scores) in enumerate(fill(known.rows(slice(row, row + 1))), 1):
                    places = {"rank": np.arange(1, len(columns) + 1), "item": ids[columns], "score": scores}
                    fixed = {"basket": known.users[[row] * len(columns)], "alternative": [number] * len(columns)}
                    write(pl.DataFrame(fixed | places))
                advance("", 1)
    note(f"{counted(len(filled), 'completion')} written to {file}")
    note_left_out(known.unknown_rows, 0, raw.report.missing + raw.report.unparsable, 0, None)
    if known.n_empty:
        note(f"Without a completion: {counted(known.n_empty, 'basket')} without an item that the model knows")
