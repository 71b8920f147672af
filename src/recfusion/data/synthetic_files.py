"""Writes synthetic data: CSV or Parquet with text ids, or the layouts of MovieLens 25M and the Netflix Prize."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Literal

import numpy as np
import polars as pl

from recfusion.core.arrays import IntArray
from recfusion.core.files import replacing_folder, write_json
from recfusion.core.rng import stream
from recfusion.data.reading.formats import table_writer
from recfusion.data.synthetic import Chunk, OnRows, Size, World, chunks, make_world

Form = Literal["csv", "parquet", "ml-25m", "netflix"]
MARKER = "generated.json"
_BUCKETS = 64  # files by which rows are sorted by item
_LIKED, _OTHER = (0.05, 0.15, 0.45, 0.8), (0.15, 0.4, 0.75, 0.92)  # probabilities of at most 1, 2, 3, 4 stars


@dataclass(frozen=True)
class Preset:
    """A size and a file format."""

    size: Size
    form: Form


PRESETS: Mapping[str, Preset] = {
    "ml-20m": Preset(Size(138_493, 26_744, 20_000_263), "ml-25m"),
    "netflix": Preset(Size(480_189, 17_770, 100_480_507), "netflix"),
    "shop": Preset(Size(400_000, 200_000, 5_000_000), "csv"),
}


def generate(size: Size, seed: int, form: Form, folder: Path, *, on_rows: OnRows | None = None) -> list[str]:
    """Write synthetic data to `folder`, atomically, and return the names of its files."""
    size.check()
    with replacing_folder(folder, MARKER) as fresh:
        world = make_world(size, seed)
        rows = chunks(size, seed, on_rows=on_rows)
        if form == "ml-25m":
            _write_movielens(rows, fresh)
        elif form == "netflix":
            _write_netflix(rows, size, fresh)
        else:
            _write_table(rows, fresh / f"interactions.{form}", size)
        _write_items(world, seed, form, fresh)
        names = sorted(path.name for path in fresh.iterdir())
        write_json(fresh / MARKER, {**asdict(size), "seed": seed, "form": form})
    return names


def _write_table(rows: Iterator[Chunk], path: Path, size: Size) -> None:
    width = len(str(size.users))
    with table_writer(path) as write:
        for chunk in rows:
            known = pl.DataFrame({"user": chunk.user, "item": chunk.item, "time": chunk.time})
            write(
                known.select(
                    user_id="customer" + pl.col("user").cast(str).str.zfill(width) + "@example.com",
                    item_id=item_ids("item", size.items),
                    timestamp=pl.from_epoch("time").dt.strftime("%Y-%m-%dT%H:%M:%S"),
                )
            )


def item_ids(column: str, n_items: int) -> pl.Expr:
    """Return an item's number as a text id, e.g. 'SKU-00042'."""
    return "SKU-" + pl.col(column).cast(str).str.zfill(len(str(n_items)))


def _write_movielens(rows: Iterator[Chunk], folder: Path) -> None:
    with table_writer(folder / "ratings.csv") as write:
        for chunk in rows:
            halves = stars(chunk) - 0.5 * (chunk.rng.random(len(chunk.user)) < 0.25)
            frame = {"userId": chunk.user + 1, "movieId": chunk.item + 1, "rating": halves, "timestamp": chunk.time}
            write(pl.DataFrame(frame).sort("userId", "movieId"))


def stars(chunk: Chunk) -> IntArray:
    """Return ratings from 1 to 5, (rows,), higher for rows caused by taste."""
    upto = np.where(chunk.liked[:, None], _LIKED, _OTHER)
    return np.asarray(1 + (chunk.rng.random((len(chunk.user), 1)) > upto).sum(1))


def _write_netflix(rows: Iterator[Chunk], size: Size, folder: Path) -> None:
    """Write rows by item: first into one file per range of items, each of which is then sorted."""
    buckets = [folder / f"bucket-{number}" for number in range(_BUCKETS)]
    with ExitStack() as stack:
        files = [stack.enter_context(path.open("wb")) for path in buckets]
        for chunk in rows:
            bucket = chunk.item.astype(np.int64) * _BUCKETS // size.items
            row = np.stack([chunk.item, chunk.user, stars(chunk), chunk.time // 86_400], axis=1).astype(np.int32)
            order = np.argsort(bucket, kind="stable")
            row, cuts = row[order], np.searchsorted(bucket[order], np.arange(_BUCKETS + 1))
            for file, start, stop in zip(files, cuts[:-1], cuts[1:], strict=True):
                file.write(row[start:stop].tobytes())
    with (folder / "combined_data_1.txt").open("wb") as out:
        for path in buckets:
            _write_movies(np.frombuffer(path.read_bytes(), np.int32).reshape(-1, 4), out)
            path.unlink()


def _write_movies(rows: np.ndarray, out: IO[bytes]) -> None:
    if not len(rows):
        return  # no ratings of these movies
    rows = rows[np.argsort(rows[:, 0], kind="stable")]
    date = pl.Series(rows[:, 3]).cast(pl.Date)
    lines = pl.DataFrame({"user": rows[:, 1] + 1, "rating": rows[:, 2], "date": date})
    movies, starts = np.unique(rows[:, 0], return_index=True)
    for movie, start, stop in zip(movies.tolist(), starts, [*starts[1:], len(rows)], strict=True):
        out.write(f"{movie + 1}:\n".encode())
        lines[int(start) : int(stop)].write_csv(out, include_header=False)


def _write_items(world: World, seed: int, form: Form, folder: Path) -> None:
    """Write a row per item: its topic as category or genre, and further columns."""
    n_items, rng = len(world.item), stream(seed, "generate columns")
    topic = np.empty(n_items, np.int64)
    topic[world.item] = np.repeat(np.arange(len(world.topics) - 1), np.diff(world.topics))
    known = pl.DataFrame(
        {
            "topic": topic,
            "price": np.exp(rng.normal(3, 0.8, n_items)).round(2),
            "stock": rng.poisson(20, n_items),
            "year": rng.integers(1950, 2026, n_items),
            "number": np.arange(n_items),
        }
    )
    number, title = pl.col("number"), "Item " + pl.col("number").cast(str)
    topics, year = pl.col("topic").cast(str), pl.col("year").cast(str)
    if form == "netflix":
        known.select(number + 1, "year", title=title).write_csv(folder / "movie_titles.txt", include_header=False)
    elif form == "ml-25m":
        movies = known.select(movieId=number + 1, title=title + " (" + year + ")", genres="Topic " + topics)
        movies.write_csv(folder / "movies.csv")
    else:
        columns = {"item_id": item_ids("number", n_items), "title": title, "category": "Category " + topics}
        with table_writer(folder / f"items.{form}") as write:
            write(known.select(**columns, price="price", stock="stock"))
