"""The list of mutants stays true to the code; `scripts/mutants.py` itself runs the tests against them."""

import ast
import runpy
from pathlib import Path
from typing import Any

import pytest

from named_tests import ROOT, missing

SCRIPT = runpy.run_path(str(ROOT / "scripts" / "mutants.py"))
MUTANTS = SCRIPT["read_mutants"]()


@pytest.mark.parametrize("mutant", MUTANTS, ids=[one.what for one in MUTANTS])
def test_a_mutant_is_a_change_of_one_place_with_tests_against_it(mutant: Any) -> None:
    assert mutant.applies(ROOT), f"the text of '{mutant.what}' does not stand once in {mutant.file}: mend mutants.toml"
    code = (ROOT / mutant.file).read_text(encoding="utf-8")
    mutated = ast.dump(ast.parse(code.replace(mutant.text, mutant.instead)))
    assert mutated != ast.dump(ast.parse(code))
    assert mutant.tests
    assert missing(mutant.tests) == []


def test_no_two_mutants_are_one() -> None:
    assert len({(one.file, one.text, one.instead) for one in MUTANTS}) == len(MUTANTS)


def test_a_test_that_is_not_there_is_missing() -> None:
    here = "tests/test_mutants.py"
    assert missing([here, f"{here}::test_a_test_that_is_not_there_is_missing"]) == []
    gone = [f"{here}::test_nothing", "tests/test_nothing.py", "scripts/mutants.py"]
    assert missing(gone) == gone


@pytest.mark.parametrize(
    ("text", "instead", "fate"),
    [
        ("1 + 1", "1 + 2", "killed"),
        ("1 + 1", "2 * 1", "SURVIVED"),
        ("1 + 1", "1 +", "TESTS DO NOT RUN"),
        ("4 + 4", "4 + 5", "NO LONGER APPLIES"),
    ],
)
def test_every_fate_of_a_mutant_is_told(tmp_path: Path, text: str, instead: str, fate: str) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "two.py").write_text("TWO = 1 + 1\n")
    (tmp_path / "test_two.py").write_text("from two import TWO\n\n\ndef test_two():\n    assert TWO == 2\n")
    mutant = SCRIPT["Mutant"]("a mistake", "src/two.py", text, instead, ("test_two.py",))
    assert SCRIPT["fate"](mutant, tmp_path) == fate
    assert (tmp_path / "src" / "two.py").read_text() == "TWO = 1 + 1\n"
