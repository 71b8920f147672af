"""RecVAE: a variational autoencoder with a composite prior and alternating training (Shenbin et al., 2020)."""

import copy
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from recfusion.core.arrays import Csr, FloatArray
from recfusion.diffusion.distributions import Normal
from recfusion.models.neural import NeuralRecommender
from recfusion.models.settings import setting
from recfusion.nets.sparse import SparseRows
from recfusion.nets.vae import Autoencoder, composite_log_prob, draw_with_log_prob, multinomial_nll, rec_vae
from recfusion.training.loop import Phase

_WEIGHTS = (0.15, 0.75, 0.10)  # of the standard normal, the old posterior and the wide normal


class WithOldEncoder(nn.Module):
    """A network in training, and its encoder as it was one epoch ago, which is part of the prior."""

    def __init__(self, net: Autoencoder) -> None:
        super().__init__()
        self.net = net
        self.old = copy.deepcopy(net.encoder).requires_grad_(False)

    def renew(self) -> None:
        """Make the present encoder the old one."""
        self.old.load_state_dict(self.net.encoder.state_dict())


@dataclass
class RecVAE(NeuralRecommender):
    """Multinomial variational autoencoder whose prior remembers the last epoch's posterior.

    The loss of a user is -log p(x | z) + gamma |x| KL(q(z | x) || composite prior), at one sampled z. An epoch passes
    over the users `encoder_passes` times for the encoder, with entries dropped at random, and then once for the
    decoder, without dropping any.
    """

    max_epochs: int = setting(100, "epochs at the most", at_least=1)
    patience: int = setting(12, "epochs without a better validation ndcg@100 before training stops", at_least=1)
    width: int = setting(600, "width of the encoder's layers", at_least=1, search=(200, 1200), log=True)
    layers: int = setting(5, "layers of the encoder", at_least=1)
    latent: int = setting(200, "length of a user's code", at_least=1, search=(50, 400), log=True)
    dropout: float = setting(
        0.5, "probability that an entry of a history is dropped in encoder passes", at_least=0, search=(0.1, 0.8)
    )
    gamma: float = setting(0.005, "weight of the KL term for each item of a user", at_least=0, search=(0.001, 0.02))
    encoder_passes: int = setting(3, "passes for the encoder before one for the decoder", at_least=1)

    def make_net(self, n_items: int) -> Autoencoder:
        return rec_vae(n_items, self.width, self.latent, self.layers)

    def trainee(self) -> WithOldEncoder:
        assert isinstance(self.net_, Autoencoder)
        return WithOldEncoder(self.net_)

    def phases(self, train: Csr, trained: nn.Module, rng: torch.Generator) -> Sequence[Phase]:
        assert isinstance(trained, WithOldEncoder)
        net = trained.net
        encode = Phase(lambda rows: self._encoder_loss(SparseRows.of(rows, self.device), trained, rng), net.encoder)
        decode = Phase(
            lambda rows: self._decoder_loss(SparseRows.of(rows, self.device), net, rng), net.decoder, trained.renew
        )
        return [*[encode] * self.encoder_passes, decode]

    @torch.no_grad()
    def score(self, history: Csr) -> FloatArray:
        logits: Tensor = self.net_(SparseRows.of(history, self.device).normalised())
        return logits.cpu().numpy()

    def _encoder_loss(self, rows: SparseRows, trained: WithOldEncoder, rng: torch.Generator) -> Tensor:
        whole = rows.normalised()
        code: Normal = trained.net.encoder(whole.dropout(self.dropout, rng))
        z, log_q = draw_with_log_prob(code, rng)
        divergence = log_q - composite_log_prob(z, trained.old(whole), _WEIGHTS)  # (rows, latent)
        weight = self.gamma * rows.sums()
        return (multinomial_nll(trained.net.decoder(z), rows) + weight * divergence.sum(1)).mean()

    def _decoder_loss(self, rows: SparseRows, net: Autoencoder, rng: torch.Generator) -> Tensor:
        code: Normal = net.encoder(rows.normalised())
        return multinomial_nll(net.decoder(code.draw(rng)), rows).mean()
