"""The list of mutants matches the code; `scripts/mutants.py` itself runs the tests against them."""

import ast
import runpy
from pathlib import Path
from typing import Any

import pytest

from named_tests import ROOT, missing

SCRIPT = runpy.run_path(str(ROOT / "scripts" / "mutants.py"))
MUTANTS = SCRIPT["read_mutants"]()
MODULE = """
class Scale:
    def fit(self, train):
        lengths = train.sum()  # a comment
        return lengths ** -self.b

    def score(self, history):
        return history * 2


def other(history):
    return history * 2
"""


def mutant(where: str, replace: str, replacement: str) -> Any:
    return SCRIPT["Mutant"]("a mistake", where, replace, replacement, ("test_two.py",))


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A tree with one module and one test."""
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "scale.py").write_text(MODULE)
    (tmp_path / "src" / "two.py").write_text("TWO = 1 + 1\n")
    (tmp_path / "test_two.py").write_text("from two import TWO\n\n\ndef test_two():\n    assert TWO == 2\n")
    return tmp_path


@pytest.mark.parametrize("mutant", MUTANTS, ids=[one.what for one in MUTANTS])
def test_a_mutant_changes_one_place_and_names_tests_that_exist(mutant: Any) -> None:
    mutated = SCRIPT["mutate"](mutant, ROOT)  # raises, with what was looked for, unless it applies exactly once
    code = SCRIPT["module_file"](ROOT, mutant.where.partition(":")[0]).read_text(encoding="utf-8")
    assert ast.dump(ast.parse(mutated)) != ast.dump(ast.parse(code))
    assert mutant.tests
    assert missing(mutant.tests) == []


def test_no_mutant_is_listed_twice() -> None:
    assert len({(one.where, one.replace, one.replacement) for one in MUTANTS}) == len(MUTANTS)


def test_a_test_that_does_not_exist_is_missing() -> None:
    here = "tests/test_mutants.py"
    assert missing([here, f"{here}::test_a_test_that_does_not_exist_is_missing"]) == []
    gone = [f"{here}::test_nothing", "tests/test_nothing.py", "scripts/mutants.py"]
    assert missing(gone) == gone


@pytest.mark.parametrize(
    ("where", "replace", "replacement", "line"),
    [
        ("scale:Scale.fit", "lengths**-self.b", "lengths**0.0", "return lengths ** 0.0"),
        ("scale:Scale.fit", "sizes**-self.b", "sizes**0.0", "return lengths ** 0.0"),  # a local variable was renamed
        ("scale:Scale.score", "history * 2", "history", "return history"),  # the same code in another function stays
        ("scale:Scale.fit", "lengths = train.sum()", "", "pass"),
        ("scale:Scale.fit", "lengths = train.sum()\nreturn lengths ** -self.b", "return 0", "return 0"),
    ],
)
def test_a_mutant_is_an_edit_of_one_function(tree: Path, where: str, replace: str, replacement: str, line: str) -> None:
    before = ast.unparse(ast.parse(MODULE)).splitlines()
    after = SCRIPT["mutate"](mutant(where, replace, replacement), tree).splitlines()
    assert [text.strip() for text in after if text not in before] == [line]


@pytest.mark.parametrize(
    ("where", "replace", "words"),
    [
        ("scale:Scale.fit", "history * 2", "holds it 0 times instead of once. The same code is in scale:Scale.score"),
        ("scale", "history * 2", "holds it 2 times"),
        ("scale:Scale.gone", "lengths**-self.b", "scale has no function or class Scale.gone"),
        ("gone:Scale.fit", "lengths**-self.b", "there is no module gone. The same code is in scale:Scale.fit"),
        ("scale:Scale.fit", "lengths**+self.b", "No other function holds this code"),
    ],
)
def test_a_mutant_that_does_not_apply_says_what_was_looked_for(
    tree: Path, where: str, replace: str, words: str
) -> None:
    with pytest.raises(SCRIPT["DoesNotApplyError"]) as failure:
        SCRIPT["mutate"](mutant(where, replace, "0"), tree)
    assert "'a mistake'" in str(failure.value)
    assert replace in str(failure.value)
    assert words in str(failure.value)


def test_code_is_found_in_the_innermost_function_of_any_module(tree: Path) -> None:
    (tree / "src" / "inner.py").write_text("def outer():\n    def scaled(history):\n        return history * 2\n")
    found = SCRIPT["find_elsewhere"](mutant("gone", "history * 2", "0"), tree)
    assert found == ["inner:outer.scaled", "scale:Scale.score", "scale:other"]
    found = SCRIPT["find_elsewhere"](mutant("gone", "lengths = train.sum()\nreturn lengths ** -self.b", "pass"), tree)
    assert found == ["scale:Scale.fit"]


def test_relocate_writes_the_new_address_of_code_that_only_moved(
    tree: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tree / "mutants.toml"
    lines = [
        '[[mutant]]\nwhat = "a mistake"',
        'where = "gone:fit"',
        'replace = "train.sum()"\nwith = "0"\ntests = []\n',
    ]
    file.write_text("\n".join(lines))
    monkeypatch.setitem(SCRIPT["check"].__globals__, "ROOT", tree)
    monkeypatch.setitem(SCRIPT["check"].__globals__, "MUTANTS", file)
    assert SCRIPT["check"](SCRIPT["read_mutants"](file), relocate=False) == 1
    assert file.read_text() == "\n".join(lines)
    assert SCRIPT["check"](SCRIPT["read_mutants"](file), relocate=True) == 0
    assert "moved to scale:Scale.fit: a mistake" in capsys.readouterr().out
    assert file.read_text() == "\n".join([lines[0], 'where = "scale:Scale.fit"', lines[2]])


@pytest.mark.parametrize(
    ("replace", "replacement", "fate"),
    [
        ("1 + 1", "1 + 2", "killed"),
        ("1 + 1", "2 * 1", "SURVIVED"),
        ("TWO = 1 + 1", "import nothing_of_this_name", "TESTS DO NOT RUN"),
        ("4 + 4", "4 + 5", "NO LONGER APPLIES"),
    ],
)
def test_every_outcome_of_a_mutant_is_reported(tree: Path, replace: str, replacement: str, fate: str) -> None:
    assert SCRIPT["fate"](mutant("two", replace, replacement), tree) == fate
    assert (tree / "src" / "two.py").read_text() == "TWO = 1 + 1\n"
