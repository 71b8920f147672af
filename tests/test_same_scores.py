"""scripts/same_scores.py compares digests of scores, from a commit or from a file."""

import json
import runpy
from pathlib import Path

import pytest

from named_tests import ROOT

SCRIPT = runpy.run_path(str(ROOT / "scripts" / "same_scores.py"))
REQUEST = {"data": "ml-latest-small", "models": ["popularity"], "settings": {}, "signals": [], "split": "strong"}


def test_models_of_only_one_tree_are_listed_and_do_not_count_as_different(capsys: pytest.CaptureFixture[str]) -> None:
    assert SCRIPT["report"]({"a": "1", "gone": "2"}, {"a": "1", "new": "3"}) == 0
    assert capsys.readouterr().out.count("only in one tree") == 2
    assert SCRIPT["report"]({"a": "1", "b": "2"}, {"a": "1", "b": "3"}) == 1
    assert capsys.readouterr().out.splitlines()[1].endswith("DIFFERENT")


def test_stored_digests_are_those_of_the_same_request(tmp_path: Path) -> None:
    file = tmp_path / "digests.json"
    file.write_text(json.dumps({"request": {**REQUEST, "models": []}, "digests": {"popularity": "1", "ease": "2"}}))
    assert SCRIPT["stored_digests"](file, REQUEST) == {"popularity": "1"}
    with pytest.raises(SystemExit, match="other values of: split"):
        SCRIPT["stored_digests"](file, {**REQUEST, "split": "temporal"})


def test_with_signals_only_the_models_that_read_them_are_fitted() -> None:
    signals = {**REQUEST, "models": ["popularity", "recent-popularity"], "signals": ["times"], "split": "temporal"}
    assert list(SCRIPT["digests"](ROOT, signals)) == ["recent-popularity"]
