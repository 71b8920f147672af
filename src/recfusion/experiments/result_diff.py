"""The differences of two sets of results: data and protocol, code, settings and outcome."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from recfusion.core.errors import InputError, choices
from recfusion.evaluation.significance import Difference
from recfusion.experiments.paired_tests import paired_differences
from recfusion.experiments.result import Result

_NOT_COMPARED = ("hash", "read", "steps", "licence", "citation")  # they follow from the others


@dataclass(frozen=True)
class Changed:
    """A value that differs."""

    what: str
    before: Any
    after: Any


@dataclass(frozen=True)
class Outcome:
    """A metric before and after, over the splits that both have; paired if the test users are the same."""

    metric: str
    before: float
    after: float
    paired: Difference | None


@dataclass(frozen=True)
class ResultDiff:
    """What differs between the results of one model in two stores, or of two models."""

    labels: tuple[str, str]
    seeds: tuple[int, ...]  # that both have
    protocol: tuple[Changed, ...]
    code: tuple[Changed, ...]
    settings: tuple[Changed, ...]
    outcome: tuple[Outcome, ...]


def diff_results(
    before: Sequence[Result], after: Sequence[Result], labels: tuple[str, str] | None = None
) -> list[ResultDiff]:
    """Return the differences of results with the same label, or of two labels, on the seeds that both have."""
    known = tuple(list(dict.fromkeys(one.label for one in results)) for results in (before, after))
    shared = [(label, label) for label in known[0] if label in known[1]]
    for label, its in zip(labels or (), known, strict=False):
        if label not in its:
            raise choices("label", label, its, "labels")
    pairs = shared if labels is None else [labels]
    if not pairs:
        raise InputError(
            f"Expected a label that both stores have, got {', '.join(known[0])} and {', '.join(known[1])}: name one of "
            "each with --labels A,B.",
            "labels",
        )
    return [_diff(_newest(before, a), _newest(after, b), (a, b)) for a, b in pairs]


def _newest(results: Sequence[Result], label: str) -> dict[int, Result]:
    """Return the newest result of each seed."""
    return {one.seed: one for one in sorted(results, key=lambda one: one.finished) if one.label == label}


def _diff(before: Mapping[int, Result], after: Mapping[int, Result], labels: tuple[str, str]) -> ResultDiff:
    seeds = tuple(seed for seed in sorted(before) if seed in after)
    a, b = (its[seeds[0]] if seeds else next(iter(its.values())) for its in (before, after))
    cards = [one.protocol.model_dump(mode="json", exclude=set(_NOT_COMPARED)) for one in (a, b)]
    made = [
        {"model": one.model, "place": one.place, "code": one.code, "commit": one.commit, **one.versions}
        for one in (a, b)
    ]
    asked = [{**one.settings, **{f"{key} (chosen)": value for key, value in one.chosen.items()}} for one in (a, b)]
    return ResultDiff(
        labels,
        seeds,
        protocol=tuple(changes(cards[0], cards[1])),
        code=tuple(changes(made[0], made[1])),
        settings=tuple(changes(asked[0], asked[1])),
        outcome=tuple(_outcomes([before[seed] for seed in seeds], [after[seed] for seed in seeds])) if seeds else (),
    )


def changes(before: Mapping[str, Any], after: Mapping[str, Any], prefix: str = "") -> Iterator[Changed]:
    """Yield the values that differ, with the names of nested records joined by dots."""
    for name in dict.fromkeys((*before, *after)):
        one, other = before.get(name), after.get(name)
        if isinstance(one, dict) and isinstance(other, dict):
            yield from changes(one, other, f"{prefix}{name}.")
        elif one != other:
            yield Changed(f"{prefix}{name}", one, other)


def _outcomes(before: Sequence[Result], after: Sequence[Result]) -> Iterator[Outcome]:
    """Yield the outcome of each metric on the same splits, with an interval if the test users are the same."""
    first, second = before[0], after[0]
    same = first.protocol.fingerprint == second.protocol.fingerprint and all(
        np.array_equal(one.users, other.users) for one, other in zip(before, after, strict=True)
    )
    paired: dict[str, Difference] = {}
    if same and (shared := [metric for metric in first.test if metric in second.test]):
        old, new = ({m: np.concatenate([one.test[m] for one in its]) for m in shared} for its in (before, after))
        paired = paired_differences(np.concatenate([one.users for one in before]), new, old)
    for metric in (name for name in first.mean() if name in second.mean()):
        old_mean, new_mean = (float(np.mean([one.mean()[metric] for one in its])) for its in (before, after))
        yield Outcome(metric, old_mean, new_mean, paired.get(metric))
