"""Checks of the declarations of a class, and of building, copying, pickling and saving its instances."""

import dataclasses
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import polars as pl

from recfusion.core.errors import InputError
from recfusion.data.interactions import Interactions
from recfusion.data.options import Preparation, SplitPlan
from recfusion.data.protocol import Protocol
from recfusion.evaluation.metrics import DEFAULT_METRICS
from recfusion.inference.bundle import Bundle
from recfusion.models.abilities import settled
from recfusion.models.base import Recommender, Shape, build
from recfusion.models.class_loading import require_recommender
from recfusion.models.registry import find
from recfusion.models.settings import checked, hints, search_space, setting_values, settings_of
from recfusion.models.thinning.parts import economical as economical_part
from recfusion.testing.fit_checks import apart
from recfusion.testing.sample_data import N_ITEMS, SEED, Subject
from recfusion.training.search_space import Choice

_SHAPES = (Shape(50, 20, 300), Shape(140_000, 30_000, 10_000_000))


def made_by_defaults(s: Subject) -> None:
    require_recommender(s.kind, s.kind.__name__)
    build(s.kind, s.kind.__name__, {})


def not_fitted(s: Subject) -> str | None:
    model = s.fresh()
    if not _learned(s.kind):
        return None
    asks: dict[str, Callable[[], object]] = {"score": lambda: model.score(s.asked.copy()), "state": model.state}
    for what, ask in asks.items():
        try:
            ask()
        except InputError as error:
            if not str(error) or "\n" in str(error):
                return f"the message {str(error)!r}"
        else:
            return f"an answer of {what}()"
    return None


def settings_checked(s: Subject) -> str | None:
    for name, declared in settings_of(s.kind).items():
        wrong: list[Any] = [] if hints(s.kind)[name] in (Any, object) else [...]
        if declared.at_least is not None:
            wrong.append(declared.at_least - 1)
        if declared.at_most is not None:
            wrong.append(declared.at_most + 1)
        for value in wrong:
            try:
                dataclasses.replace(s.model, **{name: value})
            except InputError:
                continue
            return f"a model with {name} = {value!r}"
    return None


def settings_in_json(s: Subject) -> str | None:
    values = json.loads(json.dumps(setting_values(s.model), allow_nan=False))
    again = setting_values(build(s.kind, s.kind.__name__, values))
    return None if again == s.settings else f"{again} of {s.settings}"


def search_ranges(s: Subject) -> str | None:
    for name, each in search_space(s.kind).items():
        if isinstance(each, Choice):
            options = each.options
        elif not each.low < each.high or (each.log and each.low <= 0):
            return f"{name} from {each.low:g} to {each.high:g}{' with log' if each.log else ''}"
        else:
            options = (each.within(each.low), each.within(each.high))
        if not options:
            return f"{name} without choices"
        for value in options:
            checked(s.kind, name, value)
    return None


def copied(s: Subject) -> str | None:
    for model in (s.model, s.fitted):
        copy = dataclasses.replace(model)
        if copy != model:
            return f"{copy} of {model}"
        if kept := [field.name for field in _learned(s.kind) if field.name in vars(copy)]:
            return f"a copy with {', '.join(kept)}"
    return None


def pickled(s: Subject) -> str | None:
    if "<locals>" in s.kind.__qualname__:
        return None  # other processes cannot import it: it is fitted in this one
    again = setting_values(pickle.loads(pickle.dumps(s.fresh())))
    return None if again == setting_values(s.fresh()) else f"{again} of {s.settings}"


def chosen(s: Subject) -> str | None:
    chosen = s.fitted.chosen()
    if json.loads(json.dumps(chosen, allow_nan=False)) != chosen:
        return f"{chosen}, which JSON changes"
    again = settled(s.fitted)
    if type(again) is not s.kind or again is s.fitted:
        return f"{again!r} from settled()"
    more = s.fit(s.train, None, model=again).chosen()
    return f"a settled model that chose {more} again" if more else None


def state(s: Subject) -> str | None:
    for name, array in s.fitted.state().items():
        if not isinstance(array, np.ndarray):
            return f"{name} of the type {type(array).__name__}"
        if array.dtype.kind not in "fiub" or not np.isfinite(array).all():
            return f"{name} with values other than finite numbers (type {array.dtype})"
    found = s.fitted.n_parameters
    return None if isinstance(found, int) and found >= 0 else f"n_parameters = {found!r}"


def saved(s: Subject) -> str | None:
    ids = pl.Series("item", [f"i{number}" for number in range(N_ITEMS)])
    users = pl.Series([f"u{number}" for number in range(s.train.shape[0])])
    data = Interactions("made up", s.train, users, ids, pl.DataFrame([ids]), preparation=Preparation(min_rating=None))
    protocol = Protocol.of(data, SplitPlan(), DEFAULT_METRICS)
    with TemporaryDirectory() as folder:
        bundle = Bundle.of(find(s.fitted), s.fitted, data, s.train, protocol, seed=SEED)
        loaded = Bundle.load(bundle.save(Path(folder) / "model"), trust=[s.kind]).model
        if setting_values(loaded) != setting_values(s.fitted) or loaded.chosen() != s.fitted.chosen():
            return f"{loaded} with {loaded.chosen()} of {s.fitted} with {s.fitted.chosen()}"
        return apart(loaded.score(s.asked.copy()), s.score(s.asked))


def seconds(s: Subject) -> str | None:
    for shape in _SHAPES:
        found = s.fresh().forecast(shape).seconds
        number = isinstance(found, int | float) and not isinstance(found, bool)
        if found is not None and not (number and 0 <= found < float("inf")):
            return f"{found!r}"
    return None


def economical(s: Subject) -> str | None:
    for shape in _SHAPES:
        model = s.fresh()
        found = economical_part(model, shape)
        if type(found) is not s.kind:
            return f"{found!r}"
        if setting_values(model) != setting_values(s.fresh()):
            return f"a changed model {model}"
    return None


def _learned(kind: type[Recommender]) -> list[dataclasses.Field[Any]]:
    return [field for field in dataclasses.fields(kind) if not field.init and field.name != "trials_"]
