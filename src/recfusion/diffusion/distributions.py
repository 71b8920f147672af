"""The distributions of independent entries that processes return: drawn with an `rng`, scored entry by entry."""

from typing import Protocol, TypeAlias, cast

import torch
from torch import Tensor
from torch.distributions import Bernoulli, Distribution
from torch.distributions import Normal as TorchNormal
from torch.distributions.kl import kl_divergence, register_kl
from torch.nn.functional import logsigmoid

Rng: TypeAlias = torch.Generator | None  # None: torch's own generator


class Entries(Protocol):
    """What the bound and the samplers ask of a distribution.

    One of another kind than `Bits` and `Normal` is a torch Distribution with `draw`; `kl` finds its divergence where
    `torch.distributions.kl.register_kl` has put it.
    """

    @property
    def mean(self) -> Tensor: ...
    def log_prob(self, value: Tensor) -> Tensor: ...
    def draw(self, rng: Rng) -> Tensor: ...


class Bits(Bernoulli):
    """Bernoulli(sigmoid(logits)) for each entry.

    torch's own class takes logarithms of probabilities clipped at its machine epsilon, and gives an infinite KL where
    a probability merely rounds to 0 or 1. This one works with logits throughout, so tiny rates keep their gradient.
    """

    def __init__(self, logits: Tensor) -> None:
        super().__init__(logits=logits, validate_args=False)

    def log_prob(self, value: Tensor) -> Tensor:
        """Return x log p + (1 - x) log(1 - p) for each entry."""
        return value * logsigmoid(self.logits) + (1 - value) * logsigmoid(-self.logits)

    def draw(self, rng: Rng) -> Tensor:
        """Sample zeros and ones of the logits' type."""
        return draw_bits(self.probs, rng)


class Normal(TorchNormal):
    """N(mean, std^2) for each entry; a std of 0 is a point mass."""

    def __init__(self, mean: Tensor, std: Tensor) -> None:
        super().__init__(mean, std, validate_args=False)

    def log_prob(self, value: Tensor) -> Tensor:
        """Return the log density of each entry."""
        density: Tensor = super().log_prob(value)  # type: ignore[no-untyped-call]
        return density

    def draw(self, rng: Rng) -> Tensor:
        """Sample mean + std * noise, differentiable in both."""
        noise = torch.randn(self.loc.shape, generator=rng, dtype=self.loc.dtype, device=self.loc.device)
        return self.loc + self.scale * noise


def draw_bits(probability: Tensor, rng: Rng) -> Tensor:
    """Sample Bernoulli(probability) for each entry."""
    uniform = torch.rand(probability.shape, generator=rng, dtype=probability.dtype, device=probability.device)
    return (1 - uniform <= probability).to(probability.dtype)  # 1 - uniform is never 0, so probability 0 is never drawn


def kl(q: Entries, p: Entries) -> Tensor:
    """Return KL(q || p) for each entry."""
    return kl_divergence(cast(Distribution, q), cast(Distribution, p))


def _kl_bits(q: Bits, p: Bits) -> Tensor:
    one = torch.sigmoid(q.logits) * (logsigmoid(q.logits) - logsigmoid(p.logits))
    zero = torch.sigmoid(-q.logits) * (logsigmoid(-q.logits) - logsigmoid(-p.logits))
    return one + zero


register_kl(Bits, Bits)(_kl_bits)  # type: ignore[no-untyped-call]
