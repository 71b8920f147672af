"""What the README shows can be run."""

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_example_in_the_readme_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    exec(compile(code, "README.md", "exec"), {})
    assert "somebody new" in capsys.readouterr().out
    assert (tmp_path / "my-model" / "config.json").is_file()


def test_every_file_that_the_readme_links_to_is_there() -> None:
    links = re.findall(r"\]\(([^)#]+)\)", README)
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_the_table_in_the_readme_is_what_the_committed_results_give() -> None:
    script = runpy.run_path(str(ROOT / "scripts" / "readme_table.py"))
    assert script["with_table"](README, script["headline_table"]()) == README, "write it again: scripts/readme_table.py"
