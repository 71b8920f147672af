"""RecFusion with U-Nets over items that are ordered by similarity, in a row or on a map."""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array
from torch import Tensor, nn

import recfusion.diffusion as diffusion
from recfusion.core.arrays import Csr, FloatArray, IntArray
from recfusion.evaluation.topk import batch_rows
from recfusion.models.base import Shape
from recfusion.models.baselines.user_knn import NearestUsers, input_weights
from recfusion.models.neural import training_settings as training
from recfusion.models.neural.network import NeuralRecommender
from recfusion.models.recfusion.item_layout import item_features, place_items
from recfusion.models.recfusion.recfusion import Net, Objective, RecFusion
from recfusion.models.settings import learned, setting
from recfusion.nets.unet import ItemUNet
from recfusion.training.batches import dense
from recfusion.training.epoch import warmup_cosine

Layout = Literal["none", "row", "map", "random-row", "random-map"]
_WARM_UP = 2  # epochs of linear warm-up
_PATCH_MAPS = 60  # feature maps per channel of the first level that are held at once (measured)


@dataclass
class RecFusionUNet(RecFusion):
    """RecFusion with a U-Net over items with positions; with layout "none" it is the published model.

    The layouts `row` and `map` put items with the same users next to each other, in a row or on a square; the random
    layouts are controls. Items have input weights count^-input_power, rows are scaled to a mean square of 1, and every
    item's bias starts at its log popularity. With `neighbours`, a second input plane holds the average of the training
    users nearest to x^t, without the user's own row; x^0 is never used to find them. Under thinning, the share of ones
    that survive decreases linearly from `high` at t = 1 to `low` at t = T; for another process this is alpha_bar_t.
    """

    process: diffusion.ProcessName = setting("thinning", "forward process")
    net: Net = setting("unet2d", "network")
    objective: Objective = setting("ranking", "training loss; ranking is `removed` without its weights")
    T: int = setting(16, "diffusion steps", at_least=1, at_most=10_000, search=(1, 20))
    channels: int = setting(64, "channels of the U-Net's first level", at_least=1, at_most=1000)
    levels: int = setting(2, "levels of the U-Net", at_least=1, at_most=16)
    lr: float = training.lr(2e-3)
    weight_decay: float = training.weight_decay(2.0)
    batch_size: int = training.batch_size(50)
    max_epochs: int = training.max_epochs(30)
    layout: Layout = setting("map", "order of the items; none: the order of the data, as published")
    pixels: int = setting(8, "side of the map in patches of items; a row has its square", at_least=1, at_most=1000)
    neighbours: int = setting(0, "nearest training users in the second input plane; 0: no such plane", at_least=0)
    low: float = setting(0.4, "share of ones (drift: of entries) that survives to step T, with a layout", at_least=0)
    high: float = setting(0.9, "share of ones that survives step 1, with a layout", at_least=0)
    input_power: float = setting(0.25, "with a layout, items have the input weight count^-input_power")
    slots_: IntArray = learned()  # (items,): each item's position, counted row by row; empty without a layout
    item_weights_: FloatArray = learned()  # (items,); empty without a layout

    def setting_conflicts(self) -> Iterator[str]:
        yield from super().setting_conflicts()
        if self.layout == "none":
            return
        if self.net == "mlp" or self.process == "gaussian" or self.objective in ("published", "previous-step"):
            yield (
                "A layout of items needs a U-Net, a process other than gaussian and an objective other than "
                f"'published' and 'previous-step', got net '{self.net}', process '{self.process}' and objective "
                f"'{self.objective}': change these, or set layout to none."
            )
        if self.pixels < 1 or not 0 < self.low < self.high < 1:
            yield (
                f"Expected at least 1 pixel and surviving shares 0 < low < high < 1, got {self.pixels}, "
                f"{self.low:g} and {self.high:g}."
            )

    @property
    def keeps_histories(self) -> bool:
        return super().keeps_histories if self.layout == "none" else self.neighbours > 0

    def prepare(self, train: Csr) -> None:
        self.slots_, self.item_weights_ = np.zeros(0, np.int64), np.zeros(0, np.float32)
        if self.layout == "none":
            super().prepare(train)
            return
        self.learn_means(train)
        self.item_weights_ = input_weights(train, self.input_power)
        sides, _ = self._sides(train.shape[1])
        if self.layout.startswith("random"):
            self.slots_ = np.random.default_rng(0).permutation(math.prod(sides))[: train.shape[1]]
        else:
            self.slots_ = place_items(item_features(train), *sides if len(sides) == 2 else (1, *sides))
        self.companions_ = train if self.neighbours else train[:0]
        self._nearest = self._make_nearest()

    def _make_nearest(self) -> NearestUsers | None:
        return NearestUsers(self.companions_, self.item_weights_) if self.neighbours else None

    def _sides(self, n_items: int) -> tuple[tuple[int, ...], int]:
        """Return the sides of the row or square that holds the items, and the side of a patch."""
        if self.layout.endswith("row"):
            patch = max(1, -(-n_items // self.pixels**2))
            return (self.pixels**2 * patch,), patch
        patch = max(1, -(-math.ceil(math.sqrt(n_items)) // self.pixels))
        return (self.pixels * patch,) * 2, patch

    def batch_bytes(self, shape: Shape) -> int:
        """Return the bytes of the feature maps of a batch in training or scoring, and of its rows."""
        if self.layout == "none":
            return super().batch_bytes(shape)
        trained = self.batch_rows(shape.users)
        at_once = max(trained, min(shape.users, batch_rows(shape.items)))
        return int(4 * (at_once * self.pixels**2 * self.channels * _PATCH_MAPS + trained * shape.items * self.maps))

    def make_net(self, n_items: int) -> nn.Module:
        if self.layout == "none":
            return super().make_net(n_items)
        planes = 2 if self.neighbours else 1
        slots = torch.from_numpy(getattr(self, "slots_", np.arange(n_items)))  # only its size matters before a fit
        net = ItemUNet(slots, *self._sides(n_items), channels=self.channels, levels=self.levels, planes=planes)
        return self.with_schedule(net)

    def training_module(self) -> nn.Module:
        if isinstance(self.net_, ItemUNet):
            with torch.no_grad():
                self.net_.bias.copy_(self.means.log() - self.means.log().mean())
        return self.net_

    def undecayed_parameters(self) -> Iterable[nn.Parameter]:
        yield from super().undecayed_parameters()
        if isinstance(self.net_, ItemUNet):  # popularity should not decay to 0
            yield self.net_.bias

    def make_process(self, means: Tensor) -> diffusion.Process:
        if self.layout == "none" or self.learned_schedule:
            return super().make_process(means)
        survival = torch.linspace(self.high, self.low, self.T, dtype=torch.float64)
        if self.process != "thinning":
            return self.with_rates(diffusion.from_survival(survival), means)
        return diffusion.Binomial.thinning_from_survival(survival, means, predicts=self.predicts)

    def _examples(self, rows: Csr) -> Tensor:
        return super()._examples(rows) if self.layout == "none" else dense(rows, self.device)

    def batch_rows(self, n_users: int) -> int:
        return super().batch_rows(n_users) if self.layout == "none" else NeuralRecommender.batch_rows(self, n_users)

    def learning_rate(self, epoch: int) -> float:
        return self.lr if self.layout == "none" else self.lr * warmup_cosine(epoch, self.max_epochs, _WARM_UP)

    def denoiser(self, rows: Csr, rng: torch.Generator) -> diffusion.Denoiser:
        """Return the network with its input planes; `rows`, the x^0 of the batch, are excluded as neighbours."""
        if self.layout == "none":
            return super().denoiser(rows, rng)

        def denoised(xt: Tensor, t: Tensor) -> Tensor:
            out: Tensor = self.net_(self._planes(xt, rows), t)
            return out

        return denoised

    def scores(self, history: Csr) -> Tensor:
        if self.layout == "none" or not history.shape[0]:
            return super().scores(history)
        x1 = dense(history, self.device)
        out: Tensor = self.net_(self._planes(x1, None), torch.ones(len(x1), dtype=torch.int64, device=x1.device))
        return out

    def _planes(self, xt: Tensor, without: Csr | None) -> Tensor:
        """Return the network's input planes, weighted and scaled, (batch, planes, items)."""
        planes = [xt]
        if self._nearest is not None:
            history = csr_array(xt.cpu().numpy())
            found = self._nearest.average(history, self.neighbours, without)
            planes.append(torch.from_numpy(found).to(xt))
        weighted = torch.stack(planes, 1) * torch.from_numpy(self.item_weights_).to(xt)
        return weighted / weighted.square().mean(2, keepdim=True).sqrt().clamp(min=1e-12)

    def load_state(self, state: Mapping[str, NDArray[Any]], chosen: Mapping[str, Any], n_items: int) -> None:
        slots = state["slots_"]
        wanted = 0 if self.layout == "none" else n_items
        n_slots = math.prod(self._sides(n_items)[0])
        if (
            slots.shape != (wanted,)
            or len(np.unique(slots)) != wanted
            or (wanted and not 0 <= slots.min() <= slots.max() < n_slots)
        ):
            raise ValueError(f"slots_ are not {wanted} different positions below {n_slots}")
        super().load_state(state, chosen, n_items)
        self._nearest = self._make_nearest()
