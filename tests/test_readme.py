"""What the README shows can be run."""

import re
import runpy
import shlex
import sys
from pathlib import Path
from types import ModuleType

import pytest

from recfusion.cli import main as cli

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_examples_in_the_readme_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One after another, as a reader would type them."""
    pytest.importorskip("pandas")
    monkeypatch.chdir(tmp_path)
    module = ModuleType("typed_in")
    monkeypatch.setitem(sys.modules, "typed_in", module)
    blocks = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert len(blocks) == 4
    for code in blocks:
        exec(compile(code, "README.md", "exec"), vars(module))
    printed = capsys.readouterr().out
    assert "somebody new" in printed
    assert "Recommendations(1 users, 3 places)" in printed
    assert "Comparison(ml-latest-small, splits 0, 1, ndcg@100: ease" in printed
    assert (tmp_path / "my-model" / "config.json").is_file()


def test_the_commands_that_control_lists_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    section = README.partition("## Tell it what you want")[2].partition("\n## ")[0]
    lines = re.findall(r"^recfusion (.*)$", section, re.MULTILINE)
    assert len(lines) == 10
    monkeypatch.chdir(tmp_path)
    for line in lines:
        monkeypatch.setattr("sys.argv", ["recfusion", *shlex.split(line, comments=True)])
        with pytest.raises(SystemExit) as stop:
            cli.main()
        assert stop.value.code in (0, None), (line, capsys.readouterr().err)
    assert "Silence of the Lambs" in capsys.readouterr().out


def test_every_file_that_the_readme_links_to_is_there() -> None:
    links = re.findall(r"\]\(([^)#]+)\)", README)
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_the_tables_in_the_readme_are_what_the_committed_results_give() -> None:
    script = runpy.run_path(str(ROOT / "scripts" / "readme_table.py"))
    assert script["with_tables"](README) == README, "write them again: scripts/readme_table.py"
