"""`recfusion figure`: files, errors, and a help text without heavy imports."""

import subprocess
import sys
from pathlib import Path

import pytest
from typer import Typer
from typer.testing import CliRunner

from recfusion.cli.figure import figure_architecture, figure_diffusion, figure_map
from recfusion.core.errors import InputError
from recfusion.data.interactions import Interactions
from shop import shop

app = Typer()
app.command("diffusion")(figure_diffusion)
app.command("architecture")(figure_architecture)
app.command("map")(figure_map)
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


def test_a_model_without_similar_items_or_with_an_unknown_column_has_no_map(
    groups: Interactions, tmp_path: Path
) -> None:
    good, alone = shop(groups).save(tmp_path / "good"), shop(groups, "popularity").save(tmp_path / "alone")
    out = ["--out", str(tmp_path / "map.svg")]
    assert CliRunner().invoke(app, ["map", str(good), *out], catch_exceptions=False).exit_code == 0
    assert "Tea" in (tmp_path / "map.svg").read_text(encoding="utf-8") or (tmp_path / "map.svg").stat().st_size > 5000
    for arguments, message in (
        ([str(alone)], "finds no items similar"),
        ([str(good), "--column", "colour"], "Unknown column"),
        ([str(good), "--column", "kind", "--accuracy"], "got both"),
    ):
        error = CliRunner().invoke(app, ["map", *arguments, *out]).exception
        assert isinstance(error, InputError)
        assert message in str(error)
