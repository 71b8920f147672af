"""The append-only store of results."""

import base64
import json
import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recfusion.core.errors import InputError
from recfusion.data.interactions import Interactions
from recfusion.experiments.compare import Curve, Run, compare
from recfusion.experiments.results import result_document
from recfusion.experiments.store import Row, append_row, read_rows
from recfusion.training.epoch import Epoch

METRICS = ("recall@5", "coverage@5", "ndcg@10")


@pytest.fixture
def runs(groups: Interactions) -> list[Run]:
    return list(compare(groups, {"random": {}, "ease": {"l2": 10}}, [4, 5], metrics=METRICS))


@pytest.fixture
def rows(runs: list[Run]) -> list[Row]:
    return [Row.of(run, threads=2) for run in runs]


@pytest.fixture
def store(rows: list[Row], tmp_path: Path) -> Path:
    """A store of four rows in a folder that did not exist before."""
    path = tmp_path / "results" / "store.jsonl"
    for row in rows:
        append_row(path, row)
    return path


def test_rows_come_back_as_they_were(store: Path, rows: list[Row], runs: list[Run]) -> None:
    found = read_rows(store)
    assert [row.key for row in found] == [row.key for row in rows]
    for row, run in zip(found, runs, strict=True):
        again = row.run()
        assert (again.protocol, again.name, again.model, again.seed) == (run.protocol, run.name, run.model, run.seed)
        assert (again.settings, again.chosen, again.curve) == (run.settings, run.chosen, run.curve)
        assert again.parameters == run.parameters
        assert (again.fit_seconds, again.test.seconds) == (run.fit_seconds, run.test.seconds)
        assert (again.validation, again.slices, again.test.overall) == (run.validation, run.slices, run.test.overall)
        assert again.test.users.tolist() == run.test.users.tolist()
        assert again.history_size.tolist() == run.history_size.tolist()
        for metric, values in run.test.per_user.items():
            np.testing.assert_allclose(again.test.per_user[metric], values, rtol=1e-7)
        assert row.threads == 2
        assert set(row.versions) == {"recfusion", "numpy", "torch", "python"}
        assert row.finished.utcoffset() is not None


def test_the_document_of_stored_rows_is_that_of_the_runs(store: Path, runs: list[Run]) -> None:
    stored, fresh = result_document([row.run() for row in read_rows(store)]), result_document(runs)
    assert stored["protocol"] == fresh["protocol"]
    for name in ("random", "ease"):
        assert stored["models"][name].keys() == fresh["models"][name].keys()
        assert stored["models"][name]["ndcg@10"]["mean"] == pytest.approx(fresh["models"][name]["ndcg@10"]["mean"])


def test_a_line_is_json_with_arrays_in_four_bytes_a_number(store: Path, runs: list[Run]) -> None:
    document = json.loads(store.read_text().splitlines()[0])
    assert document["label"] == "random"
    assert document["protocol"]["hash"] == runs[0].protocol.hash
    users = np.frombuffer(base64.b64decode(document["users"]), "<i4")
    assert users.tolist() == runs[0].test.users.tolist()


def test_a_curve_is_kept_with_the_losses_that_are_numbers(rows: list[Row], tmp_path: Path) -> None:
    curve = Curve.of([Epoch(1, 9, 0.5, None, None, 0, 2.0), Epoch(2, 9, float("nan"), 0.25, 0.25, 2, 3.0)])
    assert curve == Curve((1, 2), (0.5, None), (None, 0.25), (2.0, 3.0))
    append_row(tmp_path / "s", rows[0].model_copy(update={"curve": curve}))
    (found,) = read_rows(tmp_path / "s")
    assert found.curve == curve
    assert found.run().epochs == 2


def test_no_file_is_a_store_without_rows(tmp_path: Path) -> None:
    assert read_rows(tmp_path / "none.jsonl") == []
    (tmp_path / "empty.jsonl").touch()
    assert read_rows(tmp_path / "empty.jsonl") == []


@pytest.mark.parametrize(
    "tail", [b'{"recf', b'{"recfusion_result":1,"label":"ra', b"\0\0\0", b'{"recfusion_result":1,\n']
)
def test_a_torn_last_line_is_left_out_and_the_next_row_takes_its_place(
    store: Path, rows: list[Row], tail: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    whole = store.read_bytes()
    store.write_bytes(whole + tail)
    with caplog.at_level(logging.WARNING):
        assert len(read_rows(store)) == 4
    assert "was cut short and is left out" in caplog.text
    more = rows[0].model_copy(update={"seed": 9})
    append_row(store, more)
    assert store.read_bytes() == whole + more.line()


def test_a_cut_at_any_byte_loses_only_that_row(store: Path, rows: list[Row]) -> None:
    whole, last = store.read_bytes(), rows[-1].line()
    for length in range(1, len(last), 97):
        store.write_bytes(whole[: len(whole) - length])
        kept = 4 if length == 1 else 3  # one byte less is the newline, and the row is whole
        assert len(read_rows(store)) == kept
        append_row(store, rows[-1].model_copy(update={"seed": 9}))
        assert len(read_rows(store)) == kept + 1


def test_a_broken_line_elsewhere_is_refused_by_its_number(store: Path) -> None:
    lines = store.read_bytes().splitlines(keepends=True)
    store.write_bytes(lines[0] + lines[1][:50] + b"\n" + lines[2])
    with pytest.raises(InputError, match=r"store.jsonl, line 2"):
        read_rows(store)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"seed": "x"}, "seed: Input should be a valid integer"),
        ({"more": 1}, "more: Extra inputs are not permitted"),
        ({"recfusion_result": 2}, "recfusion_result: Input should be 1"),
        ({"users": "AAAA!"}, "users: Value error, is no base64"),
        ({"users": "AAAAAA=="}, "one per user"),
        ({"users": [1, 2]}, "users"),
        ({"protocol": {}}, "Expected a protocol card"),
    ],
)
def test_a_changed_line_is_refused_by_its_field(store: Path, change: dict[str, Any], words: str) -> None:
    document = json.loads(store.read_text().splitlines()[0]) | change
    store.write_text(json.dumps(document, separators=(",", ":")) + "\n")
    with pytest.raises(InputError, match="line 1") as refused:
        read_rows(store)
    assert words in str(refused.value)


def test_a_result_under_a_changed_protocol_is_refused(store: Path) -> None:
    store.write_text(store.read_text().replace('"min_items_per_user":5', '"min_items_per_user":4'))
    with pytest.raises(InputError, match="does not fit its hash"):
        read_rows(store)


def test_of_two_rows_with_one_key_the_first_counts(
    store: Path, rows: list[Row], caplog: pytest.LogCaptureFixture
) -> None:
    append_row(store, rows[1].model_copy(update={"fit_seconds": 99.0}))
    with caplog.at_level(logging.WARNING):
        found = read_rows(store)
    assert "Line 5" in caplog.text
    assert "repeats ease, split 4: the first counts" in caplog.text
    assert [row.fit_seconds for row in found] == [row.fit_seconds for row in rows]


@pytest.mark.parametrize("content", ["dear diary\n", "dear diary", '{"a": 1}\n', "[]", "1\n2\n"])
def test_a_file_that_is_no_store_is_left_alone(tmp_path: Path, rows: list[Row], content: str) -> None:
    path = tmp_path / "mine.txt"
    path.write_text(content)
    with pytest.raises(InputError, match="Expected a result"):
        read_rows(path)
    with pytest.raises(InputError, match="Expected a result"):
        append_row(path, rows[0])
    assert path.read_text() == content


def test_a_place_that_cannot_be_written_is_refused(tmp_path: Path, rows: list[Row]) -> None:
    with pytest.raises(InputError, match="got the folder"):
        append_row(tmp_path, rows[0])
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="Cannot write"):
        append_row(tmp_path / "file" / "s.jsonl", rows[0])


def test_a_full_disk_leaves_the_rows_before(store: Path, rows: list[Row], monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    whole, write = store.read_bytes(), os.write
    monkeypatch.setattr(os, "write", lambda descriptor, line: write(descriptor, line[:100]))
    with pytest.raises(InputError, match="No space left on device; make room"):
        append_row(store, rows[0].model_copy(update={"seed": 9}))
    assert store.read_bytes() == whole


_APPEND = """
import sys, time
from pathlib import Path
from recfusion.experiments.store import append_row, read_rows
store, row, first = Path(sys.argv[1]), read_rows(sys.argv[2])[0], int(sys.argv[3])
print("ready", flush=True)
sys.stdin.readline()
for seed in range(first, first + 50):
    append_row(store, row.model_copy(update={"seed": seed}))
"""


def test_rows_of_two_processes_never_interleave(store: Path, tmp_path: Path) -> None:
    both = tmp_path / "both.jsonl"
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", _APPEND, str(both), str(store), str(first)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for first in (100, 200)
    ]
    for writer in writers:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write("go\n")
        writer.stdin.flush()
    for writer in writers:
        writer.communicate()
        assert writer.returncode == 0
    seeds = [row.seed for row in read_rows(both)]
    assert sorted(seeds) == [*range(100, 150), *range(200, 250)]
    assert [seed for seed in seeds if seed < 200] == list(range(100, 150))
