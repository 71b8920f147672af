"""Asking for the next settings to try: Hyperopt's TPE, stateless, so that a search goes on from any list of trials."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from recfusion.search.space import Choice, Interval, Space
from recfusion.search.trial import Trial

_STARTUP = 8  # trials at random before TPE has something to go by


def ask(space: Space, trials: Sequence[Trial], *, seed: int, startup: int = _STARTUP) -> dict[str, Any]:
    """Return the settings to try next: at random for the first `startup` trials, then by TPE.

    They depend on the arguments alone. Trials may come from elsewhere; settings that the space does not have are
    ignored, and a trial that lacks one of the space's is not learned from.
    """
    complete = [trial for trial in trials if trial.score is not None and all(name in trial.settings for name in space)]
    if len(complete) < startup:
        rng = np.random.default_rng([seed, len(trials)])
        return {name: dimension.draw(rng) for name, dimension in space.items()}
    return _suggest(space, complete, seed=seed + len(trials), startup=startup)


def search(
    objective: Callable[[Mapping[str, Any]], float],
    space: Space,
    *,
    trials: int,
    seed: int,
    first: Sequence[Mapping[str, Any]] = (),
) -> list[Trial]:
    """Return so many trials of an objective, those of `first` before all others."""
    done: list[Trial] = []
    while len(done) < trials:
        settings = dict(first[len(done)]) if len(done) < len(first) else ask(space, done, seed=seed)
        done.append(Trial(settings, objective(settings)))
    return done


def _suggest(space: Space, trials: Sequence[Trial], *, seed: int, startup: int) -> dict[str, Any]:
    # Hyperopt takes a second to import: only searches pay for it.
    import hyperopt
    from hyperopt.base import JOB_STATE_DONE, Domain

    domain = Domain(lambda _: 0.0, {name: _dimension(name, each) for name, each in space.items()})
    past = hyperopt.Trials()
    for number, trial in enumerate(trials):
        assert trial.score is not None
        values = {name: [_encoded(space[name], trial.settings[name])] for name in space}
        misc = {"tid": number, "cmd": ("domain_attachment", "FMinIter_Domain"), "workdir": None}
        document = past.new_trial_docs(
            [number],
            [None],
            [{"status": hyperopt.STATUS_OK, "loss": -trial.score}],
            [misc | {"idxs": {name: [number] for name in space}, "vals": values}],
        )[0]
        document["state"] = JOB_STATE_DONE
        past.insert_trial_doc(document)
    past.refresh()
    [asked] = hyperopt.tpe.suggest([len(trials)], domain, past, seed=seed % 2**32, n_startup_jobs=startup)
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
