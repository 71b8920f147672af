"""Ctrl-C in the middle of a long command."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "moment"),
    [
        ("compare --models slim,ease --splits 500 --out results.json --page page.html --json", "[1/"),
        ("train slim --split weak --out model", "Training"),
    ],
)
def test_an_interrupt_leaves_nothing_behind(tmp_path: Path, arguments: str, moment: str) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "recfusion", *arguments.split()],
        cwd=tmp_path,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # Where the tests run in the background of a shell, SIGINT is ignored; the command must not inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert process.stderr is not None
    assert any(line.startswith(moment) for line in process.stderr)  # reads on until then
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert out == ""
    assert "Traceback" not in err
    assert err.endswith("Stopped. Nothing half-written was left behind.\n")
    assert list(tmp_path.iterdir()) == []
