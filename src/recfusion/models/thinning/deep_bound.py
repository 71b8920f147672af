"""The bound of -log p(x^0) that a deep thinning denoiser gives, in nats per user."""

import numpy as np
import torch
from torch import Tensor

from recfusion.core.arrays import Csr, IntArray
from recfusion.diffusion import Binomial, Bound, elbo
from recfusion.models.thinning.deep import ThinningDeep
from recfusion.nets.sparse import SparseRows
from recfusion.training.batches import dense

_SPREAD = 1e-3  # share of all users that is spread evenly over all lengths, so that none is impossible
_LEAST, _MOST = 1e-12, 1 - 1e-6
_NEVER = -1e9  # a finite logit: of a row of ones nothing can be missing, and a softmax over nothing would be NaN


def removed_rate(lengths: IntArray, n_items: int, k: Tensor, a: Tensor) -> Tensor:
    """E[|x_0| - k | |x_t| = k, a], (rows,): the expected number of removed ones, by Bayes' rule.

    |x_t| is Binomial(|x_0|, a), and |x_0| has the distribution of the training users' lengths, counted in `lengths`.
    It depends on x_t and a alone, as a bound demands, and vanishes like 1 - a.
    """
    counts = np.zeros(n_items + 1)
    counts[: len(lengths)] = lengths[: n_items + 1]
    share = (1 - _SPREAD) * counts / max(1, counts.sum()) + _SPREAD / len(counts)
    n = torch.arange(n_items + 1, dtype=torch.float64)
    k, a = k.double()[:, None], a.double()[:, None]
    gone = n - k  # (rows, lengths)
    possible = gone >= 0
    gone = gone.clamp(min=0)
    chosen = torch.lgamma(n + 1) - torch.lgamma(k + 1) - torch.lgamma(gone + 1)
    log_likely = chosen + torch.special.xlogy(k, a) + torch.special.xlog1py(gone, -a)
    log_joint = torch.where(possible, log_likely + torch.from_numpy(share).log(), -torch.inf)
    return (log_joint.softmax(1) * gone).sum(1)


def thinning_bound(
    model: ThinningDeep, users: Csr, means: Tensor, rng: torch.Generator, *, steps: int = 200, draws: int = 8
) -> Bound:
    """Estimate the bound for some users with `steps` steps, of which `draws` are drawn for each user.

    A share t / (steps + 1) of the ones is gone at step t; the last step keeps a few, so that L_T is finite under the
    prior, the items' smoothed `means` times the share that is left. The denoiser is xhat_0 = s softmax(logits over the
    entries with x_t = 0).
    """
    survival = torch.linspace(1, 1 / (steps + 1), steps + 1, dtype=torch.float64)[1:]
    process = Binomial.thinning_from_survival(survival, means)

    def denoiser(xt: Tensor, t: Tensor) -> Tensor:
        rows = SparseRows(*_entries(xt))
        logits = model.logits(rows).masked_fill(xt > 0.5, _NEVER)
        rate = removed_rate(model.lengths_, xt.shape[1], xt.sum(1), process.survival(t)).float()
        present = (rate[:, None] * logits.softmax(1)).clamp(_LEAST, _MOST)
        return present.log() - torch.log1p(-present)

    with torch.no_grad():
        return elbo(process, denoiser, dense(users), rng, draws)


def _entries(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return columns, starts and values of a dense 0/1 batch."""
    rows, columns = x.nonzero(as_tuple=True)
    lengths = torch.bincount(rows, minlength=len(x))
    return columns, lengths.cumsum(0) - lengths, torch.ones(len(columns))
