"""scripts/attack.py and scripts/independent.py find what they look for; a run of them takes minutes."""

import random
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import recfusion as rf
from named_tests import ROOT
from recfusion.core.errors import InputError

sys.path.append(str(ROOT / "scripts"))
import attack
import independent

TABLE = """
target          worked   refused    failed      hung      died
lines            1,200        30         1         0         0
packed               5         6         0         1         2

1,245 cases
lines, seed 7: KeyError (a.py:1): 'x'
"""


@pytest.mark.parametrize(
    ("printed", "code", "expected"),
    [
        (TABLE, 1, [1245, 1, 1, 2]),
        ("", 1, [1, 1, 0, 0]),  # the script itself failed
        ("\n \n", 0, [1, 1, 0, 0]),
        (TABLE.partition("lines, seed")[0], 1, [1246, 2, 1, 2]),  # an exit code without a finding is a fault
    ],
)
def test_the_table_of_the_fuzzer_is_counted_whatever_it_prints(
    printed: str, code: int, expected: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    done = subprocess.CompletedProcess([], code, printed, "told")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: done)
    assert attack.fuzzed(["lines", "packed"], 1, 0) == expected


def test_random_tables_are_read_as_the_csv_module_writes_them(tmp_path: Path) -> None:
    assert list(independent.tables(random.Random(5), tmp_path, 25)) == []


def test_a_lost_pair_an_uncounted_line_and_an_error_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load, calls = rf.load, 0

    def faulty(*given: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        found = load(*given, **options)
        if calls == 1:
            raise InputError("No.")
        if calls == 2:
            return replace(found, users=found.users.reverse())
        return replace(found, report=replace(found.report, rows=found.report.rows - 1))

    monkeypatch.setattr(rf, "load", faulty, raising=False)
    first, second, third = independent.tables(random.Random(5), tmp_path, 3)
    assert ("InputError" in first, "other pairs" in second, "are reported" in third) == (True, True, True)


def test_a_flipped_bit_is_refused_or_changes_no_list(tmp_path: Path) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_text("user,item\n" + "".join(f"u{n % 20},i{n * 7 % 11}\n" for n in range(200)))
    model = rf.train(rf.EASE(l2=10.0), rf.load(rows), all_users=True).save(tmp_path / "model")
    counts = Counter[str]()
    assert independent.folders(3, model, tmp_path / "flipped", 12, counts) == []
    assert "exit code 1" in independent.folders(3, tmp_path / "none", tmp_path / "flipped", 1, counts)[0]
    assert counts == {"aborts": 1}
