"""H+Vamp: a variational autoencoder with two codes, a learned prior and gated layers (Kim and Suh, 2019).

Load it as `studies/hvamp.py:HVamp`.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from recfusion.core.arrays import Csr
from recfusion.diffusion.process import Normal
from recfusion.models.neural import training_settings as training
from recfusion.models.neural.network import NeuralRecommender
from recfusion.models.neural.vae import Annealed
from recfusion.models.settings import setting
from recfusion.nets.sparse import SparseLinear, SparseRows
from recfusion.nets.vae import draw_with_log_prob, multinomial_nll

_LOG_ROOT_2PI = math.log(2 * math.pi) / 2
_LOG_VARIANCE = (-12.0, 4.0)  # bounds of the log-variance of a code
_START = 0.05  # initial mean and standard deviation of the pseudo-users' entries


class Gated(nn.Module):
    """(W x + b) * sigmoid(V x + c): the gate scales each feature."""

    def __init__(self, inputs: int, width: int, *, sparse: bool = False) -> None:
        super().__init__()
        self.width = width
        self.both: nn.Module = SparseLinear(inputs, 2 * width) if sparse else nn.Linear(inputs, 2 * width)
        if isinstance(self.both, nn.Linear):
            nn.init.kaiming_normal_(self.both.weight)  # torch's default weights lose the signal after four gates
            nn.init.zeros_(self.both.bias)

    def forward(self, x: Tensor | SparseRows) -> Tensor:
        """Return the gated features (rows, width); a sparse first layer accepts dense rows too."""
        if isinstance(self.both, SparseLinear) and isinstance(x, Tensor):
            both = x @ self.both.weight + self.both.bias
        else:
            both = self.both(x)
        feature, gate = both.chunk(2, dim=1)
        return feature * gate.sigmoid()


class Code(nn.Module):
    """N(mean, exp(log-variance)) of a code, from hidden features; the log-variance is bounded."""

    def __init__(self, width: int, latent: int) -> None:
        super().__init__()
        self.both = nn.Linear(width, 2 * latent)

    def forward(self, hidden: Tensor) -> Normal:
        """Return the distribution of the code (rows, latent)."""
        mean, log_variance = self.both(hidden).chunk(2, dim=1)
        return Normal(mean, (log_variance.clamp(*_LOG_VARIANCE) / 2).exp())


class TwoCodes(nn.Module):
    """x -> z2, x and z2 -> z1, z1 and z2 -> logits of x; the prior is p(z1 | z2) and a mixture for z2.

    The mixture has one component q(z2 | u) per pseudo-user u; pseudo-users are learned rows (VampPrior).
    """

    def __init__(self, n_items: int, width: int, latent: int, components: int) -> None:
        super().__init__()
        self.q2 = nn.Sequential(Gated(n_items, width, sparse=True), Gated(width, width), Code(width, latent))
        self.q1_of_x = nn.Sequential(Gated(n_items, width, sparse=True), Gated(width, width))
        self.q1_of_z2 = Gated(latent, width)
        self.q1 = nn.Sequential(Gated(2 * width, width), Code(width, latent))
        self.p1 = nn.Sequential(Gated(latent, width), Gated(width, width), Code(width, latent))
        self.from_z1, self.from_z2 = Gated(latent, width), Gated(latent, width)
        self.decoder = nn.Sequential(Gated(2 * width, width), nn.Linear(width, n_items))
        self.pseudo_users = nn.Parameter(torch.empty(components, n_items).normal_(_START, _START))

    def first_code(self, x: SparseRows, z2: Tensor) -> Normal:
        """q(z1 | x, z2)."""
        code: Normal = self.q1(torch.cat([self.q1_of_x(x), self.q1_of_z2(z2)], dim=1))
        return code

    def decode(self, z1: Tensor, z2: Tensor) -> Tensor:
        """Return the logits (rows, items)."""
        logits: Tensor = self.decoder(torch.cat([self.from_z1(z1), self.from_z2(z2)], dim=1))
        return logits

    def prior_log_prob(self, z2: Tensor) -> Tensor:
        """log p(z2), (rows,): the mean of the densities q(z2 | u) over the pseudo-users u, entries within 0 and 1."""
        prior: Normal = self.q2(self.pseudo_users.clamp(0, 1))
        precision = prior.stddev.square().reciprocal()  # (components, latent)
        square = (  # |(z - mean) / stddev|^2 for all pairs, (rows, components), without an array of rank 3
            z2.square() @ precision.T - 2 * z2 @ (precision * prior.mean).T + (precision * prior.mean.square()).sum(1)
        )
        log_density = -square / 2 - prior.stddev.log().sum(1) - z2.shape[1] * _LOG_ROOT_2PI
        return log_density.logsumexp(1) - math.log(len(precision))

    def forward(self, x: SparseRows) -> Tensor:
        """Return the logits of the codes' means."""
        second: Normal = self.q2(x)
        return self.decode(self.first_code(x, second.mean).mean, second.mean)


@dataclass
class HVamp(NeuralRecommender):
    """Multinomial variational autoencoder with two levels of codes, gated layers and a prior of pseudo-users.

    The loss of a user is -log p(x | z1, z2) + w [log q(z1, z2 | x) - log p(z1, z2)] at one sample of both codes; w
    grows linearly over the first batches. The input has dropout. The published model has a thousand pseudo-users; fewer
    make an epoch shorter.
    """

    patience: int = training.patience(20)
    width: int = training.width(600, "width of the hidden layers", (200, 1200))
    latent: int = training.width(200, "length of each code", (50, 400))
    components: int = setting(100, "pseudo-users of the prior", at_least=1, at_most=100_000)
    dropout: float = setting(0.5, "dropout on a history's items in training", at_least=0, search=(0.1, 0.8))
    kl_cap: float = setting(0.3, "final weight of the KL term", at_least=0, search=(0.05, 1.0), log=True)
    anneal_steps: int = setting(
        1000, "batches over which the weight of the KL term grows from 0", at_least=1, at_most=1_000_000_000
    )

    def make_net(self, n_items: int) -> TwoCodes:
        return TwoCodes(n_items, self.width, self.latent, self.components)

    def training_module(self) -> nn.Module:
        return Annealed(self.net_)

    def loss(self, rows: Csr, trained: nn.Module, rng: torch.Generator) -> Tensor:
        assert isinstance(trained, Annealed)
        net = trained.net
        assert isinstance(net, TwoCodes)
        x = SparseRows.of(rows, self.device)
        noisy = x.dropout(self.dropout, rng)
        z2, log_q2 = draw_with_log_prob(net.q2(noisy), rng)
        z1, log_q1 = draw_with_log_prob(net.first_code(noisy, z2), rng)
        divergence = (log_q1 + log_q2 - net.p1(z2).log_prob(z1)).sum(1) - net.prior_log_prob(z2)
        trained.steps += 1
        weight = self.kl_cap * (trained.steps / self.anneal_steps).clamp(max=1)
        return (multinomial_nll(net.decode(z1, z2), x) + weight * divergence).mean()

    def scores(self, history: Csr) -> Tensor:
        logits: Tensor = self.net_(SparseRows.of(history, self.device))
        return logits
