"""Metrics of other people: a function of one user's list or of all lists, from Python or "file.py:function".

A metric's name has a digest of its code, `own_share#1f3a@20`, so that results of an edited metric are other results.
"""

import hashlib
import inspect
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from recfusion.core.errors import InputError, choices
from recfusion.evaluation.list_metrics import ListSet
from recfusion.evaluation.metrics import METRICS, Metric, Values, check_metrics, is_descriptive, parse_metric
from recfusion.experiments.candidate import Candidate
from recfusion.models.class_loading import load_file


def metric(function: Callable[[Any], float], k: int = 20, name: str | None = None, *, origin: str = "") -> str:
    """Make a function a metric at K, and return its name for `metrics=`.

    A function with the parameter `user` gets the list of one user (`UserList`) and returns a number; the metric then
    has intervals and tests. One with the parameter `lists` gets the lists of all users (`ListSet`) and returns one
    number. `origin` is the "path:function" that it comes from.
    """
    own = name or str(getattr(function, "__name__", ""))
    if not callable(function) or not own.isidentifier():
        raise InputError(
            f"Expected a function with a name as a metric, got {function!r}: write def NAME(user).", "metrics"
        )
    parameters = list(inspect.signature(function).parameters)
    if parameters not in (["user"], ["lists"]):
        raise InputError(
            f"Expected the metric {own} to have one parameter, user (one list) or lists (all lists), got "
            f"{', '.join(parameters) or 'none'}: rename it.",
            "metrics",
        )
    if k < 1:
        raise InputError(f"Expected a list length of at least 1 for the metric {own}, got {k}: change it.", "metrics")
    kind = f"{own}#{_digest(function)}"
    formula = " ".join((inspect.getdoc(function) or own).split())
    if parameters == ["user"]:
        METRICS[kind] = Metric(formula, of_users=lambda lists, _: _per_user(function, own, lists), origin=origin)
    else:
        METRICS[kind] = Metric(formula, of_lists=lambda lists, _: _number(function, own, lists), origin=origin)
    return f"{kind}@{k}"


def named_metrics(names: Sequence[str]) -> tuple[str, ...]:
    """Return the names of metrics; "file.py:function@K" is loaded and gets its name."""
    return check_metrics([load_metric(name) if ".py:" in name else name for name in names])


def deciding_metric(asked: str | None, names: Sequence[str]) -> str | None:
    """Return the name of the metric that ranks models; raise if it is not among `names`."""
    found = load_metric(asked) if asked is not None and ".py:" in asked else asked
    if found is not None and found not in names:
        raise choices("deciding metric", found, names, "deciding")
    return found


def main_metric(metrics: Sequence[str]) -> str:
    """Return the metric that ranks models by default: the last one that measures accuracy on all items.

    Sampled metrics and those of other people decide only if nothing else is listed, or if they are asked for.
    """
    accurate = [name for name in metrics if not is_descriptive(name)]
    exact = [name for name in accurate if "#" not in name and not name.startswith("sampled_")]
    return (exact or accurate or list(metrics))[-1]


def check_search_metric(deciding: str | None, metrics: Sequence[str], planned: Iterable[Candidate]) -> None:
    """Raise if the searches of `--tune` would choose settings by another metric than the one that ranks models."""
    used = main_metric(metrics)
    if deciding not in (None, used) and any(one.tune for one in planned):
        raise InputError(
            f"Expected the deciding metric to be {used}, by which tune searches settings, got {deciding}: list "
            f"{deciding} last, or leave the metrics after it out.",
            "deciding",
        )


def load_metric(place: str) -> str:
    """Load the metric at "file.py:function@K", and return its name."""
    where, _, k = place.partition("@")
    file, _, name = where.rpartition(":")
    if not k.isdecimal() or int(k) < 1:
        raise InputError(f"Expected a metric with a list length, such as '{where}@20', got '{place}'.", "metrics")
    function = getattr(load_file(Path(file).absolute()), name, None)
    if not inspect.isfunction(function):
        raise InputError(f"Expected a function '{name}' in '{Path(file).name}', got none: check its name.", "metrics")
    return metric(function, int(k), origin=f"{Path(file).absolute()}:{name}")


def origins(names: Sequence[str]) -> tuple[str, ...] | None:
    """Return the places of the custom metrics among these names; None if one is known in this process only."""
    custom = [name for name in names if "#" in name]
    found = [METRICS[parse_metric(name)[0]].origin for name in custom]
    places = tuple(f"{origin}@{parse_metric(name)[1]}" for origin, name in zip(found, custom, strict=True))
    return places if all(found) else None


def _per_user(function: Callable[[Any], float], name: str, lists: ListSet) -> Values:
    return np.array([_number(function, name, user) for user in lists.users()], np.float64)


def _number(function: Callable[[Any], float], name: str, of: object) -> float:
    try:
        return float(function(of))
    except Exception as error:  # another person's function may raise anything
        message = f"{type(error).__name__}: {' '.join(str(error).split())}".rstrip(" :.")
        raise InputError(f"The metric {name} failed ({message}): let it return a number.", "metrics") from None


def _digest(function: Callable[..., Any]) -> str:
    """Return a digest of a function's source, if it can be found, and of its constants and names."""
    code = getattr(function, "__code__", None)
    constants = [value for value in code.co_consts if not inspect.iscode(value)] if code else []
    text = repr((constants, code.co_names)) if code else type(function).__name__
    with suppress(OSError, TypeError):  # a function of a shell has no source
        text += inspect.getsource(function)
    return hashlib.blake2b(text.encode(), digest_size=2).hexdigest()
