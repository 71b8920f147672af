"""`recfusion figure`: files, errors, and a help text without heavy imports."""

import subprocess
import sys
from pathlib import Path

import pytest
from typer import Typer
from typer.testing import CliRunner

from recfusion.cli.figure import figure_architecture, figure_diffusion
from recfusion.core.errors import InputError

app = Typer()
app.command("diffusion")(figure_diffusion)
app.command("architecture")(figure_architecture)
PNG = b"\x89PNG\r\n\x1a\n"


def test_every_command_draws_a_file(tmp_path: Path) -> None:
    ratings = tmp_path / "ratings.csv"
    lines = [f"u{user},i{(user % 3) * 8 + (user + step) % 8}" for user in range(40) for step in range(6)]
    ratings.write_text("\n".join(["user,item", *lines]) + "\n")
    data = ["--data", str(ratings), "--epochs", "1"]
    for arguments in (["diffusion", *data], ["architecture"]):
        out = tmp_path / f"{arguments[0]}.png"
        result = CliRunner().invoke(app, [*arguments, "--out", str(out)], catch_exceptions=False)
        assert result.exit_code == 0
        assert out.read_bytes().startswith(PNG)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["diffusion", "--data", "nowhere"], "neither a data set"),
        (["diffusion", "--data", "nowhere", "--out", "figure.gif"], "Unknown file type"),  # before any data is read
        (["architecture", "--out", "figure.gif"], "Unknown file type"),
    ],
)
def test_a_command_that_cannot_draw_says_so_in_a_sentence(arguments: list[str], message: str) -> None:
    error = CliRunner().invoke(app, arguments).exception
    assert isinstance(error, InputError)
    assert message in str(error)
    assert str(error).endswith(".")


def test_the_command_is_declared_without_matplotlib_and_torch() -> None:
    code = (
        "import sys; from recfusion.cli.main import command_line; "
        "command_line()(['figure', '--help'], standalone_mode=False); print(*sys.modules)"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "architecture" in loaded
    assert "recfusion.cli.main" in loaded
    assert {"matplotlib", "torch", "numpy"} & set(loaded) == set()
