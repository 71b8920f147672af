"""MODELS, the one registry: the contract test, the commands, tuning and reports all iterate over it."""

from collections.abc import Mapping
from typing import Any

from recfusion.core.errors import choices
from recfusion.models.base import Recommender, build
from recfusion.models.ease import EASE
from recfusion.models.popularity import Popularity
from recfusion.models.random import Random
from recfusion.models.slim import SLIM

MODELS: Mapping[str, type[Recommender]] = {
    "random": Random,
    "popularity": Popularity,
    "slim": SLIM,
    "ease": EASE,
}


def model_class(name: str) -> type[Recommender]:
    """Return the model of that name."""
    if name not in MODELS:
        raise choices("model", name, MODELS)
    return MODELS[name]


def make_model(name: str, settings: Mapping[str, Any] | None = None) -> Recommender:
    """Return a new model by name, with settings given as values or as text."""
    return build(model_class(name), name, settings or {})
