"""Diffusion recommenders for binary feedback, with their baselines, under one explicit protocol.

The names below are loaded when they are first used, so that `import recfusion` costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from recfusion.core.errors import InputError
    from recfusion.data.interactions import Interactions
    from recfusion.data.load import load
    from recfusion.data.protocol import Protocol
    from recfusion.data.settings import Preparation, Source, SplitPlan
    from recfusion.data.split import Fold, Split, split
    from recfusion.evaluation.evaluate import Evaluation, evaluate
    from recfusion.evaluation.topk import top_k
    from recfusion.experiments.compare import compare
    from recfusion.experiments.results import result_document
    from recfusion.experiments.train import train
    from recfusion.models.base import Recommender
    from recfusion.models.bundle import Bundle
    from recfusion.models.ease import EASE
    from recfusion.models.popularity import Popularity
    from recfusion.models.random import Random
    from recfusion.models.recommend import recommend
    from recfusion.models.registry import MODELS, make_model
    from recfusion.models.slim import SLIM
    from recfusion.report.page import write_page

_HOMES = {
    "InputError": "recfusion.core.errors",
    "Interactions": "recfusion.data.interactions",
    "load": "recfusion.data.load",
    "Protocol": "recfusion.data.protocol",
    "Preparation": "recfusion.data.settings",
    "Source": "recfusion.data.settings",
    "SplitPlan": "recfusion.data.settings",
    "Fold": "recfusion.data.split",
    "Split": "recfusion.data.split",
    "split": "recfusion.data.split",
    "Evaluation": "recfusion.evaluation.evaluate",
    "evaluate": "recfusion.evaluation.evaluate",
    "top_k": "recfusion.evaluation.topk",
    "compare": "recfusion.experiments.compare",
    "result_document": "recfusion.experiments.results",
    "train": "recfusion.experiments.train",
    "Recommender": "recfusion.models.base",
    "Bundle": "recfusion.models.bundle",
    "EASE": "recfusion.models.ease",
    "Popularity": "recfusion.models.popularity",
    "Random": "recfusion.models.random",
    "recommend": "recfusion.models.recommend",
    "MODELS": "recfusion.models.registry",
    "make_model": "recfusion.models.registry",
    "SLIM": "recfusion.models.slim",
    "write_page": "recfusion.report.page",
}
__all__ = list(_HOMES)  # noqa: PLE0605


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'recfusion' has no attribute '{name}'")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(_HOMES)
