"""The RecFusion family: one implementation; what tells the variants apart is in their settings (see the registry)."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
from torch import Tensor, nn

from recfusion.core.arrays import Csr, FloatArray
from recfusion.core.rng import RngLike, make_rng
from recfusion.data.split import Fold
from recfusion.diffusion.binomial import Binomial
from recfusion.diffusion.bound import elbo
from recfusion.diffusion.gaussian import Gaussian
from recfusion.diffusion.objectives import bce_elbo, removed, simple
from recfusion.diffusion.published import published_binomial_loss, published_gaussian_loss
from recfusion.diffusion.schedule import ScheduleName, make_schedule
from recfusion.evaluation.evaluate import evaluate
from recfusion.models.base import Recommender, learned, setting
from recfusion.nets.mlp import MLP
from recfusion.nets.unet import UNet
from recfusion.training.batches import dense, seeded, torch_rng
from recfusion.training.checkpoint import TrainState
from recfusion.training.epoch import Checkpoint, Epoch
from recfusion.training.fit import fit_epochs

Objective = Literal["simple", "elbo", "bce-elbo", "removed", "published"]
_VALIDATION_METRIC = "ndcg@100"


@dataclass
class RecFusion(Recommender):
    """Diffusion on a user's row of the interaction matrix; a history is taken for x^1 and one reverse step ranks.

    The net sees users one by one (`mlp`, `unet1d`), or as rows of a picture (`unet2d`) of `picture_users` users, of
    all users with 0. In a picture the asked user stands among fixed training users, so that scores never depend on
    who else is asked for.
    """

    title: ClassVar[str] = "diffusion with a small network"
    process: Literal["gaussian", "paper-kernel", "bit-flips", "thinning"] = setting("gaussian", "forward process")
    net: Literal["mlp", "unet1d", "unet2d"] = setting("mlp", "network")
    objective: Objective = setting("simple", "what is minimised")
    variance: Literal["posterior", "beta", "predicted"] = setting("posterior", "variance of a Gaussian reverse step")
    time: Literal["none", "input", "output"] = setting("none", "time embedding of the mlp: f(x), f(x + Z), f(x) + Z")
    T: int = setting(3, "diffusion steps", at_least=1, search=(1, 20))
    schedule: ScheduleName = setting("quadratic", "course of the noise rates")
    beta_low: float = setting(1e-4, "smallest noise rate", at_least=0)
    beta_high: float = setting(0.1, "largest noise rate", at_least=0, search=(0.01, 0.9), log=True)
    width: int = setting(200, "width of the mlp's hidden layers", at_least=1, search=(100, 800), log=True)
    depth: int = setting(1, "hidden layers of the mlp", at_least=0, search=(0, 4))
    shared: bool = setting(True, "whether all hidden layers are one")
    channels: int = setting(8, "channels of the U-Net's first level", at_least=1)
    levels: int = setting(5, "levels of the U-Net", at_least=1)
    picture_users: int = setting(16, "rows of a picture for unet2d; 0: all users as one example", at_least=0)
    dropout: float = setting(0.0, "share of the history hidden from the net in training", at_least=0, search=(0, 0.8))
    lr: float = setting(1e-3, "learning rate of Adam", at_least=0, search=(1e-4, 1e-2), log=True)
    weight_decay: float = setting(0.0, "weight decay of AdamW", at_least=0, search=(1e-6, 1e-1), log=True)
    batch_size: int = setting(200, "users in a batch", at_least=1, search=(50, 1000), log=True)
    max_epochs: int = setting(200, "epochs at the most", at_least=1)
    patience: int = setting(10, "epochs without a better validation ndcg@100 before training stops", at_least=1)
    device: str = setting("cpu", "cpu or cuda")
    net_: Any = learned()
    companions_: Any = learned()  # (picture_users - 1, items): the fixed users of a picture

    def fit(self, train: Csr, valid: Fold | None = None, *, rng: RngLike = None) -> Self:
        for _ in self.epochs(train, valid, rng=rng):
            pass
        return self

    def epochs(
        self, train: Csr, valid: Fold | None = None, *, rng: RngLike = None, checkpoint: Checkpoint | None = None
    ) -> Iterator[Epoch]:
        generator = torch_rng(make_rng(rng))
        n_items = train.shape[1]
        self.net_ = seeded(lambda: self._make_net(n_items), generator).to(self.device)
        optimizer = torch.optim.AdamW(self.net_.parameters(), lr=self.lr, weight_decay=self.weight_decay)
        loss = self._loss(train, generator)
        state = TrainState(self.net_, optimizer, generator, best=dict(self.net_.state_dict()))

        def validate() -> float:
            assert valid is not None
            return evaluate(self, valid, train, (_VALIDATION_METRIC,), threads=1).mean()[_VALIDATION_METRIC]

        yield from fit_epochs(
            state,
            loss,
            train,
            None if valid is None else validate,
            batch_size=self.batch_size,
            max_epochs=self.max_epochs,
            patience=self.patience,
            checkpoint=checkpoint,
        )

    @torch.no_grad()
    def score(self, history: Csr) -> FloatArray:
        x1 = dense(history, torch.device(self.device))
        out = self.net_(x1, torch.ones(len(x1), dtype=torch.int64, device=x1.device))
        scores: FloatArray = out[:, : history.shape[1]].cpu().numpy()
        return scores

    def _make_net(self, n_items: int) -> nn.Module:
        if self.net == "mlp":
            return MLP(
                n_items,
                width=self.width,
                depth=self.depth,
                shared=self.shared,
                time=self.time,
                head="tanh" if self.process == "gaussian" else "linear",
                n_heads=2 if self.variance == "predicted" else 1,
            )
        return UNet(1 if self.net == "unet1d" else 2, channels=self.channels, levels=self.levels)

    def _loss(self, train: Csr, rng: torch.Generator) -> Any:
        schedule = make_schedule(self.schedule, self.T, self.beta_low, self.beta_high)
        means = (np.asarray(train.sum(0)) + 0.5) / (train.shape[0] + 1)
        if self.process == "gaussian":
            process: Any = Gaussian(schedule, self.variance)
        else:
            make = {
                "paper-kernel": Binomial.paper_kernel,
                "bit-flips": Binomial.bit_flips,
                "thinning": Binomial.thinning,
            }
            predicts: Any = "previous" if self.objective == "bce-elbo" else "x0"
            process = make[self.process](schedule, torch.from_numpy(means), predicts=predicts)

        def denoiser(x: Tensor, t: Tensor) -> Tensor:
            if self.dropout:
                x = torch.nn.functional.dropout(x, self.dropout)
            return self.net_(x, t)

        def loss(rows: Csr) -> Tensor:
            x0 = dense(rows, torch.device(self.device))
            if self.objective == "simple":
                return simple(process, denoiser, x0, rng).mean()
            if self.objective == "removed":
                return removed(process, denoiser, x0, rng).mean()
            if self.objective == "published":
                if self.process == "gaussian":
                    return published_gaussian_loss(process, denoiser, x0, rng).mean()
                return published_binomial_loss(process, denoiser, x0, rng, schedule=schedule).mean()
            if self.objective == "bce-elbo":
                return bce_elbo(process, denoiser, x0, rng, 1).total.mean()
            return elbo(process, denoiser, x0, rng, 1).total.mean()

        return loss
