"""What a mixture asks of its parts, and defaults for models that do not offer it."""

from typing import Protocol, Self, runtime_checkable

from recfusion.models.base import Recommender, Shape

_NAME = "part_name_"


@runtime_checkable
class MixturePart(Protocol):
    """A model with cheaper settings for a fit beside other models, on data of some size."""

    def economical(self, shape: Shape) -> Self: ...


@runtime_checkable
class SharesSearch(Protocol):
    """A model that can take over the settings that another part, fitted on the same data, has chosen."""

    def beside(self, fitted: Recommender) -> Self: ...


def economical(model: Recommender, shape: Shape) -> Recommender:
    """Return the model as a mixture fits it on data of this size."""
    return model.economical(shape) if isinstance(model, MixturePart) else model


def beside(model: Recommender, fitted: Recommender) -> Recommender:
    """Return the model without the search that `fitted`, on the same data, has already made for both."""
    return model.beside(fitted) if isinstance(model, SharesSearch) else model


def name_part(model: Recommender, name: str) -> None:
    """Set the name that a part's messages begin with."""
    vars(model)[_NAME] = name


def part_name(model: Recommender) -> str:
    """Return the name of a part; empty for a model outside of a mixture."""
    return str(vars(model).get(_NAME, ""))


def part_message(model: Recommender, message: str) -> str:
    """Return the message, with the model's name in front if it is part of a mixture."""
    return f"{part_name(model)}: {message}" if part_name(model) else message
