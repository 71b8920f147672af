"""Exposure against dislike (the paper's assumption 3). Load it as `studies/exposure.py:ExposureRecFusion`.

A zero means "never seen" or "seen and not liked". As in ExpoMF (Liang et al., 2016) every item has a probability of
exposure mu_i, and the denoiser gives the probability p of a like, given exposure. With the exposure summed out,
p(x = 1) = mu p and p(x = 0) = 1 - mu p; a known dislike is an exposure without a like, mu (1 - p).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import torch
from scipy.sparse import csr_array, hstack
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from recfusion.core.arrays import Csr
from recfusion.core.errors import InputError
from recfusion.data.interactions import Signal
from recfusion.data.signals import Extra
from recfusion.diffusion import ProcessName, ScheduleName
from recfusion.diffusion.bound import draw_steps
from recfusion.models.neural import training_settings as training
from recfusion.models.recfusion.recfusion import RecFusion
from recfusion.models.settings import setting
from recfusion.training.batches import dense


@dataclass
class ExposureRecFusion(RecFusion):
    """`recfusion-bin` that predicts likes given exposure, with a learned exposure of each item.

    It ranks by the probability of an interaction, mu p, or by that of a like if the user were exposed, p. Without
    ratings there are no known dislikes.
    """

    reads: ClassVar[frozenset[Signal]] = frozenset({"grades"})
    process: ProcessName = setting("thinning", "forward process")
    schedule: ScheduleName = setting("linear", "schedule of the noise rates", search="all")
    beta_low: float = setting(0.2, "smallest noise rate", at_least=0)
    beta_high: float = setting(1.0, "largest noise rate", at_least=0, search=(0.01, 1.0), log=True)
    batch_size: int = training.batch_size(50)
    weight_decay: float = training.weight_decay(0.5)
    start: float = setting(0.5, "exposure of an item at the start of training; 1: never learned", at_least=0, at_most=1)
    ranks: Literal["interaction", "like"] = setting("interaction", "ranks by mu p or by p")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.process == "gaussian" or self.net != "mlp" or self.objective != "simple" or not self.start:
            raise InputError("Exposure needs a binary process, net mlp, objective simple and a start above 0.")

    def with_schedule(self, net: nn.Module) -> nn.Module:
        like = net.get_parameter("outer.bias")  # an entry for each item
        net.exposure = nn.Parameter(torch.full_like(like, min(self.start, 1 - 1e-6)).logit())
        net.exposure.requires_grad_(self.start < 1)
        return net

    def undecayed_parameters(self) -> Iterable[nn.Parameter]:
        return (self.net_.get_parameter("exposure"),)  # 0 would be an exposure of .5

    def training_rows(self, encoded: Csr, extra: Extra | None) -> Csr:
        """Return rows of likes with the known dislikes as further columns, (users, 2 items)."""
        disliked = None if extra is None else extra.disliked
        if disliked is None:
            return encoded
        ones = csr_array((np.ones(disliked.nnz, np.float32), disliked.indices, disliked.indptr), disliked.shape)
        return csr_array(hstack([encoded, ones], "csr"))

    def loss(self, rows: Csr, trained: nn.Module, rng: torch.Generator) -> Tensor:
        n_items = len(self.net_.get_parameter("exposure"))
        x0 = dense(rows[:, :n_items], self.device)
        disliked = dense(rows[:, n_items:], self.device) if rows.shape[1] > n_items else torch.zeros_like(x0)
        process = self.make_process(self.means)
        t = draw_steps(len(x0), process.T, rng, x0.device)
        out: Tensor = self.net_(process.q_sample(x0, t, rng), t)
        return negative_log_likelihood(out, self.net_.get_parameter("exposure"), x0, disliked).sum(1).mean()

    def scores(self, history: Csr) -> Tensor:
        out = super().scores(history)
        return out if self.ranks == "like" else logsigmoid(out) + logsigmoid(self.net_.get_parameter("exposure"))


def negative_log_likelihood(out: Tensor, exposure: Tensor, x0: Tensor, disliked: Tensor) -> Tensor:
    """-log p of each entry: like mu p, known dislike mu (1 - p), any other zero 1 - mu p; `out`, `exposure`: logits."""
    mu, no_mu = logsigmoid(exposure), logsigmoid(-exposure)
    like, not_liked = logsigmoid(out), logsigmoid(-out)
    missing = torch.logaddexp(no_mu.expand_as(out), mu + not_liked)  # not exposed, or exposed and not liked
    known = x0 * (mu + like) + disliked * (mu + not_liked)
    return -(known + (1 - x0) * (1 - disliked) * missing)


def exposed(out: Tensor, exposure: Tensor) -> Tensor:
    """p(exposed | x = 0) = mu (1 - p) / (1 - mu p), the probability that a missing item was seen and not liked."""
    seen = logsigmoid(exposure) + logsigmoid(-out)
    return torch.exp(seen - torch.logaddexp(logsigmoid(-exposure).expand_as(out), seen))
