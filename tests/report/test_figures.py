"""Figures as files."""

from pathlib import Path

import pytest
from matplotlib.figure import Figure

from recfusion.core.errors import InputError
from recfusion.report.figures import blank, check_figure_path, save_figure

PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture
def picture() -> Figure:
    figure, axes = blank(200, 100)
    axes.text(10, 20, "hello")
    return figure


def test_a_figure_is_saved_by_its_suffix(picture: Figure, tmp_path: Path) -> None:
    assert save_figure(picture, tmp_path / "one.png").read_bytes().startswith(PNG)
    assert "<svg" in save_figure(picture, tmp_path / "new" / "two.SVG").read_text()
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["new", "one.png", "two.SVG"]


@pytest.mark.parametrize("suffix", ["png", "svg"])
def test_the_same_figure_makes_the_same_file(picture: Figure, tmp_path: Path, suffix: str) -> None:
    one, other = (save_figure(picture, tmp_path / f"{name}.{suffix}") for name in ("one", "other"))
    assert one.read_bytes() == other.read_bytes()


@pytest.mark.parametrize(("name", "shown"), [("figure.pdf", ".pdf"), ("figure", "figure")])
def test_an_unknown_file_type_is_refused_with_the_choices(tmp_path: Path, name: str, shown: str) -> None:
    with pytest.raises(InputError, match=rf"file type of a figure '{shown}': choose one of \.png, \.svg\.$"):
        check_figure_path(tmp_path / name)


def test_a_place_that_cannot_be_written_to_is_refused(picture: Figure, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "folder.png").mkdir()
    with pytest.raises(InputError, match="Cannot write to"):
        save_figure(picture, tmp_path / "file" / "figure.png")
    with pytest.raises(InputError, match="got the folder"):
        save_figure(picture, tmp_path / "folder.png")
