"""Convert the 2016 edition of ml-latest-small to the Parquet files that the package ships.

Usage: python scripts/embed_ml_latest_small.py SOURCE_FOLDER [TARGET_FOLDER]
"""

import shutil
import sys
from pathlib import Path

import polars as pl

from recfusion.data.published.movielens import read_movielens

NAME = "ml-latest-small"
TARGET = Path(__file__).parents[1] / "src" / "recfusion" / "data" / "embedded"


def embed(source: Path, target: Path) -> None:
    """Write the ratings, the items and the publisher's README of `source` to `target`."""
    raw = read_movielens(source, NAME, "ratings.csv")
    assert raw.items is not None
    target.mkdir(parents=True, exist_ok=True)
    write(raw.rows.cast({"user": pl.Int16, "item": pl.Int32, "time": pl.Int32}), target / f"{NAME}-ratings.parquet")
    write(raw.items.cast({"item": pl.Int32}), target / f"{NAME}-items.parquet")
    shutil.copyfile(source / "README.txt", target / f"{NAME}-README.txt")


def write(frame: pl.DataFrame, path: Path) -> None:
    """Write one row group with the highest zstd compression."""
    frame.write_parquet(path, compression="zstd", compression_level=22, row_group_size=max(frame.height, 1))


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    embed(Path(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) == 3 else TARGET)
