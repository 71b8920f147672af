"""The reverse process on one history, step by step, for display."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from recfusion.core.arrays import binary_csr
from recfusion.core.errors import InputError
from recfusion.core.rng import make_rng
from recfusion.evaluation.topk import top_k
from recfusion.inference.bundle import Bundle

MOST = 50  # steps
_LEAST_SHARE = 0.2  # of the history that survives the thinning


@dataclass(frozen=True)
class StepItem:
    """An item in the state of a step."""

    item: str
    name: str
    known: bool  # it survived the thinning
    in_history: bool
    score: float | None  # with which the model added it; None if it is known


@dataclass(frozen=True)
class Step:
    """The state x_t at the noise level at which this share of the items survives."""

    share: float
    items: list[StepItem]


def reverse_steps(bundle: Bundle, history: Sequence[str], steps: int, seed: int = 0) -> list[Step]:
    """Return the states from x_T, in which a share of .2 of the history survives, back to x_0.

    Each item of the history survives the thinning with probability .2; at least one does. Between the shares a and
    a' > a the model adds its most likely missing items until the state has a' times the history's length: the mode of
    the reverse step, which is given the state and no more of the history.
    """
    columns = bundle.columns_of(history)
    whole = np.unique(columns[columns >= 0])
    if not len(whole):
        raise InputError("Expected at least one item that the model knows in the history, got none.", "history")
    if not 1 <= steps <= MOST:
        raise InputError(f"Expected 1 to {MOST} steps, got {steps}.", "steps")
    draws = make_rng(seed).random(len(whole))
    state = whole[draws <= max(_LEAST_SHARE, float(draws.min()))].tolist()
    survivors, original = set(state), set(whole.tolist())
    scores: dict[int, float] = {}
    found = []
    for number, share in enumerate(np.linspace(_LEAST_SHARE, 1, steps + 1).tolist()):
        missing = round(share * len(whole)) - len(state)
        if number and missing > 0:
            row = binary_csr(np.array([0, len(state)]), np.sort(state), len(bundle.items))
            items, values = top_k(bundle.model.score(row), row, missing)
            new = items[0][items[0] >= 0].tolist()
            scores |= dict(zip(new, values[0].tolist(), strict=False))
            state += new
        shown = [
            StepItem(item, name, column in survivors, column in original, scores.get(column))
            for column in state
            for item, name in [bundle.names[column]]
        ]
        found.append(Step(round(share, 4), shown))
    return found
