"""Ctrl-C in the middle of a long command."""

import os
import pty
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from recfusion.cli import main as cli


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
def test_an_interrupted_training_goes_on_to_the_same_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The weights after Ctrl-C and --resume equal those of a training that was left alone."""
    monkeypatch.chdir(tmp_path)
    command = ["recfusion", "train", "recfusion", "--set", "max_epochs=12", "--out"]

    def run(*more: str) -> int | str | None:
        monkeypatch.setattr("sys.argv", [*command, *more])
        with pytest.raises(SystemExit) as stop:
            cli.main()
        return stop.value.code

    assert not run("whole")
    process = subprocess.Popen(
        [sys.executable, "-m", *command, "broken"],
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

    capsys.readouterr()
    assert run("broken") == 2
    assert "add --resume" in capsys.readouterr().err
    assert not run("broken", "--resume")
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"whole", "broken"}
    one, two = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "broken"))
    assert one == two


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "moment", "hint"),
    [
        ("train recfusion --set max_epochs=500 --out model", r"epoch (?!1/)\d", "continue with --resume"),
        ("compare --models slim,ease --splits 500 --out results.jsonl", r"\[\d+/", "run the same command to resume"),
    ],
)
def test_the_hint_how_to_resume_stays_on_a_terminal(tmp_path: Path, arguments: str, moment: str, hint: str) -> None:
    """A status line that ends erases itself: nothing may be erased after the hint."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "recfusion", *arguments.split()],
        cwd=tmp_path,
        env=os.environ | {"PYTHONUNBUFFERED": "1", "TERM": "xterm", "COLUMNS": "200"},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    os.close(theirs)
    seen = b""
    asked_to_stop = False
    try:
        while part := os.read(ours, 4096):
            seen += part
            if not asked_to_stop and re.search(moment.encode(), seen):  # a busy machine shows few of the moments
                process.send_signal(signal.SIGINT)
                asked_to_stop = True
    except OSError:  # the end of a terminal
        pass
    os.close(ours)
    assert process.wait(60) == 130, seen.decode()[-2000:]
    text = seen.decode()
    assert hint in text
    assert text.rfind("\x1b[2K") < text.index(hint)
