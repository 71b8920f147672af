"""A fixed sample of cases of scripts/fuzz.py, and tests that it detects what it looks for."""

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recfusion.core.errors import InputError
from recfusion.data.interactions import Interactions
from recfusion.data.load import load

sys.path.append(str(Path(__file__).parents[1] / "scripts"))
import fuzz
import fuzz_coverage
import fuzz_data

CASES = {"commands": 50, "folders": 120, "results": 80, "tables": 30, "rules": 200, "data": 200, "items": 100}
OTHERS = 300  # cases of the fast targets


@pytest.mark.parametrize("name", fuzz.TARGETS)
def test_hostile_input_works_or_is_refused(tmp_path: Path, name: str) -> None:
    counts, wrong = fuzz.fuzz([name], 0, CASES.get(name, OTHERS), float("inf"), tmp_path)
    assert wrong == []
    assert counts[f"{name} worked"] > 5
    assert counts[f"{name} refused"] > 5
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("raised", "words"),
    [
        (KeyError("x"), "KeyError"),
        (InputError("no full stop"), "not one sentence"),
        (AssertionError("torn"), "torn"),
    ],
)
def test_the_tool_sees_an_error_that_is_no_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, raised: Exception, words: str
) -> None:
    def target(rng: np.random.Generator, folder: Path) -> None:
        (folder / "evidence").touch()
        raise raised

    monkeypatch.setattr(fuzz, "TARGETS", {"x": target})
    _, wrong = fuzz.fuzz(["x"], 7, 1, float("inf"), tmp_path)
    assert wrong[0].startswith("x, seed 7: ")
    assert words in wrong[0]
    assert (tmp_path / "x-7" / "evidence").exists()


@pytest.mark.parametrize(
    ("changes", "words"), [({"rows": 2}, "3 lines, but 2 rows"), ({"missing": 1}, "does not add up")]
)
def test_the_tool_sees_lines_that_are_not_accounted_for(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    path = tmp_path / "a.csv"
    path.write_text("user,item\n1,2\n2,3\n3,4\n")
    fuzz_data.read_whole(path)

    def faulty(*given: Any, **options: Any) -> Interactions:
        found = load(*given, **options)
        steps = (replace(found.steps[0], interactions=changes.get("rows", 3)),)
        return replace(found, steps=steps, report=replace(found.report, **changes))

    with pytest.raises(AssertionError, match=words):
        fuzz_data.read_whole(path, faulty)


CRASH = """
import ctypes, sys
sys.path.insert(0, {scripts!r})
import fuzz
def target(rng, folder):
    if folder.name == "x-1":
        ctypes.string_at(0)
fuzz.TARGETS = {{"x": target}}
fuzz.__file__ = __file__
sys.exit(fuzz.main())
"""


def test_a_crash_of_the_interpreter_is_a_finding_and_not_the_end(
    tmp_path: Path, run_script: Callable[..., str]
) -> None:
    script = tmp_path / "crash.py"
    script.write_text(CRASH.format(scripts=str(Path(fuzz.__file__).parent)))
    said = run_script(script, "--cases", "3", "--seconds", "60", "--keep", str(tmp_path / "kept"))
    assert "x, seed 1: the interpreter died" in said
    assert "3 cases" in said


@pytest.fixture
def run_script() -> Callable[..., str]:
    import subprocess

    def run(*words: object) -> str:
        ended = subprocess.run([sys.executable, *map(str, words)], capture_output=True, text=True, check=False)
        assert ended.returncode == 1, ended.stderr
        return ended.stdout

    return run


@pytest.mark.parametrize("name", fuzz_coverage.TARGETS)
def test_the_corpus_of_our_parsers_works_or_is_refused(name: str) -> None:
    files = sorted((fuzz_coverage.CORPUS / name).iterdir())
    accepted = [fuzz_coverage.parse(name, file.read_bytes()) for file in files]
    assert len(accepted) > 0
