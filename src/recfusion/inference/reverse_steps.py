"""The reverse process on one history, step by step, as something to look at."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from recfusion.core.errors import InputError
from recfusion.core.rng import make_rng
from recfusion.evaluation.topk import top_k
from recfusion.inference.bundle import Bundle
from recfusion.inference.single import history_rows

MOST = 50  # steps
_LEAST_SHARE = 0.2  # of the history that survives the thinning


@dataclass(frozen=True)
class Dot:
    """An item that is there at a step."""

    column: int
    known: bool  # it survived the thinning
    true: bool  # it is in the history
    score: float | None  # by which it came back; None for a survivor


@dataclass(frozen=True)
class Step:
    """The state x_t at the noise level at which a share of the ones survives."""

    share: float
    dots: list[Dot]


def reverse_steps(bundle: Bundle, history: Sequence[str], steps: int, seed: int = 0) -> list[Step]:
    """Return the states from x_T, a history of which a share of .2 survives, back to x_0.

    Each item of the history survives the thinning with probability .2; at least one does. Between the shares a and
    a' > a the likeliest missing items under the model come back, as many as bring the state to a' of the history's
    length: the mode of the reverse step, which knows the state and nothing else of the history.
    """
    columns = bundle.columns_of(history)
    whole = np.unique(columns[columns >= 0])
    if not len(whole):
        raise InputError("Expected at least one item that the model knows in the history, got none.")
    if not 1 <= steps <= MOST:
        raise InputError(f"Expected 1 to {MOST} steps, got {steps}.")
    draws = make_rng(seed).random(len(whole))
    survives = draws <= max(_LEAST_SHARE, float(draws.min()))
    state, came = whole[survives].tolist(), dict.fromkeys(whole[survives].tolist())
    own = set(whole.tolist())
    scores: dict[int, float] = {}
    found = []
    for number, share in enumerate(np.linspace(_LEAST_SHARE, 1, steps + 1).tolist()):
        missing = round(share * len(whole)) - len(state)
        if number and missing > 0:
            row = history_rows([np.array(state)], len(bundle.items))
            items, values = top_k(bundle.model.score(row), row, missing)
            new = items[0][items[0] >= 0].tolist()
            scores |= dict(zip(new, values[0].tolist(), strict=False))
            state += new
        dots = [Dot(item, item in came, item in own, scores.get(item)) for item in state]
        found.append(Step(share, dots))
    return found
