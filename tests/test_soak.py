"""The soak of scripts/soak.py finds what it looks for; a run of it takes minutes."""

import runpy
from contextlib import closing
from pathlib import Path

import pytest

import recfusion as rf
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


def test_a_list_must_be_the_one_of_the_library(tmp_path: Path) -> None:
    from fuzz_service import small_shop

    from recfusion.inference.bundle import Bundle

    bundle = Bundle.load(small_shop(tmp_path))
    best = rf.recommend(bundle, {"u": ["i1", "i2"]}, k=3).to_frame()["item"].to_list()
    body, bundles = {"history": ["i1", "i2"], "k": 3}, {"v1": bundle}

    def problem(items: list[str], version: str = "v1", **more: str) -> str | None:
        answer = {"version": version, "items": [{"item": item} for item in items]}
        found: str | None = SOAK["wrong_list"](bundles, body | more, answer)
        return found

    assert problem(best) is None
    assert "not the one" in str(problem(best[::-1]))
    assert "unknown model" in str(problem(best, "v2"))
    assert problem(best[::-1], user="u") is None  # whose events change the list
    assert "1 of them" in str(problem([*best[:2], "i1"], user="u"))
