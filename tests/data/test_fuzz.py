"""Some hundred hostile files of the fuzz tool, always the same; and that the tool sees what it looks for."""

import runpy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from recfusion.core.errors import InputError
from recfusion.data.interactions import Interactions
from recfusion.data.load import load

SCRIPT = runpy.run_path(str(Path(__file__).parents[2] / "scripts" / "fuzz_data.py"))


def test_hostile_files_are_read_or_refused() -> None:
    counts, wrong = SCRIPT["fuzz"](first=0, cases=300, seconds=1e9)
    assert wrong == []
    assert counts["read"] > 50
    assert counts["refused"] > 50


@pytest.mark.parametrize(
    ("outcome", "words"),
    [
        (KeyError("x"), "KeyError"),
        (InputError("two\nlines."), "no sentence"),
        ({"rows": 2}, "3 lines, but 2 rows"),
        ({"missing": 1}, "does not add up"),
    ],
)
def test_the_tool_sees_what_it_looks_for(tmp_path: Path, outcome: Any, words: str) -> None:
    path = tmp_path / "a.csv"
    path.write_text("user,item\n1,2\n2,3\n3,4\n")

    def faulty(*given: Any, **options: Any) -> Interactions:
        found = load(*given, **options)
        if isinstance(outcome, Exception):
            raise outcome
        steps = (replace(found.steps[0], interactions=outcome.get("rows", 3)),)
        return replace(found, steps=steps, report=replace(found.report, **outcome))

    assert SCRIPT["finding"](path) == ("read", "")
    assert words in SCRIPT["finding"](path, faulty)[1]
