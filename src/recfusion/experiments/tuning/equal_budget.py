"""Equal budgets: the same number of trials for every model of a comparison, on the validation users of each split."""

import time
from dataclasses import replace

from recfusion.core.errors import InputError
from recfusion.core.pool import SendProgress
from recfusion.data.interactions import Interactions
from recfusion.data.protocol import Protocol
from recfusion.data.split import Split, without_test
from recfusion.experiments.candidate import Candidate
from recfusion.experiments.custom_metric import main_metric
from recfusion.experiments.energy import EnergyMeter
from recfusion.experiments.fit import fit_and_judge
from recfusion.experiments.result import Result
from recfusion.experiments.tuning.engine import TrialJob, local_engine
from recfusion.experiments.tuning.space_file import tuning_space
from recfusion.experiments.tuning.tune import Ledger, SearchRequest
from recfusion.models.settings import setting_values
from recfusion.training.search_space import Space
from recfusion.training.trial import Trial, best_trial


def fit_with_budget(
    candidate: Candidate,
    data: Interactions,
    protocol: Protocol,
    parts: Split,
    *,
    threads: int | None,
    user_ids: bool,
    report: SendProgress,
) -> Result:
    """Search the settings of a candidate with its trials, fit the best, and evaluate it on the test users.

    The first trial has the candidate's own settings. Settings that were given and differ from the model's are not
    searched. The seconds and trials of the result include the search.
    """
    given, space = _searched(candidate)
    began, cpu, meter = time.perf_counter(), time.process_time(), EnergyMeter()
    ended: dict[int, Trial] = {}
    if space:
        metric = main_metric(protocol.metrics)
        request = SearchRequest(candidate.entry, space, given, candidate.tune, metric, seed=parts.seed)
        job = TrialJob(candidate.entry, given, metric, protocol, without_test(parts))
        ledger = Ledger(request, ended)
        with meter:
            ledger.run(
                job, local_engine(0, threads), lambda event: report(event[1]) if isinstance(event, tuple) else None
            )
    best = best_trial(ended.values())
    settings = {} if best is None else dict(best.settings)
    spent, cpu = time.perf_counter() - began, time.process_time() - cpu
    chosen = replace(candidate, model=replace(candidate.model, **settings), tune=0)
    result = fit_and_judge(chosen, data, protocol, parts, threads=threads, user_ids=user_ids, on_epoch=report).result
    return result.model_copy(
        update={
            "settings": candidate.values,
            "chosen": {**settings, **result.chosen},
            "trials": len(ended) + (result.trials or 0),
            "fit_seconds": result.fit_seconds + spent,
            "cpu_seconds": (result.cpu_seconds or 0.0) + cpu,
            "energy_joules": result.energy_joules and result.energy_joules + (meter.joules or 0.0),
        }
    )


def _searched(candidate: Candidate) -> tuple[dict[str, object], Space]:
    """Return the given settings and the space of the others, empty if nothing can be searched."""
    usual = setting_values(candidate.entry.make())
    given = {name: value for name, value in setting_values(candidate.model).items() if value != usual[name]}
    try:
        return given, tuning_space(candidate.entry, given)
    except InputError:
        return given, {}
