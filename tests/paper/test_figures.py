"""The figures: what they say, and the files that they are saved to."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text
from typer import Typer
from typer.testing import CliRunner

from recfusion.cli.figure import figure_architecture, figure_diffusion, figure_schedule
from recfusion.core.errors import InputError
from recfusion.data.interactions import Interactions
from recfusion.models import registry
from recfusion.paper.architecture_figure import NOT_USED, Family, Row, draw_architecture, recfusion_family
from recfusion.paper.diffusion_figure import OPTIONS, diffusion_figure
from recfusion.paper.drawing import draw_diffusion, draw_schedules
from recfusion.paper.schedule_figure import schedule_figure
from recfusion.report.figures import blank, check_figure_path, save_figure

app = Typer()
app.command("diffusion")(figure_diffusion)
app.command("architecture")(figure_architecture)
app.command("schedule")(figure_schedule)
PNG = b"\x89PNG\r\n\x1a\n"


def texts(figure: Figure) -> list[str]:
    return [found.get_text() for found in figure.findobj(Text) if isinstance(found, Text) and found.get_text()]


def row(family: Family, setting: str) -> Row:
    return next(row for row in family.rows if row.setting == setting)


@pytest.fixture
def picture() -> Figure:
    figure, axes = blank(200, 100)
    axes.text(10, 20, "hello")
    return figure


@pytest.fixture
def one_more(monkeypatch: pytest.MonkeyPatch) -> str:
    """A variant that nobody has heard of yet."""
    plain = registry.MODELS["recfusion"]
    entry = replace(plain, name="recfusion-quick", title="RecFusion in a hurry", settings={"T": 17, "lr": 0.25})
    monkeypatch.setattr(registry, "MODELS", {**registry.MODELS, "recfusion-quick": entry})
    return "recfusion-quick"


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


def test_the_diffusion_figure_labels_options_rows_steps_and_means(groups: Interactions) -> None:
    shown = diffusion_figure(groups, epochs=1, n_users=5, n_items=20)
    written = texts(draw_diffusion(shown, groups.name, 1))
    for option in OPTIONS:
        assert f"({option.name}) {option.title}" in written
    assert sum(text.startswith("forward") and "→" in text for text in written) == 3
    assert sum("learned reverse" in text for text in written) == 3
    assert [text.split("$")[1] for text in written if text.startswith("$t = ")] == [f"t = {t}" for t in range(7)]
    for chains in shown:
        assert {f"mean {mean:.3f}" for mean in chains.forward.mean((1, 2))} <= set(written)
    assert any("5 test users" in text and "20 most popular items" in text and "1 epoch " in text for text in written)


def test_the_family_is_read_from_the_registry() -> None:
    family = recfusion_family()
    implemented = registry.MODELS["recfusion"].load()
    assert list(family.names) == [
        name for name, entry in registry.MODELS.items() if issubclass(entry.load(), implemented)
    ]
    assert "ease" not in family.names
    process = row(family, "process")
    for name, value in zip(family.names, process.values, strict=True):
        assert value == getattr(registry.make_model(name), "process")  # noqa: B009  (it is no field of the base class)


def test_a_cell_differs_where_it_is_not_the_first_variant_s() -> None:
    family = recfusion_family()
    time = dict(zip(family.names, row(family, "time").differs, strict=True))
    assert not time["recfusion"]
    assert time["recfusion-t"]


def test_a_u_net_of_items_with_places_is_not_told_the_step_and_has_no_schedule() -> None:
    family = recfusion_family()
    place = family.names.index("recfusion-unet2d")
    assert row(family, "time").values[place] == "none"
    assert row(family, "beta_high").values[place] == NOT_USED
    assert row(family, "low").values[place] == "0.4"


def test_a_setting_without_a_meaning_is_not_shown_as_a_difference() -> None:
    family = recfusion_family()
    variance = row(family, "variance")
    binary = family.names.index("recfusion-bin")
    assert variance.values[binary] == NOT_USED
    assert not variance.differs[binary]


def test_every_setting_is_shown_once_or_named_as_common() -> None:
    from recfusion.models.settings import settings_of

    family = recfusion_family()
    named = [row.setting for row in family.rows + family.common]
    classes = (registry.MODELS[name].load() for name in family.names)
    assert sorted(named) == sorted({setting for kind in classes for setting in settings_of(kind)})
    assert not any(any(row.differs) for row in family.common)


def test_the_architecture_figure_names_every_variant_and_what_is_in_its_row() -> None:
    family = recfusion_family()
    written = texts(draw_architecture(family))
    assert set(family.names) <= set(written)
    for found in family.rows:
        assert found.setting in written
        assert set(found.values) <= set(written)


def test_a_new_row_of_the_registry_appears_in_the_architecture_figure(one_more: str) -> None:
    family = recfusion_family()
    assert family.names[-1] == one_more
    assert row(family, "T").values[-1] == "17"
    assert row(family, "T").differs[-1]
    assert row(family, "lr").stage.name == "training"
    written = texts(draw_architecture(family))
    assert {one_more, "17", "0.25"} <= set(written)


def test_every_command_draws_a_file(tmp_path: Path) -> None:
    ratings = tmp_path / "ratings.csv"
    lines = [f"u{user},i{(user % 3) * 8 + (user + step) % 8}" for user in range(40) for step in range(6)]
    ratings.write_text("\n".join(["user,item", *lines]) + "\n")
    data = ["--data", str(ratings), "--epochs", "1"]
    for arguments in (["diffusion", *data], ["schedule", *data], ["architecture"]):
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


def test_the_schedule_figure_shows_every_rate_of_every_process(groups: Interactions) -> None:
    courses = schedule_figure(groups, epochs=2, processes=("drift", "thinning"))
    said = texts(draw_schedules(courses, "a_data$set"))
    for process in ("drift", "thinning"):
        assert f"{process}: learned rates" in said
    assert said.count(r"$\beta_{6}$") == 2
    assert "epoch on a_data$set" in said
