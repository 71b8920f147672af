"""Damaged model folders and results: they must load and work, or be refused."""

import base64
import datetime
import decimal
import io
import json
import shutil
import tempfile
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from hostile import changed, mutated, value, word
from safetensors.numpy import load_file, save_file

from recfusion.core.files import file_digest
from recfusion.data.interactions import Interactions, RawData, ReadReport
from recfusion.data.options import Preparation
from recfusion.data.prepare import prepare
from recfusion.data.reading.formats import table_writer
from recfusion.data.reading.item_file import read_items
from recfusion.experiments.comparison import Comparison, compare
from recfusion.experiments.fit import item_names
from recfusion.experiments.result import read_results
from recfusion.experiments.train import train
from recfusion.inference.baskets import complete
from recfusion.inference.bundle import Bundle
from recfusion.inference.bundle_files import FILES, sealed
from recfusion.inference.model_card import model_card
from recfusion.inference.recommending import recommend
from recfusion.inference.request import Filters, Reranking
from recfusion.inference.similar import similar
from recfusion.models.linear.ease import EASE
from recfusion.report.page import render
from recfusion.report.tables import results_csv, results_latex, results_markdown

_NET: dict[str, Any] = {"max_epochs": 1}
MODELS: dict[str, dict[str, Any]] = {
    "ease": {},
    "popularity": {},
    "slim": {},
    "bspm": {},
    "ials": {"factors": 4, "iterations": 2},
    "thinning-linear": {},
    "thinning-pairs": {},
    "multvae": {**_NET, "width": 8, "latent": 4},
    "recfusion": {**_NET, "width": 8},
    "mixture": {"members": "ease,infinite-ae"},
}


@cache
def shop() -> Interactions:
    """Return forty users of two groups, and twenty items with columns of all types."""
    rng = np.random.default_rng(0)
    pairs = [(f"u{u}", f"i{(10 * (u % 2) + int(n)) % 20:02d}") for u in range(40) for n in rng.permutation(12)[:7]]
    rows = pl.DataFrame(pairs, ["user", "item"], orient="row")
    numbers = range(20)
    table = pl.DataFrame(
        {
            "item": [f"i{n:02d}" for n in numbers],
            "title": [f"Item [b]{n}[/b] \x1b[31m" for n in numbers],
            "kind": [("Tea", "Coffee|Gift", None)[n % 3] for n in numbers],
            "stock": [n % 4 for n in numbers],
            "price": [None if n % 5 == 0 else float("nan") if n == 6 else n / 2 for n in numbers],
            "new": [n % 2 == 0 for n in numbers],
        }
    )
    every = Preparation(min_items_per_user=1, min_users_per_item=1)
    return prepare(RawData("made up", rows, table, ReadReport(len(rows))), every)


@cache
def place_folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="fuzz-")


@cache
def sound_folder(name: str) -> Path:
    """Return the folder of a small model."""
    settings = {**MODELS[name], **({"tune_trials": 0} if name in ("ease", "thinning-linear", "thinning-pairs") else {})}
    return train(name, shop(), settings).save(Path(place_folder().name) / name)


def folders(rng: np.random.Generator, folder: Path) -> None:
    """Load and use a changed model folder, with or without corrected digests."""
    name = list(MODELS)[rng.integers(len(MODELS))]
    path = folder / "model"
    shutil.copytree(sound_folder(name), path)
    changes: tuple[Callable[[np.random.Generator, Path], None], ...] = (
        _json,
        _json,
        _items,
        _weights,
        _weights,
        _bytes,
    )
    for _ in range(int(rng.integers(1, 3))):
        changes[rng.integers(len(changes))](rng, path)
    sealed = rng.integers(4) > 0
    if sealed:
        reseal(path)
    intact = all(_same(path / part, sound_folder(name) / part) for part in FILES)
    bundle = Bundle.load(path)
    if not sealed and not intact:
        raise AssertionError("a file that is not the one that was saved was not noticed")
    use(bundle, rng)


def use(bundle: Bundle, rng: np.random.Generator) -> None:
    """Call everything that a model offers."""
    history = bundle.items["item"].cast(pl.String).to_list()[: int(rng.integers(0, 5))]
    columns = bundle.items.columns
    column = columns[rng.integers(len(columns))]
    filters = Filters(at_most={column: 2}) if rng.integers(2) else None
    reranking = Reranking(adventurousness=0.5, popularity=-0.5, diversity=0.5) if rng.integers(2) else None
    found = recommend(bundle, {"a": history, "b": []}, 5, filters=filters, reranking=reranking, why=2)
    if len(found.to_frame().filter(user="a")) and found.to_frame()["score"].is_nan().any():
        raise AssertionError("a score is not a number")
    model_card(bundle)
    if history:
        similar(bundle, history[0], 3)
        complete(bundle, history, 2)


def _same(one: Path, other: Path) -> bool:
    return one.is_file() and one.read_bytes() == other.read_bytes()


def reseal(path: Path) -> None:
    """Correct the digests of changed files, if the configuration still has digests."""
    try:
        config = json.loads((path / "config.json").read_text())
        config["digests"] = {name: file_digest(path / name) for name in FILES}
        (path / "config.json").write_text(json.dumps(sealed(config)))
    except (ValueError, TypeError, AttributeError, OSError):
        return


def _json(rng: np.random.Generator, path: Path) -> None:
    file = path / str(rng.choice(["config.json", "config.json", "metrics.json", "protocol.json"]))
    try:
        file.write_text(json.dumps(changed(rng, json.loads(file.read_text()))), encoding="utf-8")
    except ValueError:  # damaged by an earlier change
        return


def _sound(text: str) -> str:
    """Return a text without lone surrogates, which polars and safetensors cannot store."""
    return text.encode(errors="replace").decode()


def _items(rng: np.random.Generator, path: Path) -> None:
    try:
        table = pl.read_parquet(path / "items.parquet")
    except pl.exceptions.PolarsError:
        return
    column = table.columns[rng.integers(table.width)]
    kinds = (
        pl.String,
        pl.Float32,
        pl.Int8,
        pl.UInt64,
        pl.Boolean,
        pl.Binary,
        pl.List(pl.Int64),
        pl.Categorical,
        pl.Null,
    )
    change = int(rng.integers(9))
    if change == 0:
        table = table.drop(column)
    elif change == 1:
        try:
            table = table.with_columns(pl.col(column).cast(kinds[rng.integers(len(kinds))], strict=False))
        except pl.exceptions.PolarsError:
            return
    elif change == 2:
        table = table.head(int(rng.integers(0, len(table) + 1)))
    elif change == 3:
        table = pl.concat([table, table.head(int(rng.integers(1, 3)))])
    elif change == 4:
        table = table.with_columns(pl.when(pl.int_range(pl.len()) != 3).then(pl.col(column)).alias(column))
    elif change == 5:
        table = table.with_columns(pl.lit(_sound(word(rng))).alias(column))
    elif change == 6:
        new = _sound(word(rng)[:300])
        table = table.rename({column: new}) if new not in table.columns else table
    elif change == 7:
        try:
            table = table.with_columns(pl.Series(column, [value(rng, 3) for _ in range(len(table))], strict=False))
        except UnicodeEncodeError:  # a lone surrogate deep in a list
            return
    else:
        table = table.with_columns(pl.concat_list([pl.col(column)]).alias(column))
    try:
        table.write_parquet(path / "items.parquet")
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException):
        return


def _weights(rng: np.random.Generator, path: Path) -> None:
    try:
        state = dict(load_file(path / "model.safetensors"))
    except Exception:  # damaged by an earlier change
        return
    if not state:
        return
    name = list(state)[rng.integers(len(state))]
    array, change = state[name], int(rng.integers(9))
    if change == 0:
        del state[name]
    elif change == 1:
        state[name] = array.astype(str(rng.choice(["f8", "f2", "i4", "i8", "u1", "?", "u2"])), casting="unsafe")
    elif change == 2:
        state[name] = array.reshape(-1)[: int(rng.integers(0, array.size + 1))]
    elif change == 3:
        state[name] = array.T
    elif change == 4 and array.size:
        state[name] = array.copy()
        number = (
            [0, -1, 1, 2**31 - 1, 7][rng.integers(5)]
            if array.dtype.kind in "iu"
            else [np.nan, np.inf, 3e38, -1][rng.integers(4)]
        )
        state[name].reshape(-1)[rng.integers(array.size)] = number
    elif change == 5:
        state[name] = np.concatenate([array, array]) if array.ndim else array
    elif change == 6:
        state[name] = array[None]
    elif change == 7:
        state[_sound(word(rng)[:50])] = array
    else:
        other = list(state)[rng.integers(len(state))]
        state[name], state[other] = state[other], array
    save_file({key: np.ascontiguousarray(each) for key, each in state.items()}, path / "model.safetensors")


def _bytes(rng: np.random.Generator, path: Path) -> None:
    file = path / str(rng.choice([*FILES, "config.json"]))
    content = file.read_bytes()
    if rng.integers(2) and file.suffix == ".safetensors":  # the sizes in its header
        head = int.from_bytes(content[:8], "little")
        content = mutated(rng, content[: 8 + head], 3) + content[8 + head :]
    else:
        content = mutated(rng, content, 4)
    file.write_bytes(content)


@cache
def sound_results() -> tuple[bytes, ...]:
    """Return the lines of a small store."""
    store = Path(place_folder().name) / "results.jsonl"
    compare(shop(), {"popularity": "popularity", "ease": EASE(tune_trials=0)}, 2, store=store)
    return tuple(store.read_bytes().splitlines(keepends=True))


def results(rng: np.random.Generator, folder: Path) -> None:
    """Report on a store with some edited lines."""
    lines = list(sound_results())
    for _ in range(int(rng.integers(1, 3))):
        place = int(rng.integers(len(lines)))
        if rng.integers(3):
            try:
                document = changed(rng, json.loads(lines[place]))
            except ValueError:
                continue
            if isinstance(document, dict) and rng.integers(4) == 0:
                numbers = rng.choice([0.0, 1.0, np.nan, 3e38, -1.0], int(rng.integers(0, 9))).astype("<f4")
                document["users"] = base64.b64encode(numbers.tobytes()).decode()
            lines[place] = json.dumps(document).encode() + b"\n"
        else:
            lines[place] = mutated(rng, lines[place], 3)
    store = folder / "results.jsonl"
    store.write_bytes(b"".join(lines))
    stored = read_results(store)
    if not stored:
        return
    comparison = Comparison.of(stored)
    for text in (results_markdown, results_csv, results_latex):
        text(comparison)
    if rng.integers(25) == 0:  # rarely, as drawing is slow
        render(comparison)


def tables(rng: np.random.Generator, folder: Path) -> None:
    """Read an item table with columns of any type and name, and write lists with them to files and the screen."""
    from recfusion.cli.output import print_json
    from recfusion.cli.request_options import print_items

    table = folder / "items.parquet"
    _item_columns(rng).write_parquet(table)
    described = read_items(table, "item")
    data = replace(shop(), item_table=shop().items.to_frame("item").join(described, on="item", how="left"))
    bundle = Bundle.load(train("popularity", data).save(folder / "model"))
    item_names(data)
    names = [*bundle.items.columns, "title"]
    column = names[rng.integers(len(names))]
    filters = (None, Filters(at_most={column: 2}), Filters(where=f"`{column}` is missing or stock > 0"))[
        rng.integers(3)
    ]
    found = recommend(bundle, ["i01", "i02"], 4, filters=filters, why=2).to_frame()
    with redirect_stdout(io.StringIO()):
        print_items(found, "a list")
        print_json(found.to_dicts())
    with table_writer(folder / f"lists{rng.choice(['.csv', '.jsonl', '.parquet'])}") as write:
        write(found)


def _item_columns(rng: np.random.Generator) -> pl.DataFrame:
    """Return the shop's item table with one or two columns replaced by others of any type."""
    table = shop().item_table
    n = len(table)
    days = [datetime.date(2020, 1, 1 + place) for place in range(n)]
    columns: tuple[pl.Series, ...] = (
        pl.Series(days),
        pl.Series(days).cast(pl.Datetime("ns", "UTC")),
        pl.Series([datetime.timedelta(days=1)] * n),
        pl.Series([datetime.time(1)] * n),
        pl.Series([b"\xff"] * n),
        pl.Series([["a", None]] * n),
        pl.Series([{"a": 1.5}] * n),
        pl.Series(["x"] * n, dtype=pl.Categorical),
        pl.Series([None] * n, dtype=pl.Null),
        pl.Series([decimal.Decimal("1.5")] * n),
        pl.Series([float("inf"), None] * (n // 2)),
        pl.Series([word(rng).encode(errors="replace").decode() for _ in range(n)]),
        pl.Series([2**63] * n, dtype=pl.UInt64),
    )
    for _ in range(int(rng.integers(1, 3))):
        name = str(
            rng.choice(["title", "name", "kind", "stock", "user", "rank", "score", "because", "reasons", "", "a`b"])
        )
        table = table.with_columns(columns[rng.integers(len(columns))].alias(name))
    return table


TARGETS = {"folders": folders, "results": results, "tables": tables}
