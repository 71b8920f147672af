"""Tables written in pieces, whole or not at all."""

from pathlib import Path

import polars as pl
import pytest

from recfusion.core.errors import InputError
from recfusion.data.reading.formats import table_writer

FIRST = pl.DataFrame({"user": ["ann", "bo, b"], "item": [1, 2]})
SECOND = pl.DataFrame({"user": ["cy"], "item": [3]})


@pytest.mark.parametrize("ending", ["csv", "tsv", "parquet", "jsonl", "ndjson"])
def test_pieces_make_one_table(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"table.{ending}"
    with table_writer(path) as write:
        write(FIRST)
        write(SECOND)
    if ending == "parquet":
        found = pl.read_parquet(path)
    elif ending in ("csv", "tsv"):
        found = pl.read_csv(path, separator="," if ending == "csv" else "\t")
    else:
        found = pl.read_ndjson(path)
    assert found.equals(pl.concat([FIRST, SECOND]))
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("ending", ["csv", "parquet", "jsonl"])
def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"table.{ending}"
    path.write_text("old")

    def interrupted() -> None:
        with table_writer(path) as write:
            write(FIRST)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_an_unknown_ending_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"end it in \.csv"), table_writer(tmp_path / "table.xlsx"):
        pass
    assert list(tmp_path.iterdir()) == []


def test_lists_are_refused_where_the_kind_has_none(tmp_path: Path) -> None:
    genres = pl.DataFrame({"item": [1], "genres": [["Crime", "Drama"]]})
    with pytest.raises(InputError, match="'genres' holds lists"), table_writer(tmp_path / "table.csv") as write:
        write(genres)
    with table_writer(tmp_path / "table.jsonl") as write:
        write(genres)
    assert [path.name for path in tmp_path.iterdir()] == ["table.jsonl"]
