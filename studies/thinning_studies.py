"""Variants of `thinning-linear` for two studies: other starts of the search, other users who score the settings."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self
from unittest.mock import patch

from recfusion.core.arrays import Csr
from recfusion.core.rng import RngLike
from recfusion.data.split import Fold
from recfusion.models import self_tuning as selftune
from recfusion.models.leave_one_out import nobody
from recfusion.models.settings import self_tuned
from recfusion.models.thinning.linear import ThinningLinear


@dataclass
class KnowsNothing(ThinningLinear):
    """The search begins at EASE, with a penalty in the middle of its range, and always has all its trials."""

    l2: float | None = self_tuned(100.0, "penalty of an item", at_least=1e-6, search=(1, 1e4), log=True)
    nu: float | None = self_tuned(0.0, "power of popularity in that penalty", search=(-0.2, 1.0))
    kappa: float | None = self_tuned(0.0, "noise level (1 - a) / a", at_least=0, search=(0.0, 2.5))
    b: float | None = self_tuned(0.0, "users' losses are weighted by |u|^-b", search=(0.0, 1.0))
    c: float | None = self_tuned(0.0, "scores are divided by popularity^c", search=(0.0, 0.5))

    def _starts(self, train: Csr) -> dict[str, float]:
        return {}

    def _probes(self, starts: Mapping[str, float]) -> list[dict[str, float]]:
        return []

    def _probed(self, count: int) -> int:
        return 0


@dataclass
class AlwaysSearches(ThinningLinear):
    """All trials, whatever the probes say."""

    def _probed(self, count: int) -> int:
        return 0


@dataclass
class ValidationOnly(AlwaysSearches):
    """The same trials, judged by the validation users alone: no training user is left out of the fit."""

    def fit(self, train: Csr, valid: Fold | None = None, *, rng: RngLike = None) -> Self:
        def judges(train: Csr, valid: Fold | None, *_: Any) -> selftune.Jury:
            return selftune.Jury(nobody(train), nobody(train) if valid is None else selftune.judged_users(valid))

        with patch.object(selftune, "jury", judges):
            return super().fit(train, valid, rng=rng)
