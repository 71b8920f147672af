"""Higher-order EASE: pairs of items as features beside the items (Steck and Liang, 2021)."""

from dataclasses import dataclass

from recfusion.models.settings import self_tuned
from recfusion.models.thinning.linear import ThinningLinear


@dataclass
class HigherOrderEASE(ThinningLinear):
    """The form of `thinning-pairs`, begun elsewhere: without noise, a pair's own penalty must do all the shrinking."""

    l2: float | None = self_tuned(500.0, "weight of the squared penalty", at_least=1e-6, search=(1, 1e4), log=True)
    pair_l2: float | None = self_tuned(4e4, "penalty of a pair", at_least=1e-6, search=(100, 1e6), log=True)
