"""Candidates: names, places, instances and settings become labelled models, and anything else one sentence."""

import pickle
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import foreign
from foreign import Mine, Needy
from recfusion.core.errors import InputError
from recfusion.core.pool import RunTask, SendProgress
from recfusion.experiments.candidate import Candidate, PackedJob, candidates, parse_model, parse_models
from recfusion.models import class_loading as places
from recfusion.models.class_loading import is_importable
from recfusion.models.linear.ease import EASE
from recfusion.models.recfusion.recfusion import RecFusion


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Somebody's file with models."""
    return Path(shutil.copy(foreign.__file__, tmp_path / "mine.py"))


def refusal(call: Any, *arguments: Any) -> str:
    """Return the one sentence that a call is refused with."""
    with pytest.raises(InputError) as refused:
        call(*arguments)
    text = str(refused.value)
    assert text.endswith(".")
    assert "\n" not in text
    return text


def test_names_instances_places_and_settings_become_candidates(file: Path) -> None:
    found = candidates(
        {
            "mine": Mine(power=2),
            "another ease": EASE(l2=3),
            "file": f"{file}:Mine",
            "module": "foreign:Mine",
            "slim": {"l1": 2},
            "published": "recfusion-bin",
        }
    )
    assert [(one.label, one.entry.name) for one in found] == [
        ("mine", "Mine"),
        ("another ease", "ease"),
        ("file", "Mine"),
        ("module", "Mine"),
        ("slim", "slim"),
        ("published", "recfusion-bin"),
    ]
    assert (found[0].values["power"], found[1].values["l2"], found[4].values["l1"]) == (2.0, 3.0, 2.0)
    assert found[0].entry.title == "popularity with a power, for tests"
    assert found[2].entry.place == "mine.py:Mine"
    assert [one.label for one in candidates(["ease", "popularity"])] == ["ease", "popularity"]


def test_only_the_code_of_others_has_a_digest(file: Path) -> None:
    ours, theirs, copied = candidates({"ease": EASE(), "mine": Mine(), "file": f"{file}:Mine"})
    assert ours.entry.source == ""
    assert len(theirs.entry.source) == 16
    assert copied.entry.source == theirs.entry.source  # the same file, elsewhere


def test_an_instance_of_a_variant_s_class_keeps_its_own_settings() -> None:
    (found,) = candidates({"x": RecFusion(width=7)})
    assert (found.entry.name, found.values["width"]) == ("recfusion", 7)
    assert found.values["weight_decay"] == RecFusion().weight_decay  # and not the registry's


@pytest.mark.parametrize(
    ("models", "words"),
    [
        ("ease", "Expected models as a list of names or a mapping from labels, got 'ease'"),
        (EASE(), "Expected models as a list of names or a mapping from labels"),
        (3, "Expected models as a list of names or a mapping from labels, got 3"),
        ([], "Expected at least one model, got none"),
        ({}, "Expected at least one model, got none"),
        (["ease", "slim", "ease"], "Expected each label once, got 'ease' twice"),
        (["esae"], "Unknown model 'esae': choose one of random, popularity"),
        ({"<b>": EASE()}, "Expected a label of at most 60 letters"),
        ({"x" * 61: EASE()}, "Expected a label of at most 60 letters"),
        ({"": EASE()}, "Expected a label of at most 60 letters"),
        ({"needy": Needy(when=Path())}, "Expected settings of needy that JSON can hold"),
        ({"ease": {"l3": 1}}, "Unknown setting of ease 'l3': choose one of l2"),
        ({"mine": 3}, "Expected a class that inherits from recfusion.Recommender at 'int'"),
        ({1: EASE()}, "Expected a label of at most 60 letters"),
        (["slim", EASE()], "Expected names in a list of models, got EASE(l2=None, tune_trials=20): use"),
    ],
)
def test_what_is_no_model_is_refused_in_one_sentence(models: Any, words: str) -> None:
    assert words in refusal(candidates, models)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("NoModel", "Expected a class that inherits from recfusion.Recommender"),
        ("np", "Expected a class that inherits from recfusion.Recommender"),
        ("NoDataclass", "Expected the model NoDataclass to be a dataclass: write @dataclass above it"),
        ("Unfinished", "The model Unfinished lacks what every model has: score"),
        ("Nobody", "Expected a class 'Nobody' in 'mine.py', got none; models there: Dying, Mine, Needy, NoDataclass,"),
        ("", "Expected a model as file.py:Class or package.module:Class"),
    ],
)
def test_a_place_without_a_model_is_refused_in_one_sentence(file: Path, name: str, words: str) -> None:
    assert words in refusal(candidates, {"mine": f"{file}:{name}"})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("def broken(:\n", "Cannot import 'broken.py' (SyntaxError:"),
        ("import nosuchmodule\n", "Cannot import 'broken.py' (ModuleNotFoundError: No module named 'nosuchmodule')"),
        ("raise RuntimeError('two\\nlines')\n", "Cannot import 'broken.py' (RuntimeError: two lines)"),
        ("import sys\nsys.exit(3)\n", "Cannot import 'broken.py' (SystemExit: 3)"),
    ],
)
def test_a_file_that_does_not_import_is_refused_in_one_sentence(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "broken.py").write_text(text)
    assert words in refusal(candidates, {"mine": f"{tmp_path}/broken.py:Mine"})
    assert not [name for name in sys.modules if "broken" in name and "recfusion_file" in name]


def test_a_file_or_module_that_is_not_there_is_refused(tmp_path: Path) -> None:
    assert "Expected a Python file at" in refusal(candidates, {"mine": f"{tmp_path}/none.py:Mine"})
    assert "Cannot import 'nosuchmodule' (Modul" in refusal(candidates, {"mine": "nosuchmodule:Mine"})


def test_a_command_line_names_models_and_their_settings(file: Path) -> None:
    found = parse_models(f"ease, mine={file}:Mine,foreign:Mine", {"mine.power": "2", "ease.l2": "7"}, trials=5)
    assert [one.label for one in found] == ["ease", "mine", "Mine"]
    assert (found[0].values, found[1].values["power"]) == ({"l2": 7.0, "tune_trials": 5}, 2.0)
    assert parse_model("me=foreign:Mine", {"power": "3"}).values == {"power": 3.0, "note": ""}
    for text, settings, words in (
        ("", {}, "at least one model in --models"),
        ("ease,ease", {}, "Expected each label once, got 'ease' twice"),
        ("ease", {"l2": "3"}, "Expected --set MODEL.NAME=VALUE, got 'l2=3'"),
        ("ease", {"slim.l1": "3"}, "Unknown model in --set 'slim': choose one of ease"),
        ("ease", {"ease.l2": "much"}, "Setting l2 of ease"),
    ):
        assert words in refusal(parse_models, text, settings)


def test_classes_of_notebooks_and_functions_stay_in_this_process(file: Path) -> None:
    @dataclass
    class Local(Mine):
        """Of a function."""

    typed_in: Any = dataclass(type("TypedIn", (Mine,), {"__module__": "__main__"}))
    gone: Any = dataclass(type("Gone", (Mine,), {"__module__": "a_module_that_is_gone"}))
    found = candidates(
        {"local": Local(), "typed": typed_in(), "gone": gone(), "file": f"{file}:Mine", "module": Mine()}
    )
    assert [is_importable(type(one.model)) for one in found] == [False, False, False, True, True]


@dataclass(frozen=True)
class Naming:
    """A job that names the model it was given."""

    candidate: Candidate

    def start(self) -> RunTask:
        def work(task: object, tell: SendProgress) -> object:
            return self.candidate.entry.name, self.candidate.values["power"]

        return work


def test_a_packed_job_loads_the_files_of_its_models_before_it_is_unpacked(file: Path) -> None:
    candidate = Candidate.of("mine", f"{file}:Mine", {"power": 1.5})
    packed = pickle.loads(pickle.dumps(PackedJob.of(Naming(candidate), [type(candidate.model)])))
    assert packed.files == (file,)
    del sys.modules[type(candidate.model).__module__]  # as in a process that has just been started
    places.load_file.cache_clear()
    with pytest.raises(ModuleNotFoundError):
        pickle.loads(packed.packed)
    assert packed.start()(None, lambda told: None) == ("Mine", 1.5)
    assert PackedJob.of(Naming(candidates({"mine": Mine()})[0]), [Mine]).files == ()
