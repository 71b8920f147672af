"""The examples run."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.mark.slow
def test_the_digits_are_learned_drawn_and_completed(tmp_path: Path) -> None:
    pytest.importorskip("sklearn", reason="the example's data comes with scikit-learn")
    command = [sys.executable, str(EXAMPLES / "binary_digits.py"), "--epochs", "15", "--out", "digits.png"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    bound = float(done.stdout.split("held-out bound ")[1].split()[0])
    assert 0.3 < bound < 1.0  # bits per pixel; 1 is a fair coin for each
    assert (tmp_path / "digits.png").read_bytes().startswith(b"\x89PNG")
