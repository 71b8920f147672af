"""Ctrl-C in the middle of a long command."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "moment", "left"),
    [
        (
            "compare --models slim,ease --splits 500 --out results.jsonl --page page.html --json",
            "[1/",
            ["results.jsonl"],
        ),
        ("train slim --split weak --out model", "Training", []),
    ],
)
def test_an_interrupt_leaves_what_is_finished_and_nothing_else(
    tmp_path: Path, arguments: str, moment: str, left: list[str]
) -> None:
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
    assert err.endswith("Stopped. No incomplete files were left behind.\n")
    assert [path.name for path in tmp_path.iterdir()] == left


@pytest.mark.slow
def test_an_interrupted_training_goes_on_to_the_same_model(tmp_path: Path) -> None:
    """The weights after Ctrl-C and --resume equal those of a training that was left alone."""
    command = [sys.executable, "-m", "recfusion", "train", "recfusion", "--set", "max_epochs=12", "--out"]
    subprocess.run([*command, "whole"], cwd=tmp_path, check=True, capture_output=True)
    process = subprocess.Popen(
        [*command, "broken"],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert process.stderr is not None
    assert any(line.startswith("epoch 3/") for line in process.stderr)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert "continue with --resume" in err
    assert [path.name for path in tmp_path.iterdir() if "broken" in path.name] == ["broken.checkpoint"]

    refused = subprocess.run([*command, "broken"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    assert "add --resume" in refused.stderr
    subprocess.run([*command, "broken", "--resume"], cwd=tmp_path, check=True, capture_output=True)
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"whole", "broken"}
    one, two = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "broken"))
    assert one == two
