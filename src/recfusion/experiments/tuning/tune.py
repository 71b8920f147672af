"""Tune a model: read the ended trials, run the missing ones, then refit the best and evaluate it once."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import monotonic
from typing import Any, Literal, TypeAlias

from recfusion.core.errors import InputError
from recfusion.core.files import read_json, write_json
from recfusion.core.pool import Failure, TaskEvent
from recfusion.core.rng import stream
from recfusion.data.features import with_features
from recfusion.data.interactions import Interactions
from recfusion.data.options import SplitPlan
from recfusion.data.protocol import Protocol
from recfusion.data.signals import BINARY, check_signals_are_read, used_signals
from recfusion.data.split import split, without_test
from recfusion.evaluation.metrics import DEFAULT_METRICS, MAIN_METRIC, parse_metric
from recfusion.experiments.candidate import Candidate
from recfusion.experiments.fit import check_grades
from recfusion.experiments.train import train
from recfusion.experiments.tuning.engine import Engine, TrialJob, TrialRequest, local_engine
from recfusion.experiments.tuning.space_file import tuning_space
from recfusion.experiments.tuning.trials_file import Search, append_trial, read_trials
from recfusion.inference.bundle import Bundle
from recfusion.inference.bundle_files import CONFIG
from recfusion.models.base import Recommender
from recfusion.models.registry import MODELS, Entry, find
from recfusion.training.epoch import Epoch, OnEpoch
from recfusion.training.search_space import STARTUP, Space, ask, holds, space_document
from recfusion.training.trial import Trial, best_trial, curve_medians

Algorithm: TypeAlias = Literal["tpe", "random"]
TRIALS, BEST, MODEL = "trials.jsonl", "best.json", "model"  # in the folder of a search


@dataclass(frozen=True)
class SearchRequest:
    """What to search, on what data, and for how long."""

    entry: Entry
    space: Space
    given: Mapping[str, Any] = field(default_factory=dict)  # settings that are not searched
    trials: int = 50
    metric: str = MAIN_METRIC
    algorithm: Algorithm = "tpe"
    plan: SplitPlan = field(default_factory=SplitPlan)
    seed: int = 0
    seconds: float = float("inf")  # for the trials of this run
    stop_early: bool = True
    signals: str = BINARY

    def __post_init__(self) -> None:
        parse_metric(self.metric)
        Candidate("the model", self.entry, self.entry.make(self.given))
        if self.trials < 1:
            raise InputError(f"Expected at least one trial, got {self.trials}: raise it.", "trials")

    @property
    def fixed(self) -> dict[str, Any]:
        """The settings that are not searched: the given ones, and those of an instance that differ from its model's."""
        known = MODELS.get(self.entry.name)
        own = {} if known is not None and known.settings == self.entry.settings else self.entry.settings
        return {**own, **self.given}

    def protocol(self, data: Interactions) -> Protocol:
        """Return the protocol; its metrics are the default ones and the one to maximise."""
        check_signals_are_read(self.signals, [(self.entry.name, self.entry.reads)])
        used = used_signals(self.signals, data, self.entry.reads)
        check_grades(Candidate("the model", self.entry, self.entry.make(self.given)), data, used)
        return Protocol.of(data, self.plan, tuple(dict.fromkeys((*DEFAULT_METRICS, self.metric))), used)


@dataclass(frozen=True)
class Progress:
    """The progress of a search."""

    event: Trial | tuple[int, Epoch] | None  # an ended trial, an epoch of a running one, or None at the start
    done: int  # ended trials, including those of earlier runs
    total: int
    best: Trial | None
    seconds_left: float | None  # None until a trial of this run has ended


OnProgress: TypeAlias = Callable[[Progress], None]


@dataclass(frozen=True)
class TuningResult:
    """The trials of a search, and the best settings with their refitted model."""

    trials: Mapping[int, Trial]
    best: Trial
    document: dict[str, Any]  # the content of best.json
    bundle: Bundle  # the model with the best settings

    @property
    def settings(self) -> dict[str, Any]:
        """The best settings."""
        return dict(self.document["settings"])


def tune(
    model: str | type[Recommender] | Recommender,
    data: Interactions,
    settings: Mapping[str, Any] | None = None,
    *,
    trials: int = 50,
    space: Path | None = None,
    metric: str = MAIN_METRIC,
    plan: SplitPlan | None = None,
    seed: int = 0,
    signals: str = BINARY,
    folder: Path | str | None = None,
    workers: int = 0,
    on_progress: OnProgress | None = None,
) -> TuningResult:
    """Search a model's settings on the validation users, then refit the best and evaluate it once on the test users.

    `model` is a class, a name, a place or an instance; the search starts from its settings. `settings` are fixed and
    not searched. Trials are saved in `folder`, if given, and not run again. `workers` processes run in parallel; 0 runs
    trials in this process.
    """
    entry, given = find(model), dict(settings or {})
    request = SearchRequest(
        *(entry, tuning_space(entry, given, space), given, trials, metric, "tpe", plan or SplitPlan(), seed),
        signals=signals,
    )
    place = None if folder is None else Path(folder)
    data = with_features(data, signals)
    ended = run_trials(data, request, local_engine(workers), place, on_progress=on_progress)
    return known_best(data, request, ended, place) or refit_best(data, request, ended, place)


def run_trials(
    data: Interactions,
    request: SearchRequest,
    engine: Engine,
    folder: Path | None,
    *,
    on_progress: OnProgress | None = None,
) -> dict[int, Trial]:
    """Run the trials that `folder` lacks, save each when it ends, and return all by number.

    The first trial has the model's defaults, so that the best is never worse than these on the validation users.
    """
    entry, protocol = request.entry, request.protocol(data)
    search = Search(
        protocol=protocol.hash,
        seed=request.seed,
        model=entry.name,
        source=entry.source,
        metric=request.metric,
        fixed=json.loads(json.dumps(request.fixed)),
        space=json.loads(json.dumps(space_document(request.space))),
    )
    ledger = Ledger(request, {} if folder is None else read_trials(folder / TRIALS, search))
    report = on_progress or (lambda _: None)
    report(ledger.progress(None))

    def on_event(event: Trial | tuple[int, Epoch]) -> None:
        if folder is not None and isinstance(event, Trial):
            append_trial(folder / TRIALS, search, event)
        report(ledger.progress(event))

    if ledger.pending:
        parts = without_test(split(data, request.plan, seed=request.seed, used=protocol.signals.used))
        ledger.run(TrialJob(entry, request.given, request.metric, protocol, parts), engine, on_event)
    return ledger.ended


def settings_to_try(request: SearchRequest, ended: Mapping[int, Trial], number: int) -> dict[str, Any]:
    """Return the settings of trial `number`: the defaults for the first, then points of the space.

    Early trials depend only on their number, so that they are the same with any number of processes; later ones depend
    on the ended trials. TPE does not learn from trials outside the space.
    """
    if number == 0:
        return {}
    seed = int(stream(request.seed, f"trial {number}").integers(2**31))
    if request.algorithm == "random" or number < STARTUP:
        return ask(request.space, (), seed=seed)
    tried = [Trial({**one.settings, **one.chosen}, one.score) for _, one in sorted(ended.items())]
    if 0 in ended:
        usual = request.entry.make(request.given)
        defaults = {name: getattr(usual, name) for name in request.space}
        tried[0] = Trial({**defaults, **tried[0].settings}, tried[0].score)
    return ask(request.space, [trial for trial in tried if holds(request.space, trial.settings)], seed=seed)


@dataclass
class Ledger:
    """The ended and the pending trials of a search."""

    request: SearchRequest
    ended: dict[int, Trial]
    ended_here: int = 0  # in this run
    seconds: float = 0.0  # from the start of this run to the last ended trial
    _began: float = field(default_factory=monotonic)

    def __post_init__(self) -> None:
        self.pending = [number for number in range(self.request.trials) if number not in self.ended]

    def run(self, job: TrialJob, engine: Engine, report: Callable[[Trial | tuple[int, Epoch]], None]) -> None:
        """Run the pending trials; report each when it ends, and the epochs of each running one with its number."""

        def on_event(_: TaskEvent, asked: TrialRequest, message: object) -> None:
            if isinstance(message, Failure):
                message = Trial(dict(asked.settings), None, asked.number, "failed", reason=message.reason)
            if isinstance(message, Trial):
                self.ended[message.number] = message
                self.ended_here += 1
                self.seconds = monotonic() - self._began
                report(message)
            elif isinstance(message, Epoch):
                report((asked.number, message))

        engine(job, self._next_trial, on_event, self.request.seconds)

    def _next_trial(self) -> TrialRequest | None:
        if not self.pending:
            return None
        number = self.pending.pop(0)
        stops = self.request.stop_early and number > 0  # the score of the defaults must be known
        medians = curve_medians(self.ended.values()) if stops else ()
        return TrialRequest(number, settings_to_try(self.request, self.ended, number), medians)

    def progress(self, event: Trial | tuple[int, Epoch] | None) -> Progress:
        done, total = len(self.ended), len(self.ended.keys() | range(self.request.trials))
        left = (total - done) * self.seconds / self.ended_here if self.ended_here else None
        return Progress(event, done, total, best_trial(self.ended.values()), left)


def known_best(
    data: Interactions, request: SearchRequest, trials: Mapping[int, Trial], folder: Path | None
) -> TuningResult | None:
    """Return the result that an earlier run wrote for the same trials, or None."""
    best, document = _best_document(data, request, trials)
    if folder is None or not (folder / BEST).is_file() or not (folder / MODEL / CONFIG).is_file():
        return None
    found = read_json(folder / BEST)
    if not isinstance(found, dict) or found | document != found or "test" not in found:
        return None
    return TuningResult(trials, best, found, Bundle.load(folder / MODEL, trust=[request.entry.load()]))


def refit_best(
    data: Interactions,
    request: SearchRequest,
    trials: Mapping[int, Trial],
    folder: Path | None,
    *,
    on_epoch: OnEpoch | None = None,
) -> TuningResult:
    """Refit the best settings, evaluate them on the test users, and write the model and best.json."""
    best, document = _best_document(data, request, trials)
    candidate = Candidate("best", request.entry, request.entry.make(document["settings"]))
    bundle = train(
        candidate,
        data,
        plan=request.plan,
        seed=request.seed,
        metrics=request.protocol(data).metrics,
        signals=request.signals,
        judge=True,
        on_epoch=on_epoch,
    )
    bundle = replace(bundle, searched=tuple({**best.settings, **best.chosen}))
    document["test"] = json.loads(json.dumps(bundle.metrics["test"]))
    if folder is not None:
        bundle.save(folder / MODEL)
        write_json(folder / BEST, document)
    return TuningResult(trials, best, document, bundle)


def _best_document(
    data: Interactions, request: SearchRequest, trials: Mapping[int, Trial]
) -> tuple[Trial, dict[str, Any]]:
    """Return the best trial, and the content of best.json without the test metrics."""
    best = best_trial(trials.values())
    if best is None:
        failed = [one for one in trials.values() if one.status == "failed"]
        if not failed:
            raise InputError("No trial ended within the time limit: raise --timeout.", "timeout")
        raise InputError(f"All {len(failed)} trials failed; trial {failed[0].number}: {failed[0].reason}")
    statuses = [one.status for one in trials.values()]
    document = {
        "model": request.entry.name,
        "settings": {**request.fixed, **best.settings, **best.chosen},
        "metric": request.metric,
        "trial": best.number,
        "validation": best.score,
        "default": trials[0].score if 0 in trials else None,  # of the model's defaults, on the validation users
        "trials": {status: statuses.count(status) for status in ("ok", "stopped", "failed")},
        "seed": request.seed,
        "space": space_document(request.space),
        "protocol": request.protocol(data).document(),
    }
    return best, json.loads(json.dumps(document))
