"""Stored results of other code: refitted, or kept if that is asked for."""

import logging
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from fitted import changed

import recfusion
from recfusion.data.interactions import Interactions
from recfusion.experiments.comparison import compare
from recfusion.experiments.result import append_result, pack_store, read_results

_COMPARE = """
import logging, sys
import recfusion as rf
logging.basicConfig(format="%(message)s")
found = rf.compare(rf.load(), ["popularity"], metrics=("ndcg@100",), store="s.jsonl", keep_stale=len(sys.argv) > 1)
print(found.models["popularity"].code, f"{found.models['popularity'].mean('ndcg@100'):.4f}")
"""


def test_an_edited_model_is_fitted_again(tmp_path: Path) -> None:
    source = shutil.copytree(Path(recfusion.__file__).parent, tmp_path / "recfusion")
    file = source / "models" / "baselines" / "popularity.py"

    def run(*options: str) -> tuple[str, str, int]:
        command = [sys.executable, "-c", _COMPARE, *options]
        environment = os.environ | {"PYTHONPATH": str(tmp_path)}
        made = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
        return made.stdout.strip(), made.stderr.strip(), len((tmp_path / "s.jsonl").read_bytes().splitlines())

    first = run()
    assert first[0].startswith("current ")
    text = file.read_text(encoding="utf-8")
    file.write_text(text + "\n# A comment.\n", encoding="utf-8")
    (source / "models" / "linear" / "slim.py").write_text("MORE = 1\n", encoding="utf-8")
    assert run() == first
    head, tail = text.split("class Popularity")
    assert tail.count("        return ") >= 2
    at = tail.index("        return ", tail.index("def score(")) + len("        return ")
    file.write_text(f"{head}class Popularity{tail[:at]}-1 * {tail[at:]}", encoding="utf-8")
    kept = run("keep")
    assert kept == (
        first[0].replace("current", "stale"),
        "Stored results of other code are used: popularity, split 0.",
        1,
    )
    again = run()
    assert again[0].startswith("current ")
    assert again[0] != first[0]
    assert "are fitted again (--keep-stale or keep_stale=True uses them): popularity, split 0." in again[1]
    assert again[2] == 2
    assert run() == (again[0], "", 2)


def test_old_results_without_a_digest_are_kept(
    groups: Interactions, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = tmp_path / "s.jsonl"
    compare(groups, ["popularity"], metrics=["ndcg@5"], store=store)
    (one,) = read_results(store)
    store.unlink()
    append_result(store, changed(one, code="", commit="", fit_seconds=77.0))
    pack_store(store)
    with caplog.at_level(logging.WARNING):
        found = compare(groups, ["popularity"], metrics=["ndcg@5"], store=store)
    assert caplog.messages == []
    assert (found.models["popularity"].fit_seconds, found.models["popularity"].code) == (77.0, "unknown")
    assert not store.exists()
