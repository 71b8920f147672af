"""Reader for the check-ins of Gowalla in the training and test files that LightGCN and its successors use."""

from pathlib import Path

import polars as pl

from recfusion.data.interactions import TEST, TRAIN, RawData, ReadReport
from recfusion.data.published.archive import Archive, changed_copy
from recfusion.data.published.checked_tables import Layout, Schema, headed_table, item_table, whole_number

_PAIRS: Schema = {"user": pl.Int64, "item": pl.Int64}
_LINES: Schema = {"user": pl.Int64, "item": pl.String}  # the items of a user, separated by blanks


def read_gowalla(path: Path, name: str) -> RawData:
    """Read train and test: CSV tables of pairs, or texts with a user and its items in each line."""
    source, form = Archive(path), _form(path) or "txt"
    rows = pl.concat(
        _pairs(source.read(f"{which}.{form}"), f"{which}.{form}").with_columns(part=pl.lit(part, pl.Int8))
        for which, part in (("train", TRAIN), ("test", TEST))
    )
    return RawData(name, rows, None, ReadReport(rows.height, {"user": "user", "item": "item"}))


def _pairs(data: bytes, file: str) -> pl.DataFrame:
    if file.endswith(".txt"):
        lines = item_table(data, _LINES, _line, "numbers of a user and of items", file)
        pairs = lines.with_columns(pl.col("item").str.split(" ")).explode("item")
        return pairs.filter(pl.col("item") != "").cast(pl.Int64)
    found = headed_table(data, _PAIRS, file)
    if found.null_count().sum_horizontal().item() or found.is_empty():
        raise changed_copy(f"Expected a user and an item in each line of {file}, got others")
    return found


def _line(line: str) -> tuple[int, str]:
    user, *items = map(whole_number, line.split())
    return user, " ".join(map(str, items))


def _form(path: Path) -> str | None:
    """Return how both files of pairs end; None if they are missing."""
    files = {file.rpartition("/")[2] for file in Archive(path).names()}
    return next((form for form in ("csv.gz", "csv", "txt") if {f"train.{form}", f"test.{form}"} <= files), None)


GOWALLA = Layout(read_gowalla, lambda folder: _form(folder) is not None)
