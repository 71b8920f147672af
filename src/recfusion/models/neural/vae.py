"""Autoencoders with a multinomial likelihood: MultVAE, MultDAE (Liang et al., 2018), RecVAE (Shenbin et al., 2020)."""

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from recfusion.core.arrays import Csr
from recfusion.diffusion.process import Normal
from recfusion.models.neural import training_settings as training
from recfusion.models.neural.network import NeuralRecommender
from recfusion.models.settings import setting
from recfusion.nets import vae
from recfusion.nets.sparse import SparseLinear, SparseRows
from recfusion.training.loop import Phase

_WEIGHTS = (0.15, 0.75, 0.10)  # of the standard normal, the old posterior and the wide normal


class Annealed(nn.Module):
    """A network in training, with a count of its batches for the annealing of the KL term."""

    steps: Tensor

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))


@dataclass
class MultVAE(NeuralRecommender):
    """Multinomial autoencoder of users' rows, scaled to length 1, with dropout on the input.

    The loss of a user is -log p(x | z) + w KL(q(z | x) || N(0, I)); w grows linearly over the first batches. The form
    "dae" has one hidden layer with `latent` units and a deterministic code.
    """

    patience: int = training.patience(20)
    form: Literal["vae", "dae"] = setting("vae", "variational (vae) or denoising (dae) autoencoder")
    width: int = training.width(600, "width of the hidden layers (vae only)", (200, 1200))
    latent: int = training.width(200, "length of a user's code", (50, 400))
    dropout: float = setting(0.5, "dropout on a history's items in training", at_least=0, search=(0.1, 0.8))
    kl_cap: float = setting(0.2, "final weight of the KL term", at_least=0, search=(0.05, 1.0), log=True)
    anneal_steps: int = setting(1000, "batches until the KL term has its final weight", at_least=1, at_most=10**9)

    @property
    def idle(self) -> tuple[str, ...]:
        return () if self.form == "vae" else ("width", "kl_cap", "anneal_steps")

    def make_net(self, n_items: int) -> vae.Autoencoder:
        width, latent = self.width, self.latent
        if self.form == "dae":
            encoder = nn.Sequential(SparseLinear(n_items, latent), nn.Tanh())
            return vae.Autoencoder(encoder, nn.Linear(latent, n_items))
        encoder = nn.Sequential(SparseLinear(n_items, width), nn.Tanh(), vae.NormalHead(width, latent))
        return vae.Autoencoder(encoder, nn.Sequential(nn.Linear(latent, width), nn.Tanh(), nn.Linear(width, n_items)))

    def training_module(self) -> nn.Module:
        return Annealed(self.net_)

    def loss(self, rows: Csr, trained: nn.Module, rng: torch.Generator) -> Tensor:
        assert isinstance(trained, Annealed)
        assert isinstance(trained.net, vae.Autoencoder)
        x = SparseRows.of(rows, self.device)
        noisy = x.normalised().dropout(self.dropout, rng)
        if self.form == "dae":
            return vae.multinomial_nll(trained.net(noisy), x).mean()
        code: Normal = trained.net.encoder(noisy)
        logits = trained.net.decoder(code.draw(rng))
        trained.steps += 1
        weight = self.kl_cap * (trained.steps / self.anneal_steps).clamp(max=1)
        return (vae.multinomial_nll(logits, x) + weight * vae.kl_to_standard(code).sum(1)).mean()

    def scores(self, history: Csr) -> Tensor:
        logits: Tensor = self.net_(SparseRows.of(history, self.device).normalised())
        return logits


class WithOldEncoder(nn.Module):
    """A network in training, with its encoder of the previous epoch, which is part of the prior."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        assert isinstance(net, vae.Autoencoder)
        self.net = net
        self.old = copy.deepcopy(net.encoder).requires_grad_(False)

    def renew(self) -> None:
        """Replace the old encoder by the current one."""
        self.old.load_state_dict(self.net.encoder.state_dict())


@dataclass
class RecVAE(NeuralRecommender):
    """Multinomial variational autoencoder with a composite prior that contains the previous epoch's posterior.

    The loss of a user is -log p(x | z) + gamma |x| KL(q(z | x) || composite prior), at one sampled z. An epoch trains
    the encoder for `encoder_passes` passes with dropout on the input, then the decoder for one pass without dropout.
    """

    maps: ClassVar[float] = 8.0
    max_epochs: int = training.max_epochs(100)
    patience: int = training.patience(12)
    width: int = training.width(600, "width of the encoder's layers", (200, 1200))
    layers: int = setting(5, "layers of the encoder", at_least=1, at_most=1000)
    latent: int = training.width(200, "length of a user's code", (50, 400))
    dropout: float = setting(0.5, "dropout on a history's items in encoder passes", at_least=0, search=(0.1, 0.8))
    gamma: float = setting(0.005, "weight of the KL term per item of a user", at_least=0, search=(0.001, 0.02))
    encoder_passes: int = setting(3, "encoder passes before each decoder pass", at_least=1, at_most=1000)

    def make_net(self, n_items: int) -> vae.Autoencoder:
        hidden = vae.DenseEncoder(n_items, self.width, self.layers)
        encoder = nn.Sequential(hidden, vae.NormalHead(self.width, self.latent))
        return vae.Autoencoder(encoder, nn.Linear(self.latent, n_items))

    def training_module(self) -> WithOldEncoder:
        return WithOldEncoder(self.net_)

    def phases(self, train: Csr, trained: nn.Module, rng: torch.Generator) -> Sequence[Phase]:
        assert isinstance(trained, WithOldEncoder)
        encode = Phase(lambda rows: self.loss(rows, trained, rng), trained.net.encoder)
        decode = Phase(lambda rows: self._decoder_loss(rows, trained.net, rng), trained.net.decoder, trained.renew)
        return [*[encode] * self.encoder_passes, decode]

    def loss(self, rows: Csr, trained: nn.Module, rng: torch.Generator) -> Tensor:
        """Return the loss of an encoder pass."""
        assert isinstance(trained, WithOldEncoder)
        x = SparseRows.of(rows, self.device)
        whole = x.normalised()
        code: Normal = trained.net.encoder(whole.dropout(self.dropout, rng))
        z, log_q = vae.draw_with_log_prob(code, rng)
        divergence = log_q - vae.composite_log_prob(z, trained.old(whole), _WEIGHTS)  # (rows, latent)
        weight = self.gamma * x.sums()
        return (vae.multinomial_nll(trained.net.decoder(z), x) + weight * divergence.sum(1)).mean()

    def _decoder_loss(self, rows: Csr, net: vae.Autoencoder, rng: torch.Generator) -> Tensor:
        x = SparseRows.of(rows, self.device)
        code: Normal = net.encoder(x.normalised())
        return vae.multinomial_nll(net.decoder(code.draw(rng)), x).mean()

    def scores(self, history: Csr) -> Tensor:
        logits: Tensor = self.net_(SparseRows.of(history, self.device).normalised())
        return logits
