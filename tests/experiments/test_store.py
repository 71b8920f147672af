"""The append-only store of results."""

import base64
import json
import logging
import lzma
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fitted import changed, fits

from recfusion.core.errors import InputError
from recfusion.core.jsonl import json_line
from recfusion.data.interactions import Interactions
from recfusion.experiments.result import Result, append_result, best_rows, is_store, pack_store, read_results
from recfusion.models.code_digest import source_commit
from recfusion.training.epoch import Curve, Epoch


@pytest.fixture(scope="module")
def results(groups: Interactions) -> list[Result]:
    return fits(groups, {"random": {}, "ease": {"l2": 10}})


@pytest.fixture
def store(results: list[Result], tmp_path: Path) -> Path:
    """A store of four results in a folder that did not exist before."""
    path = tmp_path / "results" / "store.jsonl"
    for result in results:
        append_result(path, result)
    return path


def line(result: Result) -> bytes:
    return json_line(result.model_dump(mode="json"))


def test_results_come_back_as_they_were(store: Path, results: list[Result]) -> None:
    found = read_results(store)
    assert [one.key for one in found] == [one.key for one in results]
    assert [line(one) for one in found] == [line(one) for one in results]
    for one in found:
        assert set(one.versions) == {"recfusion", "numpy", "torch", "python"}
        assert one.finished.utcoffset() is not None
        assert one.threads >= 1


def test_a_line_is_json_with_arrays_in_four_bytes_a_number(store: Path, results: list[Result]) -> None:
    document = json.loads(store.read_text().splitlines()[0])
    assert next(iter(document)) == "recfusion_result"
    assert document["label"] == "random"
    assert document["protocol"]["hash"] == results[0].protocol.hash
    users = np.frombuffer(base64.b64decode(document["users"]), "<i4")
    assert users.tolist() == results[0].users.tolist()


def test_a_curve_is_kept_with_the_losses_that_are_numbers(results: list[Result], tmp_path: Path) -> None:
    curve = Curve.of([Epoch(1, 9, 0.5, None, None, 0, 2.0), Epoch(2, 9, float("nan"), 0.25, 0.25, 2, 3.0)])
    assert curve == Curve((1, 2), (0.5, None), (None, 0.25), (2.0, 3.0))
    append_result(tmp_path / "s", changed(results[0], curve=curve))
    (found,) = read_results(tmp_path / "s")
    assert (found.curve, found.epochs) == (curve, 2)


def test_no_file_is_a_store_without_results(tmp_path: Path) -> None:
    assert read_results(tmp_path / "none.jsonl") == []
    (tmp_path / "empty.jsonl").touch()
    assert read_results(tmp_path / "empty.jsonl") == []
    assert is_store(tmp_path / "empty.jsonl")
    assert not is_store(tmp_path / "none.jsonl")


@pytest.mark.parametrize(
    "tail", [b'{"recf', b'{"recfusion_result":2,"label":"ra', b"\0\0\0", b'{"recfusion_result":2,\n']
)
def test_a_torn_last_line_is_left_out_and_the_next_result_takes_its_place(
    store: Path, results: list[Result], tail: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    whole = store.read_bytes()
    store.write_bytes(whole + tail)
    with caplog.at_level(logging.WARNING):
        assert len(read_results(store)) == 4
    assert "was cut short and is left out" in caplog.text
    more = changed(results[0], seed=9)
    append_result(store, more)
    assert store.read_bytes() == whole + line(more)


def test_a_cut_at_any_byte_loses_only_that_result(store: Path, results: list[Result]) -> None:
    whole, last = store.read_bytes(), line(results[-1])
    for length in range(1, len(last), 97):
        store.write_bytes(whole[: len(whole) - length])
        kept = 4 if length == 1 else 3  # one byte less is the newline, and the line is whole
        assert len(read_results(store)) == kept
        append_result(store, changed(results[-1], seed=9))
        assert len(read_results(store)) == kept + 1


def test_a_broken_line_elsewhere_is_refused_by_its_number(store: Path) -> None:
    lines = store.read_bytes().splitlines(keepends=True)
    store.write_bytes(lines[0] + lines[1][:50] + b"\n" + lines[2])
    with pytest.raises(InputError, match=r"store.jsonl, line 2"):
        read_results(store)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"seed": "x"}, "seed: input should be a valid integer"),
        ({"more": 1}, "more: extra inputs are not permitted"),
        ({"recfusion_result": 3}, "recfusion_result: input should be 2"),
        ({"users": "AAAA!"}, "users: expected base64"),
        ({"users": "AAAAAA=="}, "one per user"),
        ({"users": [1, 2]}, "users"),
        ({"protocol": {}}, "Expected a protocol card"),
    ],
)
def test_a_changed_line_is_refused_by_its_field(store: Path, change: dict[str, Any], words: str) -> None:
    document = json.loads(store.read_text().splitlines()[0]) | change
    store.write_text(json.dumps(document, separators=(",", ":")) + "\n")
    with pytest.raises(InputError, match="line 1") as refused:
        read_results(store)
    assert words in str(refused.value)


def test_a_result_under_a_changed_protocol_is_refused(store: Path) -> None:
    store.write_text(store.read_text().replace('"min_items_per_user":5', '"min_items_per_user":4'))
    with pytest.raises(InputError, match="does not fit its hash"):
        read_results(store)


def test_of_several_results_of_one_fit_the_current_one_counts_and_then_the_newest(
    store: Path, results: list[Result], caplog: pytest.LogCaptureFixture
) -> None:
    first, later = results[2], results[2].finished + timedelta(days=1)
    assert first.code_state == "current"
    append_result(store, changed(first, fit_seconds=99.0, code="0" * 16, finished=later))
    with caplog.at_level(logging.INFO, logger="recfusion"):
        found = read_results(store)
    assert "also holds 1 earlier results of the same fits" in caplog.text
    assert [one.fit_seconds for one in found] == [one.fit_seconds for one in results]
    older = [changed(first, code=code, fit_seconds=seconds) for code, seconds in (("1" * 16, 1.0), ("", 2.0))]
    assert [one.code_state for one in older] == ["stale", "unknown"]
    newest = changed(first, code="2" * 16, fit_seconds=3.0, finished=later)
    for order in (older, older[::-1], [newest, *older]):
        (kept,) = best_rows(order).values()
        assert kept.fit_seconds == (3.0 if newest in order else order[-1].fit_seconds)


def test_results_record_the_code_and_the_commit(results: list[Result]) -> None:
    for one in results:
        assert (len(one.code), one.code_state) == (16, "current")
        assert one.commit == source_commit()


def test_a_packed_store_reads_the_same_and_takes_new_results(store: Path, results: list[Result]) -> None:
    whole, document = store.read_bytes(), [line(one) for one in read_results(store)]
    packed = pack_store(store)
    assert packed == store.with_name("store.jsonl.xz")
    assert not store.exists()
    assert lzma.decompress(packed.read_bytes()) == whole
    for path in (store, packed):
        assert is_store(path)
        assert [line(one) for one in read_results(path)] == document
    more = changed(results[0], seed=9)
    append_result(store, more)
    assert [one.key for one in read_results(packed)] == [*(one.key for one in results), more.key]
    assert pack_store(packed) == packed
    assert lzma.decompress(packed.read_bytes()) == whole + line(more)


def test_a_broken_packed_store_is_refused(store: Path) -> None:
    packed = pack_store(store)
    packed.write_bytes(packed.read_bytes()[:-40])
    with pytest.raises(InputError, match=r"store.jsonl.xz', got a file that cannot be unpacked"):
        read_results(store)
    packed.write_bytes(b"dear diary")
    assert not is_store(packed)


@pytest.mark.parametrize("content", ["dear diary\n", "dear diary", '{"a": 1}\n', "[]", "1\n2\n"])
def test_a_file_that_is_no_store_is_left_alone(tmp_path: Path, results: list[Result], content: str) -> None:
    path = tmp_path / "mine.txt"
    path.write_text(content)
    with pytest.raises(InputError, match="Expected a result"):
        read_results(path)
    with pytest.raises(InputError, match="Expected a result"):
        append_result(path, results[0])
    assert path.read_text() == content


def test_a_place_that_cannot_be_written_is_refused(tmp_path: Path, results: list[Result]) -> None:
    with pytest.raises(InputError, match="got the folder"):
        append_result(tmp_path, results[0])
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="Cannot write"):
        append_result(tmp_path / "file" / "s.jsonl", results[0])


def test_a_full_disk_leaves_the_results_before(
    store: Path, results: list[Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    import os

    whole, write = store.read_bytes(), os.write
    monkeypatch.setattr(os, "write", lambda descriptor, line: write(descriptor, line[:100]))
    with pytest.raises(InputError, match="No space left on device; make room"):
        append_result(store, changed(results[0], seed=9))
    assert store.read_bytes() == whole
