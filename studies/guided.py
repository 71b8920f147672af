"""RecFusion conditioned on user and item features, or on predicted categories, with classifier-free guidance.

Load it as `studies/guided.py:GuidedRecFusion` or `studies/guided.py:PredictedCategories`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array, hstack
from torch import Tensor, nn

import recfusion.diffusion as diffusion
from recfusion.core.arrays import Csr, IntArray
from recfusion.core.errors import InputError
from recfusion.data.interactions import Signal
from recfusion.data.signals import Extra
from recfusion.data.split import Fold
from recfusion.diffusion.bound import draw_steps
from recfusion.models.neural import training_settings as training
from recfusion.models.recfusion.recfusion import RecFusion
from recfusion.models.settings import learned, self_tuned, setting
from recfusion.training.batches import dense

_TRIED = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0)  # candidate strengths


@dataclass
class GuidedRecFusion(RecFusion):
    """RecFusion with a condition c as another input: the user's features, and the mean features of the items of x^t.

    In training each part of c is set to 0 with probability `drop`, so one network is both the conditional and, with
    c = 0, the unconditional denoiser. Scores and samples use out(0) + guidance (out(c) - out(0)). Unknown features are
    0 too, as in training. Without any features this is RecFusion.
    """

    reads: ClassVar[frozenset[Signal]] = frozenset({"item_features", "user_features"})
    process: diffusion.ProcessName = setting("thinning", "forward process")
    schedule: diffusion.ScheduleName = setting("linear", "schedule of the noise rates", search="all")
    beta_low: float = setting(0.2, "smallest noise rate", at_least=0)
    beta_high: float = setting(1.0, "largest noise rate", at_least=0, search=(0.01, 1.0), log=True)
    batch_size: int = training.batch_size(50)
    weight_decay: float = training.weight_decay(0.5)
    drop: float = setting(0.2, "probability that training hides a part of the condition", at_least=0)
    guidance: float | None = self_tuned(1.0, "guidance strength; 0: no condition", at_least=0, search=(0.0, 4.0))
    guidance_: float = learned()
    item_features_: Csr = learned()  # (items, features); no columns without features
    user_columns_: IntArray = learned()  # (1,): the number of user features

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.net != "mlp":
            raise InputError(f"A condition needs net 'mlp', got '{self.net}': set net to mlp.", "net")
        if self.drop >= 1 or (self.drop == 0 and self.guidance != 1):
            raise InputError(
                f"Expected drop to be above 0 and below 1, got {self.drop:g}: guidance needs training with the "
                "condition and without it (drop 0 requires guidance 1).",
                "drop",
            )

    def before_training(self, train: Csr, valid: Fold | None, extra: Extra | None, rng: np.random.Generator) -> None:
        known = extra or Extra()
        items, users = known.item_features, known.user_features
        self.item_features_ = csr_array((train.shape[1], 0), dtype=np.float32) if items is None else items.matrix
        self.user_columns_ = np.array([0 if users is None else users.matrix.shape[1]])
        self.guidance_ = 1.0 if self.guidance is None else self.guidance

    def after_training(self, train: Csr, valid: Fold | None) -> None:
        if self.guidance is None and valid is not None and self.n_conditions:
            self.choose("guidance_", _TRIED, train, valid)

    @property
    def n_conditions(self) -> int:
        if not hasattr(self, "user_columns_"):  # not fitted yet
            return 0
        return int(self.user_columns_[0]) + self.item_features_.shape[1]

    def encoded(self, history: Csr, extra: Extra | None) -> Csr:
        """Return the histories with the users' features as further columns, 0 where unknown."""
        shape = (history.shape[0], int(self.user_columns_[0]))
        users = None if extra is None else extra.user_features
        if users is not None and shape[1] and users.matrix.shape != shape:
            got = users.matrix.shape[1]
            raise InputError(f"Expected {shape[1]} features of each user, got {got}: use those of the training data.")
        known = csr_array(shape, dtype=np.float32) if users is None or not shape[1] else users.matrix
        return csr_array(hstack([history, known], "csr")) if shape[1] else history

    def prepare(self, train: Csr) -> None:
        super().prepare(self._items_of(train))

    def _items_of(self, rows: Csr) -> Csr:
        return rows[:, : self.item_features_.shape[0]]

    def _examples(self, rows: Csr) -> Tensor:
        return super()._examples(self._items_of(rows))

    def denoiser(self, rows: Csr, rng: torch.Generator) -> diffusion.Denoiser:
        """Return the denoiser of these users, with each part of the condition hidden at random."""
        shown = torch.rand((rows.shape[0], 2), generator=rng).to(self.device) >= self.drop
        return self.conditional(rows, shown.float())

    def conditional(self, rows: Csr, shown: Tensor | None = None) -> diffusion.Denoiser:
        """Return the conditional denoiser of encoded rows; `shown` (users, 2) multiplies the condition's two parts."""
        users = dense(rows[:, self.item_features_.shape[0] :], self.device)

        def denoised(xt: Tensor, t: Tensor) -> Tensor:
            times = len(xt) // max(1, len(users))  # a bound with several draws repeats each user
            own = users.repeat_interleave(times, dim=0)
            items = self._profile(xt)
            if shown is not None:
                of_users, of_items = shown.repeat_interleave(times, dim=0).T
                own, items = own * of_users[:, None], items * of_items[:, None]
            out: Tensor = self.net_(xt, t, torch.cat([own, items], dim=1))
            return out

        return denoised

    def guided(self, rows: Csr) -> diffusion.Denoiser:
        """Return the guided denoiser of encoded rows, for `diffusion.elbo` and the samplers."""
        if not self.n_conditions:
            return self.net_
        return diffusion.guided(self.conditional(rows), self.net_, self.guidance_)

    def _profile(self, xt: Tensor) -> Tensor:
        """Return the mean features of the items of x^t, (batch, item features); 0 without items."""
        rows = csr_array(xt.detach().cpu().numpy())
        sums = torch.from_numpy((rows @ self.item_features_).toarray()).to(xt)
        return sums / xt.sum(1, keepdim=True).clamp(min=1)

    def scores(self, history: Csr) -> Tensor:
        x1 = dense(self._items_of(history), self.device)
        return self.guided(history)(x1, torch.ones(len(x1), dtype=torch.int64, device=x1.device))

    def load_state(self, state: Mapping[str, NDArray[Any]], chosen: Mapping[str, Any], n_items: int) -> None:
        columns, rows = state["user_columns_"], int(state["item_features_.shape"][0])
        if columns.shape != (1,) or not 0 <= columns[0] <= 10**7 or rows != n_items:
            raise ValueError(f"the features do not belong to {n_items} items and their users")
        super().load_state(state, chosen, n_items)


@dataclass
class PredictedCategories(GuidedRecFusion):
    """RecFusion conditioned on the categories that a second network expects in the user's whole row.

    The shares of the categories in x^0 are y_c, the mean over the items of x^0 of f_ic / sum_c f_ic, with features f.
    A head predicts them from x^t, softmax(h(x^t)), by the cross-entropy to y; its optimum is E[y | x^t]. The prediction
    is the condition of the denoiser, in training and after it, with the guidance of `GuidedRecFusion`.
    """

    head_width: int = setting(64, "width of the hidden layer of the head", at_least=1, at_most=10_000)
    head_weight: float = setting(1.0, "weight of the head's cross-entropy in the loss", at_least=0)

    def before_training(self, train: Csr, valid: Fold | None, extra: Extra | None, rng: np.random.Generator) -> None:
        super().before_training(train, valid, extra, rng)
        if not self.item_features_.shape[1]:
            raise InputError("Predicted categories need features of the items: name their columns.", "feature_columns")

    def make_net(self, n_items: int) -> nn.Module:
        net = super().make_net(n_items)
        n_categories = self.item_features_.shape[1] if hasattr(self, "item_features_") else 1
        net.head = nn.Sequential(
            nn.Linear(n_items, self.head_width), nn.PReLU(), nn.Linear(self.head_width, n_categories)
        )
        return net

    def loss(self, rows: Csr, trained: nn.Module, rng: torch.Generator) -> Tensor:
        x0, process = self._examples(rows), self.make_process(self.means)
        t = draw_steps(len(x0), process.T, rng, x0.device)
        logits = self.net_.get_submodule("head")(process.q_sample(x0, t, rng))
        missed = -(self.shares(x0) * logits.log_softmax(1)).sum(1).mean()
        return super().loss(rows, trained, rng) + self.head_weight * missed

    def shares(self, x0: Tensor) -> Tensor:
        """Return y (batch, categories): the mean distribution of the items; 0 without items."""
        features = self.item_features_
        sums = np.maximum(np.asarray(features.sum(1)), 1e-12)
        rows = csr_array(x0.detach().cpu().numpy())
        total = torch.from_numpy((rows @ csr_array(features / sums[:, None])).toarray()).to(x0)
        return total / total.sum(1, keepdim=True).clamp(min=1e-12)

    def _profile(self, xt: Tensor) -> Tensor:
        """Return the predicted categories of the whole row; they are no way for the denoiser's loss into the head."""
        predicted: Tensor = self.net_.get_submodule("head")(xt).softmax(1)
        return predicted.detach()
