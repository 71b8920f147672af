"""A fixed sample of a hundred cases of scripts/faults.py, and a test of the fault injection itself."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[1] / "scripts"


@pytest.mark.slow
def test_a_fault_at_any_call_of_a_command_leaves_the_old_state_or_the_new_one() -> None:
    """The tool runs in a separate process, because this one has threads and cannot be forked."""
    command = [sys.executable, str(SCRIPTS / "faults.py"), "--sample", "100"]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    if "Cannot run here" in run.stdout:
        pytest.skip(run.stdout.strip())
    assert run.returncode == 0, run.stdout + run.stderr
    assert "100 points" in run.stdout


CARELESS = """
import sys
from pathlib import Path
from faulty_calls import FAULTS, traced, why_not
if reason := why_not():
    raise SystemExit(f"Cannot run here: {reason}.")
file = Path("box/a").absolute()
file.parent.mkdir()
def run():
    try:
        file.write_text("new!")
    except OSError as error:
        return error.errno
    return 0
for call in traced(run, file.parent).calls:
    for fault in FAULTS:
        if call.takes(fault):
            file.write_text("old")
            ended = traced(run, file.parent, call, fault)
            print(fault, call, ended.hit, ended.code, file.read_text())
"""


def test_the_tool_does_to_a_careless_writer_what_it_says(tmp_path: Path) -> None:
    environment = {"PYTHONPATH": str(SCRIPTS), "PATH": ""}
    command = [sys.executable, "-c", CARELESS]
    run = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    if "Cannot run here" in run.stderr:
        pytest.skip(run.stderr.strip())
    assert run.stdout.splitlines() == [
        "ENOSPC open to create a True 28 old",
        "EIO open to create a True 5 old",
        "KILL open to create a True -9 old",
        "FULL open to create a True 28 old",
        "DEAD open to create a True 5 old",
        "ENOSPC write a True 28 new!",  # once only: Python tries again when the file is closed
        "EIO write a True 5 new!",
        "KILL write a True -9 ",
        "TORN write a True -9 ne",
        "FULL write a True 28 ne",
        "DEAD write a True 5 ",
    ]
