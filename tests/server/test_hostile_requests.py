"""Some hundreds of the requests of scripts/fuzz_service.py, which sends ten thousand."""

import runpy
from pathlib import Path

import pytest

from named_tests import ROOT
from running import running, settings_for


def test_what_the_document_allows_and_forbids_never_breaks_the_service(tmp_path: Path) -> None:
    pytest.importorskip("schemathesis")
    script = runpy.run_path(str(ROOT / "scripts" / "fuzz_service.py"))
    with running(settings_for(script["small_shop"](tmp_path))) as client:
        answers, wrong = script["fuzz"](client, 220)
    assert wrong == []
    assert sum(answers.values()) > 150
    assert {"200", "201", "422"} <= answers.keys()
