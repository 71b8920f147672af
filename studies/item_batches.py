"""Batches of items, and of items of one category, instead of batches of users.

Load them as `studies/item_batches.py:ItemBatches` and `studies/item_batches.py:CategoryBatches`. An example is an
item's column, the training users who have it. The paper notes that this is item-based collaborative filtering.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array
from torch import Tensor, nn

from recfusion.core.arrays import Csr
from recfusion.core.errors import InputError
from recfusion.data.interactions import Signal
from recfusion.data.signals import Extra
from recfusion.data.split import Fold
from recfusion.diffusion import Denoiser, ProcessName, ScheduleName, guided
from recfusion.diffusion.process import same_step
from recfusion.models.neural import training_settings as training
from recfusion.models.recfusion.recfusion import RecFusion
from recfusion.models.settings import learned, setting
from recfusion.training.batches import dense


@dataclass
class ItemBatches(RecFusion):
    """RecFusion on the columns of the matrix: x^0 says which training users have an item.

    A new user is in no column. The score of item i averages over the items j of the history the predicted share of i
    among the training users with j, sum_u x_uj p_ui / n_j, where p_ui is the denoised column of i.
    """

    process: ProcessName = setting("thinning", "forward process")
    schedule: ScheduleName = setting("linear", "schedule of the noise rates", search="all")
    beta_low: float = setting(0.2, "smallest noise rate", at_least=0)
    beta_high: float = setting(1.0, "largest noise rate", at_least=0, search=(0.01, 1.0), log=True)
    batch_size: int = training.batch_size(50)
    weight_decay: float = training.weight_decay(0.5)
    users_: Csr = learned()  # (training users, items)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.net != "mlp" or self.process == "gaussian":
            raise InputError("Batches of items need net mlp and a binary process: set them.")

    @property
    def keeps_histories(self) -> bool:
        return True

    def prepare(self, train: Csr) -> None:
        self.users_ = train
        super().prepare(csr_array(train.T))

    def make_net(self, n_items: int) -> nn.Module:
        return super().make_net(self.users_.shape[0] if hasattr(self, "users_") else n_items)

    def training_rows(self, encoded: Csr, extra: Extra | None) -> Csr:
        return csr_array(encoded.T)

    def shares(self, columns: Denoiser) -> Tensor:
        """Return W (items, items), W_ji = sum_u x_uj p_ui / n_j, for a denoiser of columns."""
        x = dense(csr_array(self.users_.T), self.device)  # (items, users)
        predicted = torch.sigmoid(columns(x, same_step(1, x)))
        return x @ predicted.T / x.sum(1, keepdim=True).clamp(min=1)

    def columns(self) -> Denoiser:
        """Return the denoiser of all columns that scores use."""
        return self.net_

    def scores(self, history: Csr) -> Tensor:
        rows = dense(history, self.device)
        return rows @ self.shares(self.columns()) / rows.sum(1, keepdim=True).clamp(min=1)

    def load_state(self, state: Mapping[str, NDArray[Any]], chosen: Mapping[str, Any], n_items: int) -> None:
        if int(state["users_.shape"][1]) != n_items:
            raise ValueError(f"the training users do not have {n_items} items")
        super().load_state(state, chosen, n_items)


@dataclass
class CategoryBatches(ItemBatches):
    """Batches of items of one category, which is the condition of their denoiser, with classifier-free guidance.

    An epoch has a batch of each category: at most `batch_size` of its items at random. With probability `drop` the
    batch hides its category. In scores, an item's condition is the mean of its categories.
    """

    reads: ClassVar[frozenset[Signal]] = frozenset({"item_features"})
    drop: float = setting(0.2, "probability that a batch hides its category", at_least=0, at_most=1)
    guidance: float = setting(1.0, "guidance strength; 0: no category", at_least=0)
    item_features_: Csr = learned()  # (items, categories)

    def before_training(self, train: Csr, valid: Fold | None, extra: Extra | None, rng: np.random.Generator) -> None:
        features = None if extra is None else extra.item_features
        if features is None or not features.matrix.shape[1]:
            raise InputError("Batches of a category need features of the items: name columns.", "feature_columns")
        self.item_features_ = csr_array(features.matrix != 0, dtype=np.float32)

    @property
    def n_conditions(self) -> int:
        return int(self.item_features_.shape[1]) if hasattr(self, "item_features_") else 0

    def training_rows(self, encoded: Csr, extra: Extra | None) -> Csr:
        """Return a row of items for each category that has some; each becomes a batch. Values are categories from 1."""
        rows = csr_array(self.item_features_.T)
        sizes = np.diff(rows.indptr)
        rows.data = np.repeat(np.arange(1, len(sizes) + 1, dtype=np.float32), sizes)
        return rows[np.flatnonzero(sizes)]

    def batch_rows(self, n_users: int) -> int:
        return 1

    def loss(self, rows: Csr, trained: nn.Module, rng: torch.Generator) -> Tensor:
        of_category = torch.from_numpy(rows.indices.astype(np.int64))
        items = of_category[torch.randperm(len(of_category), generator=rng)[: self.batch_size]].numpy()
        self._condition = torch.zeros(self.n_conditions)
        if float(torch.rand((), generator=rng)) >= self.drop:
            self._condition[int(rows.data[0]) - 1] = 1
        return super().loss(csr_array(self.users_.T)[items], trained, rng)

    def denoiser(self, rows: Csr, rng: torch.Generator) -> Denoiser:
        return self.conditional(self._condition.expand(rows.shape[0], -1))

    def conditional(self, condition: Tensor) -> Denoiser:
        """Return the denoiser of columns with these conditions, (items, categories)."""

        def denoised(xt: Tensor, t: Tensor) -> Tensor:
            out: Tensor = self.net_(xt, t, condition.repeat_interleave(len(xt) // len(condition), 0))
            return out

        return denoised

    def columns(self) -> Denoiser:
        known = torch.from_numpy(self.item_features_.toarray())
        condition = known / known.sum(1, keepdim=True).clamp(min=1)
        return guided(self.conditional(condition), self.net_, self.guidance)
