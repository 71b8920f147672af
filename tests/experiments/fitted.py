"""Real results of small models, for what is made of results."""

from collections.abc import Sequence

from recfusion.data.interactions import Interactions
from recfusion.data.options import SplitPlan
from recfusion.experiments.candidate import Models, candidates
from recfusion.experiments.result import Result
from recfusion.experiments.run import run_candidates

METRICS = ("recall@5", "coverage@5", "ndcg@10")
SEEDS = (4, 5)


def fits(
    data: Interactions, models: Models, seeds: Sequence[int] = SEEDS, metrics: Sequence[str] = METRICS
) -> list[Result]:
    """Return each model's results in the order of the seeds, fitted in this process."""
    planned = [(candidate, seeds) for candidate in candidates(models)]
    return list(run_candidates(data, planned, plan=SplitPlan(), metrics=metrics, workers=0).results)


def changed(result: Result, **values: object) -> Result:
    """Return a result with other values, checked as if it had been read."""
    return Result.model_validate(dict(result) | values)
