"""Search spaces of settings, and the next settings to try by Hyperopt's TPE.

The search has no state besides the list of trials, so it can resume from any list.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

import numpy as np

from recfusion.training.trial import Trial

STARTUP = 8  # random trials before TPE starts


@dataclass(frozen=True)
class Interval:
    """The numbers from `low` to `high`, on a linear or, with `log`, logarithmic scale."""

    low: float
    high: float
    log: bool = False
    integer: bool = False

    @property
    def ends(self) -> tuple[float, float]:
        """The bounds on the scale of the draw; integers get half a unit more, so that all are equally likely."""
        margin = 0.5 if self.integer else 0.0
        low, high = self.low - margin, self.high + margin
        return (math.log(low), math.log(high)) if self.log else (low, high)

    def draw(self, rng: np.random.Generator) -> float | int:
        value = float(rng.uniform(*self.ends))
        return self.within(math.exp(value) if self.log else value)

    def within(self, value: float) -> float | int:
        """Return the nearest number in the interval."""
        inside = min(max(float(value), self.low), self.high)
        return round(inside) if self.integer else inside

    def holds(self, value: Any) -> bool:
        return value is not None and self.low <= value <= self.high


@dataclass(frozen=True)
class Choice:
    """A choice between unordered values."""

    options: tuple[Any, ...]

    def draw(self, rng: np.random.Generator) -> Any:
        return self.options[int(rng.integers(len(self.options)))]

    def holds(self, value: Any) -> bool:
        return value in self.options


Space: TypeAlias = Mapping[str, Interval | Choice]


def space_document(space: Space) -> dict[str, Any]:
    """Return a space as JSON data, with the keys of a space file."""
    return {
        name: {"choices": list(each.options)} if isinstance(each, Choice) else asdict(each)
        for name, each in space.items()
    }


def holds(space: Space, settings: Mapping[str, Any]) -> bool:
    """Return whether settings are in a space, so that a search can learn from them."""
    return all(name in settings and each.holds(settings[name]) for name, each in space.items())


def ask(space: Space, trials: Sequence[Trial], *, seed: int) -> dict[str, Any]:
    """Return the next settings to try: random for the first trials, then by TPE.

    They depend only on the arguments. Settings of a trial outside the space are ignored; trials that lack a setting of
    the space are skipped.
    """
    complete = [trial for trial in trials if trial.score is not None and all(name in trial.settings for name in space)]
    if len(complete) < STARTUP:
        rng = np.random.default_rng([seed, len(trials)])
        return {name: dimension.draw(rng) for name, dimension in space.items()}
    return _suggest(space, complete, seed=seed + len(trials))


def search(
    objective: Callable[[Mapping[str, Any]], float],
    space: Space,
    *,
    trials: int,
    seed: int,
    first: Sequence[Mapping[str, Any]] = (),
    done: Sequence[Trial] = (),
) -> list[Trial]:
    """Return `trials` trials of an objective, including those in `done`; the settings of `first` are tried first."""
    done = list(done)
    while len(done) < trials:
        settings = dict(first[len(done)]) if len(done) < len(first) else ask(space, done, seed=seed)
        done.append(Trial(settings, objective(settings)))
    return done


def _suggest(space: Space, trials: Sequence[Trial], *, seed: int) -> dict[str, Any]:
    # Importing Hyperopt takes a second.
    import hyperopt
    from hyperopt.base import JOB_STATE_DONE, Domain

    domain = Domain(lambda _: 0.0, {name: _dimension(name, each) for name, each in space.items()})
    past = hyperopt.Trials()
    for number, trial in enumerate(trials):
        values = {name: [_encoded(space[name], trial.settings[name])] for name in space}
        misc = {"tid": number, "cmd": ("domain_attachment", "FMinIter_Domain"), "workdir": None}
        misc |= {"idxs": {name: [number] for name in space}, "vals": values}
        result = {"status": hyperopt.STATUS_OK, "loss": -(trial.score or 0.0)}
        [document] = past.new_trial_docs([number], [None], [result], [misc])
        past.insert_trial_doc(document | {"state": JOB_STATE_DONE})
    past.refresh()
    [asked] = hyperopt.tpe.suggest([len(trials)], domain, past, seed=seed % 2**32, n_startup_jobs=STARTUP)
    return {name: _decoded(each, asked["misc"]["vals"][name][0]) for name, each in space.items()}


def _dimension(name: str, dimension: Interval | Choice) -> Any:
    from hyperopt import hp

    if isinstance(dimension, Choice):
        return hp.choice(name, list(range(len(dimension.options))))
    return (hp.loguniform if dimension.log else hp.uniform)(name, *dimension.ends)


def _encoded(dimension: Interval | Choice, value: Any) -> float | int:
    return dimension.options.index(value) if isinstance(dimension, Choice) else float(value)


def _decoded(dimension: Interval | Choice, value: Any) -> Any:
    return dimension.options[int(value)] if isinstance(dimension, Choice) else dimension.within(value)
