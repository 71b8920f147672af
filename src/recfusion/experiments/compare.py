"""Comparing models in one call: every model on the same users of the same splits."""

import logging
from collections.abc import Sequence
from pathlib import Path

from recfusion.core.errors import InputError, choices
from recfusion.data.interactions import Interactions
from recfusion.data.settings import SplitPlan
from recfusion.evaluation.metrics import DEFAULT_METRICS, check_metrics
from recfusion.experiments.candidate import Models, candidates
from recfusion.experiments.comparison import Comparison
from recfusion.experiments.run import OnEvent, run_candidates

log = logging.getLogger(__name__)


def compare(
    data: Interactions,
    models: Models,
    splits: int | Sequence[int] = 1,
    *,
    plan: SplitPlan | None = None,
    metrics: Sequence[str] = DEFAULT_METRICS,
    store: str | Path | None = None,
    workers: int = 0,
    reference: str | None = None,
    user_ids: bool = False,
    on_event: OnEvent | None = None,
) -> Comparison:
    """Fit every model on every split and return what they came to, with intervals and paired tests.

    `models` is a list of names, or maps labels to instances, names, places ("file.py:Class") or settings. `splits` is
    their number, or the list of their seeds. What `store` has is not fitted again, and each result is added to it at
    once. `workers` processes run side by side; 0 fits in this process. `reference` is what the others are tested
    against, EASE by default.
    """
    given = range(splits) if isinstance(splits, int) else splits
    seeds = tuple(given) if isinstance(given, Sequence) else ()
    whole = all(isinstance(seed, int) and seed >= 0 for seed in seeds)
    if not seeds or not whole or len(set(seeds)) < len(seeds):
        raise InputError(f"Expected at least one split, or different seeds from 0, got {splits!r}.")
    planned = candidates(models)
    labels = [candidate.label for candidate in planned]
    if reference is not None and reference not in labels:
        raise choices("model to test against", reference, labels)
    ran = run_candidates(
        data,
        [(candidate, seeds) for candidate in planned],
        plan=plan or SplitPlan(),
        metrics=check_metrics(metrics),
        store=store,
        workers=workers,
        user_ids=user_ids,
        on_event=on_event,
    )
    for task, failure in ran.failures.items():
        if failure.details:
            log.error("%s: %s", task, failure.details)
        raise InputError(f"The fit of {task} failed: {failure.reason}")
    return Comparison.of(ran.results, reference=reference)
