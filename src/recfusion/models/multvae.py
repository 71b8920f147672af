"""MultVAE and MultDAE: autoencoders with a multinomial likelihood (Liang et al., 2018)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from recfusion.core.arrays import Csr, FloatArray
from recfusion.diffusion.distributions import Normal
from recfusion.models.neural import NeuralRecommender
from recfusion.models.settings import setting
from recfusion.nets.sparse import SparseRows
from recfusion.nets.vae import Autoencoder, kl_to_standard, mult_dae, mult_vae, multinomial_nll
from recfusion.training.loop import Phase


class Annealed(nn.Module):
    """A network in training, and how many batches it has seen."""

    steps: Tensor

    def __init__(self, net: Autoencoder) -> None:
        super().__init__()
        self.net = net
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))


@dataclass
class MultVAE(NeuralRecommender):
    """Multinomial autoencoder of users' rows: history scaled to length 1, entries dropped at random in training.

    The loss of a user is -log p(x | z) + w KL(q(z | x) || N(0, I)), w rising in a straight line over the first
    batches. The form "dae" has one hidden layer, of `latent` units, and no distribution over them.
    """

    patience: int = setting(20, "epochs without a better validation ndcg@100 before training stops", at_least=1)
    form: Literal["vae", "dae"] = setting("vae", "variational or plain denoising autoencoder")
    width: int = setting(600, "width of the hidden layers of the form vae", at_least=1, search=(200, 1200), log=True)
    latent: int = setting(200, "length of a user's code", at_least=1, search=(50, 400), log=True)
    dropout: float = setting(
        0.5, "probability that an entry of a history is dropped in training", at_least=0, search=(0.1, 0.8)
    )
    kl_cap: float = setting(0.2, "final weight of the KL term", at_least=0, search=(0.05, 1.0), log=True)
    anneal_steps: int = setting(1000, "batches over which the weight of the KL term rises from 0", at_least=1)

    @property
    def idle(self) -> tuple[str, ...]:
        return () if self.form == "vae" else ("width", "kl_cap", "anneal_steps")

    def make_net(self, n_items: int) -> Autoencoder:
        return mult_vae(n_items, self.width, self.latent) if self.form == "vae" else mult_dae(n_items, self.latent)

    def trainee(self) -> Annealed:
        assert isinstance(self.net_, Autoencoder)
        return Annealed(self.net_)

    def phases(self, train: Csr, trained: nn.Module, rng: torch.Generator) -> Sequence[Phase]:
        assert isinstance(trained, Annealed)
        return [Phase(lambda rows: self._loss(SparseRows.of(rows, self.device), trained, rng))]

    @torch.no_grad()
    def score(self, history: Csr) -> FloatArray:
        logits: Tensor = self.net_(SparseRows.of(history, self.device).normalised())
        return logits.cpu().numpy()

    def _loss(self, rows: SparseRows, trained: Annealed, rng: torch.Generator) -> Tensor:
        noisy = rows.normalised().dropout(self.dropout, rng)
        net = trained.net
        if self.form == "dae":
            return multinomial_nll(net(noisy), rows).mean()
        code: Normal = net.encoder(noisy)
        logits = net.decoder(code.draw(rng))
        trained.steps += 1
        weight = self.kl_cap * (trained.steps / self.anneal_steps).clamp(max=1)
        return (multinomial_nll(logits, rows) + weight * kl_to_standard(code).sum(1)).mean()
