"""Finding models: by name, by place, as a class or an instance, of ours, of files and of installed packages."""

import importlib.metadata
import logging
import pickle
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from recfusion.core.errors import InputError
from recfusion.evaluation.scoring import signals_read
from recfusion.models import registry
from recfusion.models.baselines.popularity import Popularity
from recfusion.models.class_loading import home_file, is_importable, load_class, load_file, source_digest
from recfusion.models.linear.ease import EASE
from recfusion.models.registry import MODELS, find, known_models, make_model, trusted, typed_settings
from recfusion.models.settings import setting_values
from recfusion.models.thinning.linear import ThinningLinear
from recfusion.models.thinning.signals import ThinningSignals

CODE = '''
from dataclasses import dataclass
import recfusion as rf
from recfusion.models.baselines.popularity import Popularity

@dataclass
class Mine(Popularity):
    """What is popular, to a power."""
    power: float = rf.setting(1.0, "the power", at_least=0)

class NoDataclass(Popularity):
    """A class without the decorator."""

@dataclass
class Half(rf.Recommender):
    """A class without methods."""

number = 3
'''


@dataclass
class ease(Popularity):  # noqa: N801
    """A model of somebody else's with the name of one of ours."""


@pytest.fixture
def file(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "own.py"
    path.write_text(CODE)
    before = set(sys.modules)
    yield path
    forget()
    for name in [name for name in set(sys.modules) - before if name.startswith("recfusion_file_")]:
        del sys.modules[name]


def forget() -> None:
    """Forget which files were loaded, as a new process does."""
    load_class.cache_clear()
    load_file.cache_clear()


def test_every_model_has_a_class_a_title_and_settings_that_it_takes() -> None:
    assert len(MODELS) == 51
    for name, row in MODELS.items():
        model = row.make()
        assert setting_values(model) == setting_values(row.load()(**row.settings)), name
        assert row.title
        assert (row.origin, row.source) == ("recfusion", "")


def test_the_signals_of_a_row_are_those_that_its_model_reads() -> None:
    assert {name: entry.reads for name, entry in MODELS.items()} == {
        name: signals_read(entry.make()) for name, entry in MODELS.items()
    }


def test_one_closed_form_has_two_names_and_reads_what_its_settings_say() -> None:
    signals, features = MODELS["thinning-signals"], MODELS["thinning-features"]
    assert signals.load() is features.load() is ThinningSignals
    assert features.make() == ThinningSignals(uses="features")
    assert find(ThinningSignals(uses="all")).reads == signals.reads | features.reads


def test_a_row_that_is_like_another_shares_its_class_and_presets() -> None:
    pairs = MODELS["thinning-pairs"]
    assert pairs.load() is MODELS["thinning-linear"].load() is ThinningLinear
    assert pairs.make() == ThinningLinear(pairs=5000)
    assert pairs.make({"pairs": "7"}) == ThinningLinear(pairs=7)
    assert MODELS["recfusion-var"].presets == MODELS["recfusion"].presets != {}
    assert MODELS["recfusion-t"].presets["paper"] == {**MODELS["recfusion"].presets["paper"], "time": "projected"}


def test_settings_as_text_become_values_and_values_of_the_wrong_type_are_refused() -> None:
    assert make_model("ease", {"l2": "5"}) == EASE(l2=5.0)
    assert typed_settings(MODELS["ease"], {"l2": "5", "tune_trials": "3"}) == {"l2": 5.0, "tune_trials": 3}
    assert typed_settings(MODELS["recfusion"], {"preset": "paper", "T": "4"}) == {"preset": "paper", "T": 4}
    with pytest.raises(InputError, match="Setting l2 of ease: input should be a valid number"):
        make_model("ease", {"l2": "5"}, text=False)


def test_a_class_or_instance_of_ours_is_the_row_of_its_class() -> None:
    assert find(EASE) == MODELS["ease"]
    assert find(EASE(l2=3.0)) == replace(MODELS["ease"], settings={"l2": 3.0, "tune_trials": 20})
    assert find("recfusion.models.linear.ease:EASE") == MODELS["ease"]
    assert find(ThinningLinear(pairs=9)).make() == ThinningLinear(pairs=9)


def test_a_class_of_a_file_is_found_from_any_folder(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = find("own.py:Mine", file.parent)
    assert (entry.name, entry.title, entry.place) == ("Mine", "What is popular, to a power.", "own.py:Mine")
    assert setting_values(entry.make({"power": "2"})) == {"power": 2.0}
    monkeypatch.chdir(file.parent)
    assert find("own.py:Mine").load() is entry.load()
    assert find(f"{file}:Mine").load() is entry.load()
    assert home_file(entry.load()) == file
    assert entry.source == source_digest(entry.load()) != ""


def test_a_class_of_a_file_goes_to_other_processes(file: Path) -> None:
    """They give the file's module the same name, so that a pickled instance finds its class."""
    model = find(f"{file}:Mine").make({"power": 3})
    assert is_importable(type(model))
    packed = pickle.dumps(model)
    del sys.modules[type(model).__module__]
    forget()
    load_file(file)
    assert setting_values(pickle.loads(packed)) == {"power": 3.0}


def test_another_text_of_a_file_has_another_digest(file: Path) -> None:
    before = find(f"{file}:Mine").source
    file.write_text(CODE + "# edited\n")
    forget()
    assert find(f"{file}:Mine").source != before


def test_a_class_within_a_function_cannot_be_imported_elsewhere() -> None:
    @dataclass
    class Local(Popularity):
        """A model of a notebook."""

    assert not is_importable(Local)
    assert is_importable(EASE)
    assert find(Local()).source != ""


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("own.py:Nobody", r"Expected a class 'Nobody' in 'own.py', got none; models there: Half, Mine, NoDataclass"),
        ("own.py:number", r"Expected a class that inherits from recfusion.Recommender at .*, got 3"),
        ("own.py:NoDataclass", "Expected the model NoDataclass to be a dataclass: write @dataclass above it"),
        ("own.py:Half", "The model Half lacks what every model has: fit, score"),
        ("other.py:Mine", "Expected a Python file at .*other.py', got nothing"),
        ("own.py:", r"Expected a model as file.py:Class or package.module:Class, got 'own.py:'"),
        (":Mine", "Expected a model as file.py:Class"),
        ("no.such.package:Mine", r"Cannot import 'no.such.package' \(ModuleNotFoundError: No module named 'no'\)"),
        ("eease", "Unknown model 'eease': choose one of random, .* or a class of yours as file.py:Class"),
    ],
)
def test_a_place_without_a_model_says_what_is_there(file: Path, place: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        find(place, file.parent)


@pytest.mark.parametrize("code", ["import no_such_module", "def broken(:", "raise SystemExit(3)", "1 / 0"])
def test_a_file_that_cannot_be_run_is_one_sentence(file: Path, code: str) -> None:
    file.write_text(code)
    before = set(sys.modules)
    with pytest.raises(InputError, match=r"Cannot import 'own.py' \(\w+: .*\): check that Python can run it"):
        find(f"{file}:Mine")
    assert not [name for name in set(sys.modules) - before if name.startswith("recfusion_file_")]


@pytest.fixture
def installed(file: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An installed package with two models, one of which has the name of one of ours."""
    monkeypatch.syspath_prepend(str(file.parent))
    points = [
        SimpleNamespace(name=name, value="own:Mine", module="own", dist=SimpleNamespace(name="own-package"))
        for name in ("mine", "ease")
    ]
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: points if group == registry.GROUP else [])
    registry._installed.cache_clear()
    yield
    registry._installed.cache_clear()
    sys.modules.pop("own", None)


def test_models_of_installed_packages_are_known_and_never_take_a_name_of_ours(
    installed: None, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        known = known_models()
    assert list(known) == [*MODELS, "mine"]
    assert known["ease"] is MODELS["ease"]
    assert "The model 'ease' of own-package is left out: the name is taken." in caplog.text
    assert "own" not in sys.modules  # nothing of it is imported before it is used
    assert setting_values(make_model("mine", {"power": "2"})) == {"power": 2.0}
    assert (known["mine"].origin, known["mine"].source != "") == ("own-package", True)


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("ease", "recfusion.models.ease:EASE"),
        ("thinning", "recfusion.models.thinning.mixture:Thinning"),
        ("recfusion", "recfusion.models.recfusion:RecFusion"),
        ("slim", "recfusion.models.slim:SLIM"),
    ],
)
def test_places_of_classes_that_have_moved_still_resolve(name: str, place: str) -> None:
    assert trusted(name, place, ()) is MODELS[name]
    assert find(place).load() is MODELS[name].load()


def test_a_folder_s_model_is_ours_an_installed_one_or_a_trusted_class(installed: None) -> None:
    assert trusted("ease", "recfusion.models.linear.ease:EASE", ()) is MODELS["ease"]
    assert trusted("ease", "recfusion.models.older_home:EASE", ()) is MODELS["ease"]
    assert trusted("ease", "", ()) is MODELS["ease"]  # of format 1
    assert trusted("mine", "own:Mine", ()).origin == "own-package"
    assert trusted("ease", f"{__name__}:ease", [EASE, ease]).load() is ease
    with pytest.raises(InputError, match=r"is not from recfusion or an installed package: .* trust=\[ease\]"):
        trusted("ease", "own.py:ease", [EASE])
