"""Diffusion recommenders for binary feedback, with their baselines, under one explicit protocol.

The names below are loaded when they are first used, so that `import recfusion` costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from recfusion import diffusion as diffusion
    from recfusion.core.errors import InputError as InputError
    from recfusion.data.interactions import Interactions as Interactions
    from recfusion.data.load import load as load
    from recfusion.data.protocol import Protocol as Protocol
    from recfusion.data.settings import Preparation as Preparation
    from recfusion.data.settings import Source as Source
    from recfusion.data.settings import SplitPlan as SplitPlan
    from recfusion.data.split import Fold as Fold
    from recfusion.data.split import Split as Split
    from recfusion.data.split import split as split
    from recfusion.evaluation.evaluate import Evaluation as Evaluation
    from recfusion.evaluation.evaluate import evaluate as evaluate
    from recfusion.evaluation.topk import top_k as top_k
    from recfusion.experiments.compare import compare as compare
    from recfusion.experiments.results import result_document as result_document
    from recfusion.experiments.run import run_experiment as run_experiment
    from recfusion.experiments.spec import read_experiment as read_experiment
    from recfusion.experiments.store import read_rows as read_rows
    from recfusion.experiments.train import train as train
    from recfusion.models.base import Recommender as Recommender
    from recfusion.models.bundle import Bundle as Bundle
    from recfusion.models.ease import EASE as EASE
    from recfusion.models.popularity import Popularity as Popularity
    from recfusion.models.random import Random as Random
    from recfusion.models.recommend import recommend as recommend
    from recfusion.models.registry import MODELS as MODELS
    from recfusion.models.registry import make_model as make_model
    from recfusion.models.slim import SLIM as SLIM
    from recfusion.models.thinning.linear import ThinningLinear as ThinningLinear
    from recfusion.models.thinning.mixture import Thinning as Thinning
    from recfusion.report.page import write_page as write_page

_HOMES = {
    name: module
    for module, names in {
        "recfusion.core.errors": "InputError",
        "recfusion.data.interactions": "Interactions",
        "recfusion.data.load": "load",
        "recfusion.data.protocol": "Protocol",
        "recfusion.data.settings": "Preparation Source SplitPlan",
        "recfusion.data.split": "Fold Split split",
        "recfusion.evaluation.evaluate": "Evaluation evaluate",
        "recfusion.evaluation.topk": "top_k",
        "recfusion.experiments.compare": "compare",
        "recfusion.experiments.results": "result_document",
        "recfusion.experiments.run": "run_experiment",
        "recfusion.experiments.spec": "read_experiment",
        "recfusion.experiments.store": "read_rows",
        "recfusion.experiments.train": "train",
        "recfusion.models.base": "Recommender",
        "recfusion.models.bundle": "Bundle",
        "recfusion.models.ease": "EASE",
        "recfusion.models.popularity": "Popularity",
        "recfusion.models.random": "Random",
        "recfusion.models.recommend": "recommend",
        "recfusion.models.registry": "MODELS make_model",
        "recfusion.models.slim": "SLIM",
        "recfusion.models.thinning.linear": "ThinningLinear",
        "recfusion.models.thinning.mixture": "Thinning",
        "recfusion.report.page": "write_page",
    }.items()
    for name in names.split()
}


def __getattr__(name: str) -> Any:
    if name == "diffusion":  # a room of its own: rf.diffusion.elbo
        return import_module("recfusion.diffusion")
    if name not in _HOMES:
        raise AttributeError(f"module 'recfusion' has no attribute '{name}'")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*_HOMES, "diffusion"])
