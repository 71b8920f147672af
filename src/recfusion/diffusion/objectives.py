"""Training objectives other than the bound: x^0-prediction, the paper's BCE-ELBO, and the removed-items likelihood.

Each takes (process, denoiser, x0, rng) and returns one value per example, (batch,). The cost of objectives that draw t
does not depend on T. The losses of the paper's research code are in `published`.
"""

import torch
from torch import Tensor

from recfusion.core.errors import InputError
from recfusion.diffusion.bound import Bound, WhichSteps, draw_steps, elbo
from recfusion.diffusion.process import Denoiser, HasSurvival, Process, Rng, per_example


def simple(process: Process, denoiser: Denoiser, x0: Tensor, rng: Rng) -> Tensor:
    """The error of the predicted x^0 at one uniform t: squared (Gaussian) or binary cross-entropy (binomial).

    L_simple of Ho et al. (2020, eq. 14) for a denoiser that predicts x^0: the bound's terms with equal weights.
    """
    process.check_data(x0)
    t = draw_steps(len(x0), process.T, rng, x0.device)
    return per_example(process.x0_error(denoiser(process.q_sample(x0, t, rng), t), x0))


def bce_elbo(process: Process, denoiser: Denoiser, x0: Tensor, rng: Rng, t: WhichSteps = "all") -> Bound:
    """The paper's BCE-ELBO (eqs. 4 and 8) in the meaning of its text.

    The denoiser's sigmoid is pi_theta = p(x^{t-1} = 1 | x^t), L_{t-1} is the KL between Bernoullis, and L_0 is the
    binary cross-entropy -[x^0 log pi + (1 - x^0) log(1 - pi)]. This is the exact bound; only the
    parametrisation is checked.
    """
    found = getattr(process, "predicts", None)
    if found != "previous":
        raise InputError(f"Expected a process with predicts='previous' for the BCE-ELBO, got {found!r}: set it.")
    return elbo(process, denoiser, x0, rng, t)


def removed(process: Process, denoiser: Denoiser, x0: Tensor, rng: Rng, weighted: bool = True) -> Tensor:
    """Multinomial cross-entropy of the entries that thinning removed, at one uniform t.

    `weighted` multiplies it by T rho_t, rho_t = (a_{t-1} - a_t)/(1 - a_t), so that its mean over t is the ranking part
    of the thinning bound, sum_t rho_t CE_t. If a_t decreases linearly to 0, T rho_t = 1/(1 - a_t).
    """
    process.check_data(x0)
    t = draw_steps(len(x0), process.T, rng, x0.device)
    xt = process.q_sample(x0, t, rng)
    if bool((xt > x0).any()):
        raise InputError("Expected a process that only removes ones, got new ones in x^t: use thinning, or the bound.")
    return multinomial_removed(denoiser(xt, t), x0, xt, removal_weight(process, t) if weighted else 1.0)


def multinomial_removed(logits: Tensor, x0: Tensor, xt: Tensor, weight: Tensor | float = 1.0) -> Tensor:
    """-sum over removed entries (x^0 = 1, x^t = 0) of log softmax(logits over entries with x^t = 0), times weight.

    The ranking part of thinning's continuous-time bound: with xhat_0 = s softmax(logits) over the entries with
    x^t = 0, the step's KL tends to rho [x^0 log(x^0/xhat_0) - x^0 + xhat_0]. This is the part with the softmax;
    `weight` is then 1/(1 - a), (batch,) or a number. It is MultVAE's likelihood, restricted to the removed entries.
    logits, x0, xt: (batch, D) -> (batch,). An example without removed entries has the loss 0.
    """
    gone = x0 * (1 - xt)
    open_logits = logits.masked_fill(xt > 0.5, torch.finfo(logits.dtype).min)  # finite: 0 * -inf would be NaN
    return weight * (gone.sum(1) * open_logits.logsumexp(1) - (gone * logits).sum(1))


def removal_weight(process: Process, t: Tensor) -> Tensor:
    """T rho_t, rho_t = (a_{t-1} - a_t)/(1 - a_t): T times the share of removed ones that step t removed; (batch,)."""
    if not isinstance(process, HasSurvival):
        got = f"{type(process).__name__} without it"
        raise InputError(f"Expected a process with survival(t) = q(x^t = 1 | x^0 = 1), got {got}: use weighted=False.")
    before, now = process.survival(t - 1), process.survival(t)
    return (process.T * (before - now) / (1 - now)).float()
