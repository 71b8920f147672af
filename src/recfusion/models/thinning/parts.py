"""What a mixture asks of its parts: scores with signals, names, abilities such as `economical` if they have them."""

from collections.abc import Callable
from typing import TypeVar

from recfusion.core.arrays import Csr, FloatArray
from recfusion.data.signals import Extra
from recfusion.evaluation.scoring import scores, signals_read
from recfusion.models.abilities import settled
from recfusion.models.base import Recommender, Shape
from recfusion.models.sequence.recency import UNWEIGHTED, Powers, weighted_entries

M = TypeVar("M", bound=Recommender)
_NAME = "part_name_"


def economical(model: Recommender, shape: Shape) -> Recommender:
    """Return the model as a mixture fits it on data of this size: with cheaper settings, if it offers them."""
    cheaper: Recommender = getattr(model, "economical", lambda _: model)(shape)
    return cheaper


def beside(model: Recommender, fitted: Recommender) -> Recommender:
    """Return the model without the search that `fitted`, on the same data, has already made for both."""
    settled: Recommender = getattr(model, "beside", lambda _: model)(fitted)
    return settled


def continued(model: M) -> M:
    """Return the model with what its fit chose, to fit it on more users; networks start with what they learned."""
    own: Callable[[], M] | None = getattr(model, "continued", None)
    return own() if own else settled(model)


def name_part(model: Recommender, name: str) -> None:
    """Set the name that a part's messages begin with."""
    vars(model)[_NAME] = name


def part_name(model: Recommender) -> str:
    """Return the name of a part; empty for a model outside of a mixture."""
    return str(vars(model).get(_NAME, ""))


def part_message(model: Recommender, message: str) -> str:
    """Return the message, with the model's name in front if it is part of a mixture."""
    return f"{part_name(model)}: {message}" if part_name(model) else message


def weighs_entries(model: Recommender) -> bool:
    """Return whether a mixture weights the history of this part: not if the part reads times itself."""
    return "times" not in signals_read(model)


def part_scores(model: Recommender, history: Csr, extra: Extra | None, powers: Powers = UNWEIGHTED) -> FloatArray:
    """Return a part's scores (users, items) of histories that are weighted by recency and ratings to these powers."""
    return scores(model, weighted_entries(history, extra, powers), extra)
