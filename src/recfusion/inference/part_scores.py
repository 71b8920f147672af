"""Part scores of a mixture: what each part adds to the score of an item, as features of a second-stage ranker."""

import numpy as np

from recfusion.core.arrays import FloatArray
from recfusion.core.errors import InputError
from recfusion.evaluation.scoring import read_by
from recfusion.inference.histories import Histories
from recfusion.inference.lists import ListMaker
from recfusion.inference.request import Reranking
from recfusion.models.thinning.mixture import Thinning
from recfusion.models.thinning.mixture_weights import standardised
from recfusion.models.thinning.plan import FEATURES


def mixture_of(maker: ListMaker) -> Thinning:
    """Return the model if it is a mixture and the scores of the lists are its own; raise otherwise."""
    model = maker.bundle.model
    if not isinstance(model, Thinning):
        raise InputError(f"Expected a mixture for part scores, got {maker.bundle.name}: train thinning.", "parts")
    if maker.reranking != Reranking() or maker.allowed.bought is not None:
        message = "Expected no re-ranking and no bought items with part scores: they replace scores, so leave them out."
        raise InputError(message, "parts")
    return model


def part_scores(model: Thinning, histories: Histories) -> dict[str, FloatArray]:
    """Return what each part adds to the scores, (users, items) each; the parts add up to the mixture's score."""
    history, extra = histories.matrix, read_by(model, histories.extra) if model.use_signals else None
    guide, (known, signals) = model._guide(), model._known(history, extra)
    found = {name: np.zeros(history.shape, np.float32) for name in model.parts_}
    for name, part in model.parts_.items():
        rows, read = (history, extra) if part is guide else (known, signals)
        own = standardised(model._part_scores(name, rows, read), rows)
        found[name][:, : rows.shape[1]] = np.float32(model.weights_[name]) * own
    if guide is not None:
        whole = model.score(history, extra=extra)
        # New items, and users about whom the other parts know nothing, have the scores of the features alone.
        alone = ~np.isclose(sum(found.values()), whole, rtol=1e-4, atol=1e-5)
        others = [scores for name, scores in found.items() if name != FEATURES]
        for scores in others:
            scores[alone] = 0
        found[FEATURES] = whole - sum(others)
    return found
