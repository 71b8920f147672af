"""Models by name: the tables of models.toml, and models of installed packages (entry points `recfusion.models`).

Classes are imported when they are first used, so that the linear models need no torch.
"""

import importlib.metadata
import inspect
import logging
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from recfusion.core.errors import InputError, choices
from recfusion.data.interactions import Signal
from recfusion.evaluation.scoring import signals_read
from recfusion.models.base import Recommender, build
from recfusion.models.class_loading import load_class, require_recommender, source_digest
from recfusion.models.settings import setting_values

log = logging.getLogger(__name__)
DEFAULT_MODEL = "thinning"
QUICK_MODEL = "thinning-signals"  # for demos: its fit takes seconds, and it reads ratings and times
TUNED = "tuned"
PRESET = "preset"  # the name of a set of settings, given like a setting
GROUP = "recfusion.models"  # of entry points
OURS = "recfusion"


@dataclass(frozen=True)
class Entry:
    """A model: its title, the place of its class, and settings that differ from those of the class."""

    name: str
    title: str
    place: str  # "package.module:Class" or "file.py:Class"
    settings: Mapping[str, Any] = field(default_factory=dict)
    presets: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    signals: frozenset[Signal] | None = None  # that it reads; None if only the class knows
    origin: str = OURS  # the package, module or file that it comes from
    kind: type[Recommender] | None = None  # the class, if it was given

    def load(self) -> type[Recommender]:
        return self.kind or load_class(self.place)

    def make(self, settings: Mapping[str, Any] | None = None, *, text: bool = True) -> Recommender:
        """Return a new model with settings given as values or, with `text`, as strings.

        `preset` names a set of settings that replace the model's own ("paper", if the model has it; "tuned", the
        default, replaces none).
        """
        given = dict(settings or {})
        preset = given.pop(PRESET, TUNED)
        if preset != TUNED and (not isinstance(preset, str) or preset not in self.presets):
            raise choices(f"preset of {self.name}", preset, [TUNED, *self.presets], PRESET)
        values = {**self.settings, **self.presets.get(preset, {}), **given}
        return build(self.load(), self.name, values, text=text)

    @property
    def reads(self) -> frozenset[Signal]:
        """The signals that the model reads; a class of ours is not imported for it."""
        return signals_read(self.load()) if self.signals is None else self.signals

    @property
    def source(self) -> str:
        """A digest of the code of another person's class, which changes if the model is edited."""
        return "" if self.origin == OURS else source_digest(self.load())


def _table() -> dict[str, Any]:
    return tomllib.loads(resources.files("recfusion.models").joinpath("models.toml").read_text(encoding="utf-8"))


def _rows() -> dict[str, Entry]:
    found: dict[str, Entry] = {}
    for name, row in _table().items():
        if name == "moved":
            continue
        like = found.get(row.get("like", ""))
        presets = {**(like.presets if like else {})}
        for preset, values in row.get("presets", {}).items():
            presets[preset] = {**presets.get(preset, {}), **values}
        place = row.get("class") or found[row["like"]].place
        reads = frozenset(row.get("reads", (like.signals or ()) if like else ()))
        found[name] = Entry(name, row["title"], place, row.get("settings", {}), presets, reads)
    return found


MODELS: Mapping[str, Entry] = _rows()
MOVED: Mapping[str, str] = _table()["moved"]  # models that left the package, with their new place


def known_models() -> dict[str, Entry]:
    """Return the models of recfusion and of installed packages, by name."""
    return {**MODELS, **_installed()}


def entry(name: str) -> Entry:
    """Return the model of that name."""
    known = known_models()
    if name not in known and name in MOVED:
        raise InputError(f"{name} moved to {MOVED[name].partition(':')[0]}: use {MOVED[name]}.")
    if name not in known:
        raise choices("model", name, [*known, "or a class of yours as file.py:Class or package.module:Class"], "model")
    return known[name]


def make_model(name: str, settings: Mapping[str, Any] | None = None, *, text: bool = True) -> Recommender:
    """Return a new model by name or place, with settings given as values or, with `text`, as strings."""
    return find(name).make(settings, text=text)


def typed_settings(entry: Entry, texts: Mapping[str, str]) -> dict[str, Any]:
    """Parse settings given as strings; `preset` stays as it is."""
    model = entry.make(texts)
    return {key: text if key == PRESET else getattr(model, key) for key, text in texts.items()}


def find(model: str | type[Recommender] | Recommender, folder: Path | None = None) -> Entry:
    """Return the entry of a name, a place ("file.py:Class", "package.module:Class"), a class or an instance.

    Files are relative to `folder`, or to the working folder. The settings of an instance become those of the entry.
    """
    if isinstance(model, str):
        return _placed(model, folder) if ":" in model else entry(model)
    kind = model if isinstance(model, type) else type(model)
    require_recommender(kind, kind.__name__)
    place = f"{kind.__module__}:{kind.__qualname__}"
    ours = next((row for row in MODELS.values() if row.place == place), None)
    found = _foreign(kind, place) if ours is None else replace(ours, settings={})
    return (
        found
        if isinstance(model, type)
        else replace(found, settings=setting_values(model), signals=signals_read(model))
    )


def trusted(name: str, place: str, trust: Iterable[type[Recommender]]) -> Entry:
    """Return the entry of a model that a stored file names; unknown code is never imported."""
    ours = known_models().get(name)
    if ours is not None and (not place or _package(place) == _package(ours.place)):  # a class may have moved
        return ours
    wanted = place.rpartition(":")[2] or name
    for kind in trust:
        if kind.__qualname__ == wanted:
            return find(kind)
    if name in MOVED:
        raise InputError(f"{name} moved to {MOVED[name].partition(':')[0]}: add --trust {MOVED[name]} to load it.")
    raise InputError(
        f"The model's class '{place or name}' is not from recfusion or an installed package: if you trust it, pass "
        f"trust=[{wanted}] in Python or --trust {place or 'file.py:Class'} in a command."
    )


def _package(place: str) -> str:
    return place.partition(":")[0].partition(".")[0]


def _placed(place: str, folder: Path | None) -> Entry:
    where, _, name = place.rpartition(":")
    if not where or not name.isidentifier():
        raise InputError(f"Expected a model as file.py:Class or package.module:Class, got '{place}'.")
    if where.endswith(".py"):
        return _foreign(load_class(f"{(folder or Path.cwd()) / where}:{name}"), f"{Path(where).name}:{name}")
    if where.startswith(f"{OURS}.models."):  # the module of a class may have moved
        place = next((row.place for row in MODELS.values() if row.place.endswith(f":{name}")), place)
    return find(load_class(place))


def _foreign(kind: type[Recommender], place: str) -> Entry:
    title = next(iter((inspect.getdoc(kind) or "").splitlines()), "") or kind.__name__
    return Entry(kind.__qualname__, title, place, origin=place.rpartition(":")[0], kind=kind)


@cache
def _installed() -> dict[str, Entry]:
    """Return the models of installed packages; they are imported when they are first used."""
    found: dict[str, Entry] = {}
    for point in importlib.metadata.entry_points(group=GROUP):
        origin = point.dist.name if point.dist is not None else point.module
        if point.name in MODELS or point.name in found:
            log.warning("The model '%s' of %s is left out: the name is taken.", point.name, origin)
        else:
            found[point.name] = Entry(point.name, f"a model of {origin}", point.value, origin=origin)
    return found
