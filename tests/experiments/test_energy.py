"""Measured energy: the counters of processor packages, from a folder like that of Linux."""

import time
from pathlib import Path

import pytest
from fitted import METRICS, changed, fits

from recfusion.core.jsonl import json_line
from recfusion.data.interactions import Interactions
from recfusion.data.options import SplitPlan
from recfusion.data.protocol import Protocol
from recfusion.data.split import split
from recfusion.experiments import energy, fit
from recfusion.experiments.candidate import Candidate
from recfusion.experiments.comparison import Comparison
from recfusion.experiments.energy import EnergyMeter
from recfusion.experiments.result import append_result, read_results
from recfusion.report.tables import cost_table

ZONES = {"intel-rapl:0": "package-0", "intel-rapl:0:0": "core", "intel-rapl:1": "package-1", "intel-rapl:2": "psys"}
RANGE = 262_143_328_850


def count(folder: Path, *microjoules: int) -> None:
    """Write the counters of the zones in their order."""
    for (zone, name), value in zip(ZONES.items(), microjoules, strict=True):
        (folder / zone).mkdir(exist_ok=True)
        (folder / zone / "name").write_text(f"{name}\n")
        (folder / zone / "energy_uj").write_text(f"{value}\n")
        (folder / zone / "max_energy_range_uj").write_text(f"{RANGE}\n")


def test_the_packages_are_added_up_and_their_parts_and_the_platform_are_not(tmp_path: Path) -> None:
    count(tmp_path, 1_000_000, 0, 5_000_000, 0)
    meter = EnergyMeter(tmp_path)
    with meter:
        count(tmp_path, 3_000_000, 9_000_000, 5_500_000, 9_000_000)
    assert meter.joules == 2.5
    count(tmp_path, 90_000_000, 0, 90_000_000, 0)  # between two fits
    with meter:
        count(tmp_path, 91_000_000, 0, 90_000_000, 0)
    assert meter.joules == 3.5


def test_a_counter_that_wraps_goes_on_from_zero(tmp_path: Path) -> None:
    count(tmp_path, RANGE - 1_000_000, 0, 0, 0)
    meter = EnergyMeter(tmp_path)
    with meter:
        count(tmp_path, 2_000_000, 0, 0, 0)
    assert meter.joules == 3.0


def test_counters_that_wrap_several_times_are_read_in_between(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(energy, "_SECONDS", 0.001)
    count(tmp_path, 0, 0, 0, 0)
    meter = EnergyMeter(tmp_path)
    with meter:
        for value in (RANGE // 2, 0, RANGE // 2, 0):
            before = meter.joules
            (tmp_path / "new").write_text(f"{value}\n")
            (tmp_path / "new").replace(tmp_path / "intel-rapl:0" / "energy_uj")
            for _ in range(20_000):
                if meter.joules != before:
                    break
                time.sleep(0.001)
    assert meter.joules == pytest.approx(2 * RANGE / 1e6)


def test_there_is_no_value_without_counters_that_can_be_read_and_move(tmp_path: Path) -> None:
    for folder in (tmp_path / "nothing", tmp_path):
        meter = EnergyMeter(folder)
        with meter:
            pass
        assert meter.joules is None
        count(tmp_path, 7, 0, 7, 0)  # a virtual machine may have counters that stand still
    meter = EnergyMeter(tmp_path)
    with meter:
        count(tmp_path, 1_000_007, 0, 7, 0)
    assert meter.joules == 1.0
    with meter:
        (tmp_path / "intel-rapl:1" / "energy_uj").unlink()
    assert meter.joules is None  # a part of the energy would look like all of it


def test_a_result_has_the_energy_of_its_fit_alone(
    groups: Interactions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fit, "POWERCAP", tmp_path)
    count(tmp_path, 0, 0, 0, 0)
    candidate = Candidate.of("small", "recfusion", {"width": 8, "max_epochs": 3})
    plan = SplitPlan()
    judged = fit.fit_and_judge(
        *(candidate, groups, Protocol.of(groups, plan, METRICS), split(groups, plan, seed=4)),
        on_epoch=lambda epoch: count(tmp_path, 2_000_000 * epoch.number, 0, 0, 0),
    )
    assert judged.result.energy_joules == 6.0


def test_results_without_measured_energy_are_read_and_tables_show_their_estimate(
    groups: Interactions, tmp_path: Path
) -> None:
    plain, other = fits(groups, {"random": {}, "popularity": {}}, seeds=[4])
    measured = changed(other, energy_joules=7200.0)
    old = plain.model_dump(mode="json", exclude={"energy_joules"})
    (tmp_path / "old.jsonl").write_bytes(json_line(old))
    append_result(tmp_path / "old.jsonl", measured)
    stored = read_results(tmp_path / "old.jsonl")
    assert [one.energy_joules for one in stored] == [None, 7200.0]
    table = cost_table(Comparison.of(stored))
    place = [column.name for column in table.columns].index("measured Wh")
    assert {row[0]: row[place] for row in table.rows} == {"random": None, "popularity": 2.0}
    assert [row[place - 1] is None for row in table.rows] == [False, False]
    unmeasured = cost_table(Comparison.of([plain]))
    assert "measured Wh" not in [column.name for column in unmeasured.columns]
