"""What each re-ranking slider costs: the NDCG and the popularity of lists at some of its positions."""

from typing import Any

import numpy as np

from recfusion.core.arrays import FloatArray
from recfusion.data.split import Fold
from recfusion.evaluation.metrics import judge, per_user
from recfusion.evaluation.scoring import scores as model_scores
from recfusion.experiments.rules import lists_of
from recfusion.inference.bundle import Bundle
from recfusion.inference.bundle_files import CONTROL
from recfusion.inference.lists import ListMaker
from recfusion.inference.request import Reranking, describe_controls
from recfusion.models.abilities import finds_lists

METRIC, _K = "ndcg@20", 20
_USERS = 200  # at most, the first ones of the fold
_POSITIONS = 5  # between the ends of a slider


def control_costs(bundle: Bundle, fold: Fold) -> dict[str, dict[str, Any]]:
    """Return groups of metrics.json: for each slider, position -> mean NDCG, and the median users of a listed item.

    The users of the fold must be unknown to the model.
    """
    found: dict[str, dict[str, Any]] = {}
    fold = fold.scorable()
    fold = fold.take(slice(0, min(_USERS, len(fold.users))))
    if not len(fold.users):
        return found
    # Once: the model's scores do not depend on the controls. A model with an index is asked for each list.
    scores = None if finds_lists(bundle.model) else model_scores(bundle.model, fold.history, fold.extra)
    for control in (one for one in describe_controls() if one["title"] is not None):
        positions = {*np.linspace(control["min"], control["max"], _POSITIONS).round(4).tolist(), control["default"]}
        points = {
            f"{value:g}": _point(bundle, fold, scores, Reranking(**{control["name"]: value}))
            for value in sorted(positions)
        }
        found[CONTROL + control["name"]] = points
    return found


def _point(bundle: Bundle, fold: Fold, scores: FloatArray | None, reranking: Reranking) -> dict[str, Any]:
    maker = ListMaker.of(bundle, None, reranking)
    items = lists_of(maker, fold, _K, None if scores is None else scores.copy())
    lists = judge(items, fold.held_out, np.zeros(len(bundle.items)))
    median = float(np.median(bundle.counts[items[items >= 0]])) if (items >= 0).any() else 0.0
    return {"mean": float(per_user(lists, [METRIC])[METRIC].mean()), "users": len(fold.users), "popularity": median}
