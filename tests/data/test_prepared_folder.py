"""Preparing into a folder: the very data of the table, also after a kill in the middle of it."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from recfusion.core.errors import InputError
from recfusion.data.interactions import Interactions
from recfusion.data.load import load
from recfusion.data.options import Preparation, Source
from recfusion.data.prepared_folder import prepare_folder
from recfusion.data.reading import reader as readers
from recfusion.data.reading.text_lines import line_blocks

LOOSE = Preparation(min_items_per_user=2, min_users_per_item=2)


def table(path: Path, rows: int = 400) -> Path:
    """Write ratings with repetitions, blanks around ids, and rows that lack a value or cannot be parsed."""
    rng = np.random.default_rng(5)
    user, item = rng.integers(40, size=rows), rng.integers(30, size=rows)
    lines = [f"u{u},{i},{s},{10**9 + s}" for u, i, s in zip(user, item, rng.integers(1, 6, rows), strict=True)]
    lines[7], lines[9], lines[11] = " u1 ,3,5,1000000000", "u1,,4,1000000000", "u1,2,good,1000000000"
    path.write_text("user,item,rating,time\n" + "\n".join(lines) + "\n")
    return path


def assert_same(found: Interactions, table: Interactions) -> None:
    assert found.fingerprint == table.fingerprint
    assert found.users.equals(table.users, check_dtypes=True)
    assert found.items.equals(table.items, check_dtypes=True)
    assert found.item_table.equals(table.item_table)
    assert np.array_equal(found.grades, table.grades)  # type: ignore[arg-type]
    assert (found.preparation, found.steps, found.report) == (table.preparation, table.steps, table.report)


def test_a_prepared_folder_loads_to_the_data_of_its_table(tmp_path: Path) -> None:
    titles = tmp_path / "items.csv"
    titles.write_text("item,title\n" + "".join(f"{n},Film {n}\n" for n in range(20)))
    source = Source(data=str(table(tmp_path / "t.csv")), items=str(titles))
    assert prepare_folder(source, LOOSE, tmp_path / "out")
    local = load(source, LOOSE)
    assert local.report.missing == local.report.unparsable == 1
    assert_same(load(tmp_path / "out"), local)
    assert not prepare_folder(source, LOOSE, tmp_path / "out")  # it is there
    assert sorted(file.name for file in (tmp_path / "out").iterdir()) == [
        "_items.parquet",
        "_job.json",
        "_prepared.json",
        "part-00000.parquet",
    ]
    with pytest.raises(InputError, match="another job"):
        prepare_folder(source, Preparation(), tmp_path / "out")


def test_parquet_is_read_by_its_row_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recfusion.data.reading.formats.BATCH_ROWS", 50)
    frame = pl.read_csv(table(tmp_path / "t.csv"))
    frame.write_parquet(tmp_path / "t.parquet", row_group_size=30)
    told: list[int] = []
    prepare_folder(Source(data=str(tmp_path / "t.parquet")), LOOSE, tmp_path / "out", on_rows=told.append)
    assert told == [30, 90, 120, 180, 240, 270, 330, 390, 400]
    assert_same(load(tmp_path / "out"), load(tmp_path / "t.parquet", LOOSE))
    assert load(tmp_path / "out").fingerprint == load(tmp_path / "t.csv", LOOSE).fingerprint


KILLED = """
import sys, time
from pathlib import Path
from recfusion.data.reading import text_lines
from recfusion.data.prepared_folder import prepare_folder
from recfusion.data.options import Preparation, Source
text_lines.BLOCK_BYTES = 500
prepare_folder(Source(data="t.csv"), Preparation(min_items_per_user=2, min_users_per_item=2), Path("out"))
"""


@pytest.mark.skipif(os.name == "nt", reason="kills by a POSIX signal")
def test_a_killed_preparation_goes_on_after_what_it_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, out = table(tmp_path / "t.csv", 4000), tmp_path / "out"
    process = subprocess.Popen([sys.executable, "-c", KILLED], cwd=tmp_path)
    deadline = time.monotonic() + 120
    fourth = out / "_stages" / "batch-00003.parquet"
    while not fourth.is_file() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.001)
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    kept = len(list((out / "_stages").glob("batch-*.parquet")))
    assert kept >= 4
    with pytest.raises(InputError, match="Expected"):
        load(out)
    monkeypatch.setattr("recfusion.data.reading.text_lines.BLOCK_BYTES", 500)
    blocks = len(list(line_blocks(path, 1)))
    assert kept < blocks
    read, again = readers._read_batch, []

    def counted(*given: Any) -> Any:
        again.append(given)
        return read(*given)

    monkeypatch.setattr(readers, "_read_batch", counted)
    monkeypatch.chdir(tmp_path)
    source = Source(data="t.csv")
    assert prepare_folder(source, LOOSE, out)
    assert len(again) == blocks - kept
    assert not (out / "_stages").exists()
    assert_same(load(out), load(source, LOOSE))


def test_a_refused_table_leaves_its_folder_to_the_corrected_one(tmp_path: Path) -> None:
    source = Source(data=str(table(tmp_path / "t.csv")))
    with pytest.raises(InputError, match="No interactions"):
        prepare_folder(source, Preparation(min_items_per_user=500), tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []
    assert prepare_folder(source, LOOSE, tmp_path / "out")


@pytest.mark.parametrize("source", [Source(data="ml-1m"), Source(data="t.csv", users_file="u.csv")])
def test_what_cannot_be_prepared_into_a_folder_is_refused(tmp_path: Path, source: Source) -> None:
    with pytest.raises(InputError, match=r"prepared as it is read|no table of users"):
        prepare_folder(source, LOOSE, tmp_path / "out")
    assert not (tmp_path / "out").exists()
