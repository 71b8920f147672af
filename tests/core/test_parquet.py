"""One changed bit of a Parquet file is read or refused in one sentence, and never ends the process."""

import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from recfusion.core.parquet import ParquetTable, read_parquet

SOURCE = Path(__file__).parents[2] / "src" / "recfusion"
# The reader runs in a process of its own, because a fault would end it.
FLIPS = """
import logging, sys
from pathlib import Path
from recfusion.core.errors import InputError
from recfusion.data.load import load
from recfusion.data.reading.item_file import read_items
logging.disable()
path, role, step = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
content, refused, cases = path.read_bytes(), 0, 0
for bit in range(0, 8 * len(content), step):
    changed = bytearray(content)
    changed[bit // 8] ^= 1 << bit % 8
    path.write_bytes(changed)
    cases += 1
    try:
        load(path, max_bad_share=1.0) if role == "interactions" else read_items(path, "item")
    except InputError as error:
        assert str(error).endswith(".") and "\\n" not in str(error), str(error)
        refused += 1
print(cases, refused)
"""


def items() -> pl.DataFrame:
    """Return a small table with a column of each kind."""
    return pl.DataFrame(
        {
            "item": [f"i{n:02d}" for n in range(40)],
            "title": [f"Café {n}" for n in range(40)],
            "price": [n / 4 for n in range(40)],
            "stock": [None if n % 3 else n for n in range(40)],
            "tags": [["new", "red"][: n % 3] for n in range(40)],
        }
    )


def interactions() -> pl.DataFrame:
    pairs = [(user, item, 1.0 + item % 5) for user in range(12) for item in range(user % 3, 20, 3)]
    return pl.DataFrame(pairs, ["user", "item", "rating"], orient="row")


@pytest.mark.parametrize("compression", ["zstd", "snappy", "uncompressed"])
@pytest.mark.parametrize("role", ["interactions", "items"])
def test_a_flipped_bit_of_a_users_file_never_ends_the_process(tmp_path: Path, role: str, compression: str) -> None:
    path = tmp_path / "case.parquet"
    (items() if role == "items" else interactions()).write_parquet(path, compression=compression)  # type: ignore[arg-type]
    done = subprocess.run(
        [sys.executable, "-c", FLIPS, path, role, "29"], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    cases, refused = map(int, done.stdout.split())
    assert cases > 300
    assert refused > cases / 20


def test_row_groups_and_the_first_rows_are_read_like_the_whole(tmp_path: Path) -> None:
    path = tmp_path / "case.parquet"
    items().write_parquet(path, row_group_size=15)
    table = ParquetTable.open(path)
    assert table.ends == (15, 30, 40)
    assert table.read(["title", "item"], 15, 40).equals(items()["title", "item"][15:])
    assert table.read(start=0, end=7).equals(items()[:7])
    assert table.read(start=0, end=1000).equals(items())
    assert read_parquet(path).equals(items())


def test_an_empty_table_keeps_its_columns(tmp_path: Path) -> None:
    items().clear().write_parquet(tmp_path / "case.parquet")
    assert read_parquet(tmp_path / "case.parquet").schema == items().schema


def test_text_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "case.parquet"
    pl.DataFrame({"item": ["aaaaaaaa", "bbbbbbbb"]}).write_parquet(path, compression="uncompressed", statistics=False)
    path.write_bytes(path.read_bytes().replace(b"bbbbbbbb", b"bbb\xffbbbb"))
    with pytest.raises(pl.exceptions.ComputeError, match="UTF8"):
        read_parquet(path)


def test_no_other_module_reads_parquet_files() -> None:
    readers = ("read_parquet(", "scan_parquet(", "read_parquet_metadata(", "ParquetFile(", "parquet.read_")
    found = {
        f"{path.relative_to(SOURCE)}: {line.strip()}"
        for path in SOURCE.rglob("*.py")
        for line in path.read_text(encoding="utf-8").splitlines()
        if any(f"{module}.{reader}" in line for reader in readers for module in ("pl", "polars", "parquet"))
    }
    assert all(line.startswith("core/parquet.py") for line in found), found
