"""Networks that tell what was disliked from what nobody knows of: a known zero weighs more than a missing one."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from recfusion.data.interactions import Signal
from recfusion.models.neural.vae import MultVAE
from recfusion.models.recfusion.recfusion import RecFusion
from recfusion.models.settings import setting

_GRADES: frozenset[Signal] = frozenset({"grades"})
_MEANING = "what a known dislike costs beside the other zeros"


@dataclass
class MultVAEDislikes(MultVAE):
    """MultVAE with a further term in a user's loss: dislike * sum over known dislikes of -log(1 - p_i)."""

    reads: ClassVar[frozenset[Signal]] = _GRADES
    dislike: float = setting(1.0, _MEANING, at_least=0, search=(0.1, 10.0), log=True)

    @property
    def dislike_weight(self) -> float:
        return self.dislike


@dataclass
class RecFusionDislikes(RecFusion):
    """RecFusion in whose loss a known dislike weighs 1 + dislike, and any other zero 1: missing against negative."""

    reads: ClassVar[frozenset[Signal]] = _GRADES
    dislike: float = setting(1.0, _MEANING, at_least=0, search=(0.1, 10.0), log=True)

    @property
    def dislike_weight(self) -> float:
        return self.dislike

    def cost_of_zero(self, outputs: Tensor) -> Tensor:
        """The process's own error of x^0 where that is 0, from one reverse step, as scores are. (users, items)"""
        return self.make_process(self.means).x0_error(outputs, torch.zeros_like(outputs))
