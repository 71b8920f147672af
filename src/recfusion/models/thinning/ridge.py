"""The ridge settings that all linear thinning models share, declared once."""

from dataclasses import dataclass

import numpy as np

from recfusion.core.arrays import Csr, FloatArray
from recfusion.models.base import Recommender
from recfusion.models.self_tuning import relative
from recfusion.models.settings import learned, self_tuned

RIDGE = ("l2", "nu", "kappa", "b", "c")
_L2, _L2_POWER = 20.0, 0.7
_L2_DOC, _L2_RULE = "penalty of an item of mean popularity (l2)", "20 (mean users of an item)^.7"
_KAPPA_DOC = "noise level (1 - a) / a if a share a of the items survives (kappa)"


@dataclass
class RidgeRecommender(Recommender):
    """A linear thinning model: item i has the penalty l2 (n_i / mean n)^nu + kappa n_i, where n_i counts its users."""

    l2: float | None = self_tuned(693.0, _L2_DOC, at_least=1e-6, search=(1, 1e4), log=True, rule=_L2_RULE)
    nu: float | None = self_tuned(0.318, "power of popularity in the penalty (nu)", search=(-0.2, 1.0))
    kappa: float | None = self_tuned(0.876, _KAPPA_DOC, at_least=0, search=(0.0, 2.5))
    b: float | None = self_tuned(0.5, "users with |u| items are weighted by |u|^-b", search=(0.0, 1.0))
    c: float | None = self_tuned(0.2, "scores are divided by popularity^c", search=(0.0, 0.5))
    l2_: float = learned()
    nu_: float = learned()
    kappa_: float = learned()
    b_: float = learned()
    c_: float = learned()


def start_l2(train: Csr) -> float:
    """Return the penalty that a search starts from: 20 (mean number of users of an item)^.7.

    The rule fits the best penalties of five data sets, from 16 to 150 users per item.
    """
    return float(np.clip(_L2 * (train.nnz / max(1, train.shape[1])) ** _L2_POWER, 1, 1e4))


def penalty(n: FloatArray, *, l2: float, nu: float, mean: float | None = None) -> FloatArray:
    """Return l2 (n_i / mean)^nu, (items,); the mean is that of `n` unless given."""
    return np.asarray(l2 * relative(n, mean) ** nu, np.float32)
