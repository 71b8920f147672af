"""The dry run of a reproduction: its checks, its forecasts, and finished fits that are not repeated."""

import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from recfusion.data import catalog
from recfusion.paper import dry_run as module
from recfusion.paper.dry_run import dry_run


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RECFUSION_DATA", str(tmp_path))
    monkeypatch.setenv("RECFUSION_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(module, "available_bytes", lambda: 32 * 10**9)
    monkeypatch.setattr(shutil, "disk_usage", lambda place: SimpleNamespace(free=10**9))
    return tmp_path


def results(folder: Path) -> dict[str, str]:
    checks, _, _ = dry_run("ml25m", folder / "made" / "results.jsonl")
    return {str(row[0]): str(row[3]) for row in checks.rows}


def test_a_missing_archive_fails_and_says_how_to_get_it(folder: Path) -> None:
    checks, models, passed = dry_run("ml25m", folder / "made" / "results.jsonl")
    assert not passed
    assert "recfusion data fetch ml-25m" in str(checks.rows[0][2])
    assert results(folder) == {
        "archive": "failed",
        "memory": "passed",
        "disk": "passed",
        "finished fits": "",
        "time": "",
    }
    assert [row[0] for row in models.rows] == ["random", "popularity", "ease", "multvae", "codigem", "recfusion"]
    assert {row[1] for row in models.rows} == {3}
    assert not (folder / "made").exists()
    _, models, _ = dry_run("ml25m", folder / "made" / "results.jsonl", splits=10)
    assert {row[1] for row in models.rows} == {10}


def test_an_archive_is_compared_with_the_publisher_s_checksum(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "ml-25m.zip").write_bytes(b"not the archive")
    assert results(folder)["archive"] == "failed"
    monkeypatch.setattr(module, "md5_of", lambda path: catalog.CATALOG["ml-25m"].md5)
    assert dry_run("ml25m", folder / "results.jsonl")[2]


def test_too_little_memory_or_disk_fails(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "available_bytes", lambda: 10**9)
    monkeypatch.setattr(shutil, "disk_usage", lambda place: SimpleNamespace(free=10**6))
    assert (results(folder)["memory"], results(folder)["disk"]) == ("failed", "failed")


def test_finished_fits_of_the_store_count_and_their_time_is_the_forecast(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = [SimpleNamespace(label="multvae", seed=seed, fit_seconds=7200.0, code_state="current") for seed in (0, 1)]
    old = [SimpleNamespace(label="codigem", seed=0, fit_seconds=1.0, code_state="stale")]
    monkeypatch.setattr(module, "read_results", lambda store: [*done, *old])
    checks, models, _ = dry_run("ml25m", folder / "results.jsonl")
    rows = {row[0]: row for row in models.rows}
    assert rows["multvae"][1:4] == (3, 2, 2.0)
    assert rows["codigem"][2] == 0
    assert checks.rows[3][2] == "2"


def test_a_search_of_a_closed_form_uses_only_the_most_popular_items(folder: Path) -> None:
    _, models, _ = dry_run("ml25m", folder / "results.jsonl")
    hours = {row[0]: row[3] for row in models.rows}["ease"]
    assert isinstance(hours, float)
    assert 32_718**3 * 3.4e-11 / 3600 < hours < 0.4  # one factorisation of all items, twenty of 6,000 of them
