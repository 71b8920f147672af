"""The bound of thinning-deep, in nats, and the distribution of history lengths that it needs."""

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array
from torch import Tensor

from recfusion.core.arrays import Csr, IntArray
from recfusion.diffusion import Binomial, Bound, elbo
from recfusion.models.thinning.deep import ThinningDeep
from recfusion.nets.sparse import NEVER, SparseRows
from recfusion.training.batches import dense

_LEAST, _MOST = 1e-12, 1 - 1e-6
_SPREAD = 1e-3  # probability that is spread evenly over all lengths


def length_shares(lengths: IntArray, n_items: int) -> NDArray[np.float64]:
    """Return the share of users with 0, 1, ..., n_items items, (n_items + 1,); `lengths` counts the training users."""
    counts = np.zeros(n_items + 1)
    counts[: len(lengths)] = lengths[: n_items + 1]
    shares: NDArray[np.float64] = (1 - _SPREAD) * counts / max(1, counts.sum()) + _SPREAD / len(counts)
    return shares


def removed_rate(lengths: IntArray, n_items: int, k: Tensor, a: Tensor) -> Tensor:
    """E[|x_0| - k | |x_t| = k, a], (rows,): the expected number of removed ones, by Bayes' rule.

    |x_t| is Binomial(|x_0|, a), and |x_0| has the distribution of the training users' lengths, counted in `lengths`.
    It depends on x_t and a alone, as the bound requires, and vanishes like 1 - a.
    """
    n = torch.arange(n_items + 1, dtype=torch.float64)
    k, a = k.double()[:, None], a.double()[:, None]
    gone = n - k  # (rows, lengths)
    possible = gone >= 0
    gone = gone.clamp(min=0)
    chosen = torch.lgamma(n + 1) - torch.lgamma(k + 1) - torch.lgamma(gone + 1)
    log_likely = chosen + torch.special.xlogy(k, a) + torch.special.xlog1py(gone, -a)
    log_joint = torch.where(possible, log_likely + torch.from_numpy(length_shares(lengths, n_items)).log(), -torch.inf)
    return (log_joint.softmax(1) * gone).sum(1)


def thinning_bound(
    model: ThinningDeep, users: Csr, means: Tensor, rng: torch.Generator, *, steps: int = 200, draws: int = 8
) -> Bound:
    """Estimate the bound for some users with `steps` steps; `draws` of them are drawn for each user.

    A share t / (steps + 1) of the ones is removed at step t; the last step keeps a few, so that L_T is finite under the
    prior: the items' smoothed `means` times the share that is kept. The denoiser is xhat_0 = s softmax(logits over the
    entries with x_t = 0).
    """
    survival = torch.linspace(1, 1 / (steps + 1), steps + 1, dtype=torch.float64)[1:]
    process = Binomial.thinning_from_survival(survival, means)

    def denoiser(xt: Tensor, t: Tensor) -> Tensor:
        logits = model.logits(SparseRows.of(csr_array(xt.cpu().numpy()), xt.device)).masked_fill(xt > 0.5, NEVER)
        rate = removed_rate(model.lengths_, xt.shape[1], xt.sum(1), process.survival(t)).float()
        present = (rate[:, None] * logits.softmax(1)).clamp(_LEAST, _MOST)
        return present.log() - torch.log1p(-present)

    with torch.no_grad():
        return elbo(process, denoiser, dense(users), rng, draws)
