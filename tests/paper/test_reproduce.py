"""Reproductions without the command line."""

from contextlib import nullcontext
from pathlib import Path

import pytest

from recfusion.experiments.run import OnEvent
from recfusion.paper import experiments
from recfusion.paper.reproduce import NAMES, missing, reproduce


def test_a_reproduction_returns_its_table_writes_its_files_and_prints_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(experiments, "parameter_counts", lambda: (3416, {"recfusion": 1_410_218, "unknown": 5}))

    def quiet(title: str, store: Path, metric: str) -> nullcontext[OnEvent]:
        return nullcontext(lambda event: None)

    made = reproduce("parameters", tmp_path, quick=False, workers=None, show=quiet)
    assert made.tables[0].rows == (("recfusion", 1_410_218, 1_410_218, 0), ("unknown", None, 5, None))
    assert made.notes == (f"Table: {tmp_path / 'parameters'}.md, .csv, .tex",)
    assert {path.name for path in tmp_path.iterdir()} == {"parameters.md", "parameters.csv", "parameters.tex"}
    drawn = reproduce("figure-architecture", tmp_path, quick=True, workers=None, show=quiet)
    assert drawn.notes == tuple(f"Figure: {tmp_path / f'figure-architecture{suffix}'}" for suffix in (".png", ".svg"))
    assert tuple(capsys.readouterr()) == ("", "")


def test_only_what_needs_absent_data_is_missing_it_and_counts_need_one_data_set(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(experiments, "missing_data", lambda name: None if name == "ml-1m" else f"No {name}.")
    assert {name: sentence for name in NAMES if (sentence := missing(name))} == {
        "figure-diffusion": "No ml-100k.",
        "ml25m": "No ml-25m.",
        "netflix": "No netflix.",
    }
