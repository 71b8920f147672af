"""Autoencoders of sparse rows: encoders, the multinomial likelihood and priors."""

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import silu

from recfusion.diffusion.process import Normal
from recfusion.nets.sparse import SparseLinear, SparseRows

_WIDE_LOG_VARIANCE = 10.0
_LOG_ROOT_2PI = math.log(2 * math.pi) / 2
_NORM_EPS = 0.1  # swish makes the first features small: a tiny eps would amplify their noise


class DenseEncoder(nn.Module):
    """Hidden features (rows, width) of sparse rows, by densely connected layers (Shenbin et al., 2020).

    h_k = LayerNorm(swish(W_k h_{k-1} + b_k + h_1 + ... + h_{k-1})); the first layer takes the sparse rows.
    A head follows.
    """

    def __init__(self, n_items: int, width: int, layers: int = 5) -> None:
        super().__init__()
        self.first = SparseLinear(n_items, width)
        self.rest = nn.ModuleList(nn.Linear(width, width) for _ in range(layers - 1))
        self.norms = nn.ModuleList(nn.LayerNorm(width, eps=_NORM_EPS) for _ in range(layers))

    def forward(self, rows: SparseRows) -> Tensor:
        h: Tensor = self.norms[0](silu(self.first(rows)))
        total = h
        for layer, norm in zip(self.rest, self.norms[1:], strict=True):
            h = norm(silu(layer(h).add_(total)))
            total = total + h
        return h


class NormalHead(nn.Module):
    """N(mean, exp(log-variance)) for each latent entry; one linear layer gives both."""

    def __init__(self, width: int, latent: int) -> None:
        super().__init__()
        self.both = nn.Linear(width, 2 * latent)

    def forward(self, hidden: Tensor) -> Normal:
        """Return the distribution of the code (rows, latent)."""
        mean, log_variance = self.both(hidden).chunk(2, dim=1)
        return Normal(mean, (log_variance / 2).exp())


class Autoencoder(nn.Module):
    """Sparse rows -> code -> logits (rows, items); the encoder returns a code or its normal distribution."""

    def __init__(self, encoder: nn.Module, decoder: nn.Module) -> None:
        super().__init__()
        self.encoder, self.decoder = encoder, decoder

    def forward(self, rows: SparseRows) -> Tensor:
        code: Tensor | Normal = self.encoder(rows)
        logits: Tensor = self.decoder(code.mean if isinstance(code, Normal) else code)
        return logits


def multinomial_nll(logits: Tensor, rows: SparseRows) -> Tensor:
    """-sum_i x_i log softmax(logits)_i for each row x, without terms that do not depend on the logits; (rows,).

    Only stored entries are summed; x is never made dense. An empty row has the loss 0.
    """
    nll: Tensor = _MultinomialNll.apply(logits, rows)  # type: ignore[no-untyped-call]
    return nll


class _MultinomialNll(torch.autograd.Function):
    """The likelihood with the gradient |x| softmax(logits) - x, computed in one (rows, items) array."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, rows: SparseRows) -> Tensor:
        log_p = logits.log_softmax(1)  # (rows, items)
        place = rows.row_of * logits.shape[1] + rows.columns  # (entries,)
        ctx.rows = rows
        ctx.save_for_backward(log_p, place)
        return -rows.weighted(log_p.view(-1).index_select(0, place) * rows.values).sums()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, None]:
        log_p, place = ctx.saved_tensors
        rows: SparseRows = ctx.rows
        gradient = log_p.exp().mul_((rows.sums() * upstream)[:, None])
        gradient.view(-1).index_add_(0, place, rows.values * upstream.index_select(0, rows.row_of), alpha=-1)
        return gradient, None


def kl_to_standard(code: Normal) -> Tensor:
    """KL(N(mean, std^2) || N(0, 1)) = (mean^2 + std^2 - 1) / 2 - log std at each entry; (rows, latent)."""
    return (code.mean.square() + code.stddev.square() - 1) / 2 - code.stddev.log()


def draw_with_log_prob(code: Normal, rng: torch.Generator) -> tuple[Tensor, Tensor]:
    """z ~ code, and the log density of code at each entry of z; (rows, latent) both.

    With z = mean + std * noise the density is that of the noise divided by std.
    """
    noise = torch.randn(code.mean.shape, generator=rng).to(code.mean.device)
    return code.mean + code.stddev * noise, noise.square().div_(-2).sub_(_LOG_ROOT_2PI) - code.stddev.log()


def composite_log_prob(z: Tensor, old: Normal, weights: tuple[float, float, float]) -> Tensor:
    """log of w_1 N(0, 1) + w_2 old posterior + w_3 N(0, e^10) at each entry of z; (rows, latent).

    RecVAE's prior. It mixes per entry, as in the published model: over whole vectors, one component would dominate.
    """
    first, second, third = (math.log(weight) - _LOG_ROOT_2PI for weight in weights)
    exponent = z.square() / -2
    parts = [
        exponent + first,
        ((z - old.mean) / old.stddev).square() / -2 + (second - old.stddev.log()),
        exponent * math.exp(-_WIDE_LOG_VARIANCE) + (third - _WIDE_LOG_VARIANCE / 2),
    ]
    return torch.stack(parts).logsumexp(0)
