"""What is searched: the model's own ranges, or what a file says."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest

from foreign import Mine
from recfusion.core.errors import InputError
from recfusion.experiments.tuning.space_file import tuning_space
from recfusion.models.baselines.popularity import Popularity
from recfusion.models.registry import entry, find
from recfusion.models.settings import search_space, setting
from recfusion.training.search_space import Choice, Interval, Space, holds, space_document


@dataclass
class Choosing(Popularity):
    """A model with closed choices."""

    kind: Literal["a", "b"] = setting("a", "a kind", search="all")
    sure: bool = setting(False, "a flag", search="all")
    fixed: Literal["x", "y"] = setting("x", "not worth searching")
    size: int = setting(3, "a size", search=(1, 9))


def written(folder: Path, text: str) -> Path:
    (folder / "space.toml").write_text(text)
    return folder / "space.toml"


def test_closed_choices_can_be_declared_beside_their_default() -> None:
    assert search_space(Choosing) == {
        "kind": Choice(("a", "b")),
        "sure": Choice((False, True)),
        "size": Interval(1, 9, integer=True),
    }
    assert search_space(Choosing, ["sure"]) == {"sure": Choice((False, True))}


def test_a_model_s_own_ranges_are_the_space_but_for_what_is_set() -> None:
    assert tuning_space(entry("slim"), {"l1": "3"}) == {"l2": Interval(10.0, 2000.0, log=True)}
    assert set(tuning_space(entry("recfusion"), {"T": 3})) >= {"lr", "width", "depth"}
    assert not set(tuning_space(entry("recfusion-unet1d"), {})) & {"width", "depth"}
    assert not set(tuning_space(entry("multdae"), {})) & {"width", "kl_cap"}
    assert set(tuning_space(entry("multdae"), {"form": "vae"})) >= {"width", "kl_cap"}


def test_a_file_says_exactly_what_is_searched(tmp_path: Path) -> None:
    file = written(
        tmp_path,
        "[space]\nl2 = {low = 1, high = 1000, log = false}\nl1 = {}\n",
    )
    assert tuning_space(entry("slim"), {}, file) == {"l2": Interval(1, 1000), "l1": Interval(1, 100, log=True)}
    file = written(tmp_path, '[space]\nprocess = {choices = ["gaussian", "thinning"]}\nshared = {}\nT = {high = 5}\n')
    space = tuning_space(entry("recfusion"), {}, file)
    assert space == {
        "process": Choice(("gaussian", "thinning")),
        "shared": Choice((False, True)),
        "T": Interval(1, 5, integer=True),
    }
    assert space_document(space)["T"] == {"low": 1, "high": 5, "log": False, "integer": True}


@pytest.mark.parametrize(
    ("model", "given", "text", "message"),
    [
        ("slim", {}, "[space]\nl3 = {low = 1, high = 2}", r"Unknown setting of slim in .*'l3': choose one of l1"),
        ("slim", {}, "[space]\n", "space: dictionary should have at least 1 item"),
        ("slim", {}, "", "expected space, got nothing: add it"),
        ("slim", {}, "[spaces]\n", "Unknown key 'spaces': choose one of space"),
        ("slim", {}, "space = 3", "space: input should be a valid dictionary"),
        ("slim", {}, "[space", "Expected TOML"),
        ("slim", {}, "[space]\nl2 = 4", r"\[space\] l2: input should be a valid dictionary, got 4"),
        ("slim", {}, "[space]\nl2 = {low = 5, high = 5}", "expected low < high"),
        ("slim", {}, "[space]\nl2 = {low = 0, high = 5, log = true}", "0 < low"),
        ("slim", {}, "[space]\nl2 = {low = -1, high = 5}", "at least 0"),
        ("slim", {}, '[space]\nl2 = {low = "a"}', r"\[space\] l2.low: .* valid number, got 'a'"),
        ("slim", {}, "[space]\nl2 = {lower = 1}", r"Unknown key in \[space\] 'lower': choose one of low, high"),
        ("slim", {}, "[space]\nl2 = {choices = []}", "at least 1 item"),
        ("slim", {}, "[space]\nl2 = {choices = [1], low = 1}", "either choices or low"),
        ("slim", {"l2": "3"}, "[space]\nl2 = {}", "both given and in the space"),
        ("recfusion", {}, '[space]\nprocess = {choices = ["magic"]}', "Setting process of recfusion"),
        ("recfusion", {}, "[space]\nbeta_low = {}", "expected numbers"),
    ],
)
def test_a_wrong_space_is_one_sentence(
    tmp_path: Path, model: str, given: dict[str, str], text: str, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        tuning_space(entry(model), given, written(tmp_path, text))


def test_the_space_of_somebody_s_class_is_what_it_declares(tmp_path: Path) -> None:
    assert tuning_space(find(Mine), {}) == {"power": Interval(0.1, 2.0)}
    assert tuning_space(find(Mine(power=1.5)), {}) == {"power": Interval(0.1, 2.0)}  # where it starts is no limit
    file = written(tmp_path, "[space]\npower = {choices = [1, 2]}\n")
    assert tuning_space(find(Mine), {}, file) == {"power": Choice((1.0, 2.0))}
    with pytest.raises(InputError, match="Mine declares no range except for settings with a fixed"):
        tuning_space(find(Mine), {"power": 1.0})
    with pytest.raises(InputError, match=r"Unknown setting of Mine in .*'l2': choose one of power, note"):
        tuning_space(find(Mine), {}, written(tmp_path, "[space]\nl2 = {}\n"))


def test_a_model_without_ranges_has_nothing_to_search() -> None:
    with pytest.raises(InputError, match="popularity declares no range"):
        tuning_space(entry("popularity"), {})
    with pytest.raises(InputError, match="no range except for settings with a fixed value"):
        tuning_space(entry("ease"), {"l2": "4"})


def test_settings_outside_a_space_are_told_from_those_inside() -> None:
    space: Space = {"l2": Interval(1, 10), "kind": Choice(("a",))}
    assert holds(space, {"l2": 10, "kind": "a", "other": 3})
    assert not holds(space, {"l2": 11, "kind": "a"})
    assert not holds(space, {"l2": 5, "kind": "b"})
    assert not holds(space, {"l2": None, "kind": "a"})
    assert not holds(space, {"l2": 5})
