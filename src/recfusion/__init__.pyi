"""The public names and their modules: type checkers read them here, and __init__.py loads them from here."""

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
from recfusion.experiments.custom_metric import metric as metric
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
from recfusion.inference.update import update as update
from recfusion.integrations.estimator import Estimator as Estimator
from recfusion.integrations.mlflow_log import log_to_mlflow as log_to_mlflow
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
__version__: str
