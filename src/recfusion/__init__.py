"""Diffusion recommenders for binary feedback, with their baselines, under one explicit protocol.

    import recfusion as rf

    data = rf.load("ml-latest-small")                                  # or a file, or a frame of any library
    rf.compare(data, {"mine": MyModel(), "ease": rf.EASE()}, splits=3)  # intervals, paired tests
    bundle = rf.train("thinning-linear", data)                         # a model with its items' names, for use
    rf.recommend(bundle, {"somebody new": [318, 356, 296]})

The names below are loaded when they are first used, so that `import recfusion` costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from recfusion import diffusion as diffusion
    from recfusion import testing as testing
    from recfusion.core.errors import InputError as InputError
    from recfusion.data.interactions import Interactions as Interactions
    from recfusion.data.load import load as load
    from recfusion.data.options import Preparation as Preparation
    from recfusion.data.options import Source as Source
    from recfusion.data.options import SplitPlan as SplitPlan
    from recfusion.data.protocol import Protocol as Protocol
    from recfusion.data.split import Fold as Fold
    from recfusion.data.split import Split as Split
    from recfusion.data.split import split as split
    from recfusion.evaluation.evaluate import Evaluation as Evaluation
    from recfusion.evaluation.evaluate import evaluate as evaluate
    from recfusion.evaluation.topk import top_k as top_k
    from recfusion.experiments.comparison import Comparison as Comparison
    from recfusion.experiments.comparison import compare as compare
    from recfusion.experiments.experiment_file import read_experiment as read_experiment
    from recfusion.experiments.result import Result as Result
    from recfusion.experiments.result import read_results as read_results
    from recfusion.experiments.run import run_experiment as run_experiment
    from recfusion.experiments.train import train as train
    from recfusion.experiments.tuning.tune import tune as tune
    from recfusion.inference.baskets import complete as complete
    from recfusion.inference.bundle import Bundle as Bundle
    from recfusion.inference.recommending import Recommendations as Recommendations
    from recfusion.inference.recommending import recommend as recommend
    from recfusion.inference.request import Filters as Filters
    from recfusion.inference.request import HistoryEntry as HistoryEntry
    from recfusion.inference.request import ItemFilters as ItemFilters
    from recfusion.inference.request import Reranking as Reranking
    from recfusion.inference.similar import similar as similar
    from recfusion.models.base import Recommender as Recommender
    from recfusion.models.baselines.popularity import Popularity as Popularity
    from recfusion.models.baselines.popularity import Random as Random
    from recfusion.models.linear.ease import EASE as EASE
    from recfusion.models.linear.slim import SLIM as SLIM
    from recfusion.models.recfusion.recfusion import RecFusion as RecFusion
    from recfusion.models.registry import MODELS as MODELS
    from recfusion.models.registry import make_model as make_model
    from recfusion.models.settings import learned as learned
    from recfusion.models.settings import self_tuned as self_tuned
    from recfusion.models.settings import setting as setting
    from recfusion.models.thinning.linear import ThinningLinear as ThinningLinear
    from recfusion.models.thinning.mixture import Thinning as Thinning
    from recfusion.report.page import write_page as write_page

    Rules, Knobs = Filters, Reranking  # the old names

_MODULES = ("diffusion", "testing")
_HOMES = {
    name: module
    for module, names in {
        "recfusion.core.errors": "InputError",
        "recfusion.data.interactions": "Interactions",
        "recfusion.data.load": "load",
        "recfusion.data.protocol": "Protocol",
        "recfusion.data.options": "Preparation Source SplitPlan",
        "recfusion.data.split": "Fold Split split",
        "recfusion.evaluation.evaluate": "Evaluation evaluate",
        "recfusion.evaluation.topk": "top_k",
        "recfusion.experiments.comparison": "Comparison compare",
        "recfusion.experiments.result": "Result read_results",
        "recfusion.experiments.run": "run_experiment",
        "recfusion.experiments.experiment_file": "read_experiment",
        "recfusion.experiments.train": "train",
        "recfusion.models.base": "Recommender",
        "recfusion.models.linear.ease": "EASE",
        "recfusion.models.baselines.popularity": "Popularity Random",
        "recfusion.models.recfusion.recfusion": "RecFusion",
        "recfusion.models.registry": "MODELS make_model",
        "recfusion.models.settings": "learned self_tuned setting",
        "recfusion.models.linear.slim": "SLIM",
        "recfusion.models.thinning.linear": "ThinningLinear",
        "recfusion.models.thinning.mixture": "Thinning",
        "recfusion.report.page": "write_page",
        "recfusion.inference.bundle": "Bundle",
        "recfusion.inference.baskets": "complete",
        "recfusion.inference.request": "Filters HistoryEntry ItemFilters Reranking",
        "recfusion.inference.recommending": "Recommendations recommend",
        "recfusion.inference.similar": "similar",
        "recfusion.experiments.tuning.tune": "tune",
    }.items()
    for name in names.split()
}
_OLD_NAMES = {"Rules": "Filters", "Knobs": "Reranking"}  # accepted for one version
__all__ = [*sorted(_HOMES), *_MODULES, "__version__"]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("recfusion")
    if name in _MODULES:
        return import_module(f"recfusion.{name}")
    name = _OLD_NAMES.get(name, name)
    if name not in _HOMES:
        raise AttributeError(f"module 'recfusion' has no attribute '{name}'")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
