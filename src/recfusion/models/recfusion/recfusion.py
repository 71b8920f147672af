"""The RecFusion family: one class; the variants differ in their settings (see models.toml)."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor, nn

import recfusion.diffusion as diffusion
from recfusion.core.arrays import Csr
from recfusion.core.errors import InputError
from recfusion.core.memory import require_memory
from recfusion.diffusion.published import previous_step_loss, published_loss
from recfusion.models.base import Shape
from recfusion.models.neural import training_settings as training
from recfusion.models.neural.network import NeuralRecommender
from recfusion.models.settings import learned, setting
from recfusion.nets.mlp import MLP, TimeWay
from recfusion.nets.unet import UNet
from recfusion.training.batches import dense

Net = Literal["mlp", "unet1d", "unet2d"]
Objective = Literal["simple", "elbo", "bce-elbo", "removed", "ranking", "published", "previous-step"]
_MAPS = 24  # feature maps that a U-Net keeps for its backward pass, in maps of the first level (roughly)


@dataclass
class RecFusion(NeuralRecommender):
    """Diffusion of a user's row of the interaction matrix; scoring treats a history as x^1 and takes one reverse step.

    The paper's three formulations: one user per example (`mlp`, `unet1d`); a batch of users as the rows of a picture
    (`unet2d`, `picture_users` rows); the full matrix as one example (`unet2d`, `picture_users` 0). To score a user,
    the picture contains that user in the middle of fixed training users, so scores do not depend on other requests.
    """

    maps: ClassVar[float] = 20.0
    process: diffusion.ProcessName = setting("gaussian", "forward process")
    net: Net = setting("mlp", "network")
    objective: Objective = setting(
        "simple", "training loss; ranking: `removed` without its weights; published: that of the paper's code"
    )
    variance: Literal["posterior", "beta", "predicted"] = setting("posterior", "variance of a Gaussian reverse step")
    time: TimeWay = setting("none", "time embedding of the mlp: f(x), f(x + Z), f(x) + Z; projected: f(x + W Z)")
    T: int = setting(3, "diffusion steps", at_least=1, at_most=10_000, search=(1, 20))
    schedule: diffusion.ScheduleName = setting("quadratic", "schedule of the noise rates", search="all")
    decreasing: bool = setting(False, "whether the noise rates decrease with t")
    learned_schedule: bool = setting(False, "whether to train the noise rates, starting at the schedule (elbo only)")
    beta_low: float = setting(1e-4, "smallest noise rate", at_least=0)
    beta_high: float = setting(0.1, "largest noise rate", at_least=0, search=(0.01, 1.0), log=True)
    width: int = training.width(200, "width of the mlp's hidden layers", (100, 800))
    depth: int = setting(1, "hidden layers of the mlp", at_least=0, at_most=1000, search=(0, 4))
    shared: bool = setting(True, "whether all hidden layers share their weights")
    channels: int = setting(4, "channels of the U-Net's first level", at_least=1, at_most=1000)
    levels: int = setting(5, "levels of the U-Net", at_least=1, at_most=16)
    picture_users: int = setting(16, "users in a picture for unet2d; 0: all users", at_least=0, at_most=100_000)
    min_improvement: float = setting(0.0, "improvements of the validation ndcg@100 up to this do not count", at_least=0)
    companions_: Csr = learned()  # (rows of a picture - 1, items): the fixed users of a picture

    def __post_init__(self) -> None:
        super().__post_init__()
        if found := list(self.setting_conflicts()):
            raise InputError(" ".join(found))

    @property
    def least_improvement(self) -> float:
        return self.min_improvement

    def setting_conflicts(self) -> Iterator[str]:
        """Yield a sentence for each conflict between settings: what is needed, and what to change."""
        gaussian = self.process == "gaussian"
        if self.objective in ("bce-elbo", "removed", "ranking") and gaussian:
            yield (
                f"Objective '{self.objective}' is for binary noise: choose a process other than gaussian, or objective "
                "simple or elbo."
            )
        elif self.objective in ("removed", "ranking") and self.process != "thinning":
            yield (
                f"Objective '{self.objective}' needs process 'thinning', since only there is every missing item "
                f"removed: with process '{self.process}' set objective to simple, elbo or bce-elbo."
            )
        if self.objective == "previous-step" and not gaussian:
            yield "Objective 'previous-step' needs process 'gaussian': choose it, or another objective."
        if self.learned_schedule and self.objective != "elbo":
            yield "A learned schedule needs objective 'elbo': the other objectives would learn to add no noise."
        if self.variance == "predicted" and not (gaussian and self.net == "mlp"):
            yield (
                "A predicted variance needs process 'gaussian' and net 'mlp', which have a head for it; binary noise "
                "has no variance to predict: set variance to posterior."
            )

    @property
    def keeps_histories(self) -> bool:
        return self.net == "unet2d"  # the companions of a picture

    @property
    def idle(self) -> tuple[str, ...]:
        return () if self.net == "mlp" else ("width", "depth")

    def prepare(self, train: Csr) -> None:
        n_users, n_items = train.shape
        rows = self.batch_rows(n_users) if self._whole_matrix else self.batch_size
        if self.net != "mlp":
            require_memory(
                self.batch_bytes(Shape.of(train)),
                f"A U-Net on {rows:,} users and {n_items:,} items at once",
                "lower batch_size or channels, or set picture_users above 0 to take users in batches.",
            )
        self.learn_means(train)
        # The other users of a picture are spread evenly over the training users.
        others = min(self.picture_users or n_users, n_users) - 1 if self.net == "unet2d" else 0
        self.companions_ = train[np.linspace(0, n_users - 1, others).astype(np.int64)]

    def learn_means(self, train: Csr) -> None:
        """Learn the share of users with each item, smoothed to be above 0 and below 1."""
        self.means = torch.from_numpy((np.asarray(train.sum(0)) + 0.5) / (train.shape[0] + 1))

    def batch_bytes(self, shape: Shape) -> int:
        numbers = self.maps if self.net == "mlp" else self.channels * _MAPS
        return int(4 * numbers * self.batch_rows(shape.users) * shape.items)

    def batch_rows(self, n_users: int) -> int:
        return n_users if self._whole_matrix else super().batch_rows(n_users)

    def scores(self, history: Csr) -> Tensor:
        x1 = dense(history, self.device)
        if not len(x1):
            return x1
        if self.net != "unet2d":
            return self._predict(x1)[:, : history.shape[1]]
        others = dense(self.companions_, self.device)
        middle = len(others) // 2
        pictures = (torch.cat([others[:middle], row[None], others[middle:]]) for row in x1)
        return torch.cat([self._predict(picture[None])[0, middle][None] for picture in pictures])

    @property
    def _whole_matrix(self) -> bool:
        return self.net == "unet2d" and self.picture_users == 0

    def make_net(self, n_items: int) -> nn.Module:
        if self.net == "mlp":
            net: nn.Module = MLP(
                n_items,
                n_conditions=self.n_conditions,
                width=self.width,
                depth=self.depth,
                shared=self.shared,
                time=self.time,
                head="tanh" if self.process == "gaussian" else "linear",
                n_heads=2 if self.variance == "predicted" else 1,
            )
        else:
            net = UNet(1 if self.net == "unet1d" else 2, channels=self.channels, levels=self.levels)
        return self.with_schedule(net)

    def with_schedule(self, net: nn.Module) -> nn.Module:
        """Add a learned schedule to the network, so that it is trained and saved with it."""
        if self.learned_schedule:
            net.noise = diffusion.LearnedSchedule(self.fixed_schedule())
        return net

    @property
    def n_conditions(self) -> int:
        """The number of condition inputs of the mlp: none."""
        return 0

    def denoiser(self, rows: Csr, rng: torch.Generator) -> diffusion.Denoiser:
        """Return the denoiser for the x^t of these users in training: the network."""
        return self.net_

    def undecayed_parameters(self) -> Iterable[nn.Parameter]:
        # Decay would pull every rate to .5.
        return self.net_.get_submodule("noise").parameters() if self.learned_schedule else ()

    def fixed_schedule(self) -> diffusion.Schedule:
        return diffusion.make_schedule(self.schedule, self.T, self.beta_low, self.beta_high, self.decreasing)

    def make_process(self, means: Tensor) -> diffusion.Process:
        """Return the forward process for smoothed item means (items,); called for each training step.

        A subclass with another process overrides only this. Its `process` setting then only says whether the noise is
        real ("gaussian": the network ends in tanh) or binary (the others: logits). The output at t = 1 ranks.
        """
        return self.with_rates(self.net_.noise if self.learned_schedule else self.fixed_schedule(), means)

    def with_rates(self, schedule: Any, means: Tensor) -> diffusion.Process:
        """Return the chosen process with the noise rates of `schedule`."""
        return diffusion.make_process(self.process, schedule, means, variance=self.variance, predicts=self.predicts)

    @property
    def predicts(self) -> Literal["x0", "previous"]:
        """What the output of the network means for binary noise."""
        return "previous" if self.objective == "bce-elbo" else "x0"

    def _examples(self, rows: Csr) -> Tensor:
        """Return a batch of users as examples: (users, items), or pictures (pictures, rows, items)."""
        if self.net != "unet2d":
            return dense(rows, self.device)
        height = self.picture_users or rows.shape[0]
        n_pictures = -(-rows.shape[0] // height)
        filled = np.arange(n_pictures * height) % rows.shape[0]  # the last picture is filled with the first users
        return dense(rows[filled], self.device).reshape(n_pictures, height, -1)

    def loss(self, rows: Csr, trained: nn.Module, rng: torch.Generator) -> Tensor:
        """Return the mean objective over the examples; objectives that draw t call the network once."""
        process, net, x0 = self.make_process(self.means), self.denoiser(rows, rng), self._examples(rows)
        if self.objective == "simple":
            return diffusion.simple(process, net, x0, rng).mean()
        if self.objective == "elbo":
            estimate = diffusion.learned_elbo if self.learned_schedule else diffusion.elbo
            return estimate(process, net, x0, rng, 1).total.mean()
        if self.objective == "bce-elbo":
            return diffusion.bce_elbo(process, net, x0, rng, 1).total.mean()
        if self.objective in ("removed", "ranking"):
            return diffusion.removed(process, net, x0, rng, weighted=self.objective == "removed").mean()
        schedule = self.fixed_schedule()
        if self.objective == "previous-step":
            return previous_step_loss(process, net, x0, rng, schedule=schedule).mean()
        shrinks, binary = self.net != "mlp" or self.time != "none", self.process != "gaussian"
        return published_loss(process, net, x0, rng, schedule=schedule, shrinks=shrinks, binary=binary).mean()

    def _predict(self, x1: Tensor) -> Tensor:
        """Return the predicted x^0 from x^1, or its logits for binary noise, which give the same ranking."""
        out: Tensor = self.net_(x1, torch.ones(len(x1), dtype=torch.int64, device=x1.device))
        return out
