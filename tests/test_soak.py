"""The soak of scripts/soak.py finds what it looks for; a run of it takes minutes."""

import runpy
from contextlib import closing
from pathlib import Path

import pytest

from named_tests import ROOT

pytest.importorskip("schemathesis")
pytest.importorskip("uvicorn")
SOAK = runpy.run_path(str(ROOT / "scripts" / "soak.py"))


def test_lost_events_and_deletions_are_counted(tmp_path: Path) -> None:
    from recfusion.server.event_store import Event, Store

    path = tmp_path / "events.sqlite"
    with closing(Store(path)) as store, store.writing():
        store.add([Event("u1", "x1"), Event("gone-1-person", "i1"), Event("gone-2-person", "i1")])
    record = SOAK["Record"]()
    record.acknowledged += [("u1", "x1"), ("u1", "x2")]
    record.forgotten += ["gone-1-person", "gone-3-person"]
    SOAK["check_files"](record, path)
    wrong = SOAK["report"](record)["wrong"]
    assert (wrong["lost events"], wrong["lost deletions"], wrong["deleted ids in files"]) == (1, 1, 1)


def test_a_report_has_a_row_per_second_and_a_figure(tmp_path: Path) -> None:
    record = SOAK["Record"]()
    record.latencies |= {0: [1.0, 3.0], 2: [5.0]}
    record.memory |= {0: 100.0, 1: 110.0}
    record.kills.append(1.0)
    found = SOAK["report"](record)
    assert [(row["second"], row["requests"], row["memory_mb"]) for row in found["rows"]] == [
        (0, 2, 100.0),
        (1, 0, 110.0),
        (2, 1, None),
    ]
    assert found["rows"][2]["p99_ms"] == 5.0
    SOAK["plot"](found, tmp_path / "soak.png")
    assert (tmp_path / "soak.png").read_bytes().startswith(b"\x89PNG")


def test_a_broken_connection_is_a_fault_unless_a_worker_was_just_killed() -> None:
    class Broken:
        def post(self, *_: object) -> None:
            raise ConnectionResetError

    record = SOAK["Record"]()
    SOAK["send"](record, Broken(), "list", "/recommend", {}, (200,))
    record.kills.append(record.now())
    SOAK["send"](record, Broken(), "list", "/recommend", {}, (200,))
    assert (record.counts["aborts"], record.counts["ended by a kill"]) == (1, 1)
    assert record.faults == ["list: ConnectionResetError"]
