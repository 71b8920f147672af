"""The search as a whole: what was tried is read, what is missing is run, and the best is refitted and tested once."""

import json
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import monotonic
from typing import Any, Literal, TypeAlias

from recfusion.core.errors import InputError
from recfusion.core.files import read_json, write_json
from recfusion.core.rng import stream
from recfusion.data.interactions import Interactions
from recfusion.data.protocol import Protocol
from recfusion.data.settings import SplitPlan
from recfusion.data.split import split
from recfusion.evaluation.evaluate import evaluate
from recfusion.evaluation.metrics import DEFAULT_METRICS, parse_metric
from recfusion.experiments.compare import OnEpoch
from recfusion.experiments.train import train, with_intervals
from recfusion.models.bundle import CONFIG, Bundle
from recfusion.models.registry import make_model
from recfusion.search.space import Space
from recfusion.search.tpe import Trial, ask
from recfusion.tuning.space import holds, space_document
from recfusion.tuning.trial import Asked, Engine, Event, Job, Outcome, curve_medians
from recfusion.tuning.trials import Search, append_trial, best_trial, read_trials

Algorithm: TypeAlias = Literal["tpe", "random"]
METRIC = "ndcg@100"
TRIALS, BEST, MODEL = "trials.jsonl", "best.json", "model"  # what the folder of a search holds
_STARTUP = 8  # trials at random, the defaults among them, before TPE has something to go by


@dataclass(frozen=True)
class Progress:
    """How far a search has come."""

    event: Event | None  # None: it begins
    done: int  # trials that have ended, those of earlier runs too
    total: int
    best: Outcome | None
    seconds_left: float | None  # None until a trial of this run has ended


@dataclass(frozen=True)
class Tuned:
    """What a search came to."""

    trials: Mapping[int, Outcome]
    best: Outcome
    document: dict[str, Any]  # of best.json
    bundle: Bundle


@dataclass(frozen=True)
class Request:
    """What is to be searched, on what, and for how long."""

    model: str
    space: Space
    given: Mapping[str, Any] = field(default_factory=dict)  # settings that are not searched
    trials: int = 50
    metric: str = METRIC
    algorithm: Algorithm = "tpe"
    plan: SplitPlan = field(default_factory=SplitPlan)
    seed: int = 0
    seconds: float = float("inf")  # for the trials of this run
    stop_early: bool = True

    def __post_init__(self) -> None:
        parse_metric(self.metric)
        make_model(self.model, self.given)
        if self.trials < 1:
            raise InputError(f"Expected at least one trial, got {self.trials}.")

    @property
    def metrics(self) -> tuple[str, ...]:
        """The metrics of the protocol: the usual ones and the one that is searched for."""
        return tuple(dict.fromkeys((*DEFAULT_METRICS, self.metric)))


def tune(
    data: Interactions,
    request: Request,
    engine: Engine,
    folder: Path,
    *,
    on_progress: Callable[[Progress], None] | None = None,
    on_epoch: OnEpoch | None = None,
) -> Tuned:
    """Run the trials that `folder` lacks, then refit the best one and judge it on the test users.

    `on_epoch` is told of the epochs of the last fit.
    """
    trials = run_trials(data, request, engine, folder, on_progress=on_progress)
    found = known_best(data, request, trials, folder)
    return found or refit_best(data, request, trials, folder, on_epoch=on_epoch)


def run_trials(
    data: Interactions,
    request: Request,
    engine: Engine,
    folder: Path,
    *,
    on_progress: Callable[[Progress], None] | None = None,
) -> dict[int, Outcome]:
    """Run the trials that `folder` lacks, keep each as it ends, and return all by number.

    The first trial has the model's defaults, so that what is found is never worse than they are on the validation
    users.
    """
    search = Search(
        protocol=Protocol.of(data, request.plan, request.metrics).hash,
        seed=request.seed,
        model=request.model,
        metric=request.metric,
        fixed=json.loads(json.dumps(dict(request.given))),
        space=json.loads(json.dumps(space_document(request.space))),
    )
    ledger = _Ledger(request, read_trials(folder / TRIALS, search))
    tell = on_progress or _ignore
    tell(ledger.progress(None))
    if count := len(ledger.missing):
        parts = split(data, request.plan, seed=request.seed)
        job = Job(request.model, request.given, request.metric, request.seed, parts.train, parts.valid)
        with closing(engine.run(job, ledger.next_trial, count, request.seconds)) as events:
            for event in events:
                if isinstance(event, Outcome):
                    append_trial(folder / TRIALS, search, event)
                    ledger.take(event)
                tell(ledger.progress(event))
    return ledger.ended


def settings_to_try(request: Request, ended: Mapping[int, Outcome], number: int) -> dict[str, Any]:
    """Return the settings of trial `number`; the first has the defaults, those after it the space's.

    Early trials depend on their number alone, so that they are the same however many run side by side; later ones
    depend on the trials that have ended. Trials outside the space are not learned from.
    """
    if number == 0:
        return {}
    seed = int(stream(request.seed, f"trial {number}").integers(2**31))
    if request.algorithm == "random" or number < _STARTUP:
        return ask(request.space, (), seed=seed)
    tried = [Trial({**one.settings, **one.chosen}, one.score) for _, one in sorted(ended.items())]
    if 0 in ended:
        tried[0] = Trial({**_defaults(request), **tried[0].settings}, tried[0].score)
    return ask(request.space, [trial for trial in tried if holds(request.space, trial.settings)], seed=seed)


def _defaults(request: Request) -> dict[str, Any]:
    model = make_model(request.model, request.given)
    return {name: getattr(model, name) for name in request.space}


@dataclass
class _Ledger:
    """What has been tried and what is to come; engines may ask from a thread of their own."""

    request: Request
    ended: dict[int, Outcome]
    missing: list[int] = field(init=False)
    took: list[float] = field(default_factory=list)  # seconds between the outcomes of this run
    _last: float = field(default_factory=monotonic)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.missing = [number for number in range(self.request.trials) if number not in self.ended]
        self._pending = list(self.missing)

    def next_trial(self) -> Asked | None:
        with self._lock:
            if not self._pending:
                return None
            number = self._pending.pop(0)
            stops = self.request.stop_early and number > 0  # what the defaults come to must be known
            medians = curve_medians(list(self.ended.values())) if stops else ()
            return Asked(number, settings_to_try(self.request, self.ended, number), medians)

    def take(self, outcome: Outcome) -> None:
        with self._lock:
            self.ended[outcome.number] = outcome
            self.took.append(monotonic() - self._last)
            self._last = monotonic()

    def progress(self, event: Event | None) -> Progress:
        left = sum(number not in self.ended for number in self.missing)
        pace = sum(self.took) / len(self.took) if self.took else None
        done = len(self.ended)
        return Progress(event, done, done + left, best_trial(self.ended), None if pace is None else pace * left)


def known_best(data: Interactions, request: Request, trials: Mapping[int, Outcome], folder: Path) -> Tuned | None:
    """Return what an earlier run made of the same trials; None where that is not there."""
    best, document = _best_document(data, request, trials)
    if not (folder / BEST).is_file() or not (folder / MODEL / CONFIG).is_file():
        return None
    found = read_json(folder / BEST)
    if not isinstance(found, dict) or {key: found.get(key) for key in document} != document:
        return None
    return Tuned(trials, best, found, Bundle.load(folder / MODEL))


def refit_best(
    data: Interactions,
    request: Request,
    trials: Mapping[int, Outcome],
    folder: Path,
    *,
    on_epoch: OnEpoch | None = None,
) -> Tuned:
    """Refit the best settings, judge them on the test users, and write both down."""
    best, document = _best_document(data, request, trials)
    bundle = train(
        *(request.model, data, document["settings"]),
        plan=request.plan,
        seed=request.seed,
        metrics=request.metrics,
        on_epoch=on_epoch,
    )
    parts = split(data, request.plan, seed=request.seed)
    test = with_intervals(evaluate(bundle.model, parts.test, parts.train, request.metrics))
    found = {**best.settings, **best.chosen}
    bundle = replace(bundle, metrics={**bundle.metrics, "test": test}, searched=tuple(found))
    bundle.save(folder / MODEL)
    document["test"] = test
    write_json(folder / BEST, document)
    return Tuned(trials, best, document, bundle)


def _best_document(
    data: Interactions, request: Request, trials: Mapping[int, Outcome]
) -> tuple[Outcome, dict[str, Any]]:
    """Return the best trial, and what is written down of the search but for the test."""
    best = best_trial(trials)
    if best is None:
        raise _nothing(trials)
    protocol = Protocol.of(data, request.plan, request.metrics)
    settings = {**request.given, **best.settings, **best.chosen}
    document = {
        "model": request.model,
        "settings": settings,
        "metric": request.metric,
        "trial": best.number,
        "validation": best.score,
        "default": trials[0].score if 0 in trials else None,  # of the model's defaults, on the validation users
        "trials": {status: _count(trials.values(), status) for status in ("ok", "stopped", "failed")},
        "seed": request.seed,
        "space": space_document(request.space),
        "protocol": protocol.document(),
    }
    return best, json.loads(json.dumps(document))


def _count(outcomes: Iterable[Outcome], status: str) -> int:
    return sum(one.status == status for one in outcomes)


def _nothing(trials: Mapping[int, Outcome]) -> InputError:
    failed = [one for one in trials.values() if one.status == "failed"]
    if not failed:
        return InputError("No trial ended in the time that was given: raise --timeout.")
    first = failed[0]
    return InputError(f"All {len(failed)} trials failed; trial {first.number}: {first.reason}")


def _ignore(progress: Progress) -> None:
    """Take a message that nobody waits for."""
