"""Input masking: training hides a share of x^t from the denoiser. Load it as `studies/masked_input.py:MaskedInput`.

Under thinning this is nothing new: a one of x^0 reaches the network with probability a_t (1 - mask), so it is thinning
with other rates, as the test enumerates. Under Gaussian noise it is dropout of the input.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from recfusion.core.arrays import Csr
from recfusion.core.errors import InputError
from recfusion.diffusion import Denoiser
from recfusion.models.recfusion.recfusion import RecFusion
from recfusion.models.settings import setting


@dataclass
class MaskedInput(RecFusion):
    """RecFusion that sees x^t with a random share of its entries set to 0 in training, and whole histories after it."""

    mask: float = setting(0.5, "share of the entries of x^t that training hides", at_least=0, search=(0.0, 0.9))

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.mask >= 1:
            raise InputError(f"Expected mask to be below 1, got {self.mask:g}: nothing would be left.", "mask")

    def denoiser(self, rows: Csr, rng: torch.Generator) -> Denoiser:
        """Return the network behind a fresh mask; shown entries keep their size, as in a history."""

        def masked(xt: Tensor, t: Tensor) -> Tensor:
            shown = torch.rand(xt.shape, generator=rng).to(xt.device) >= self.mask
            out: Tensor = self.net_(xt * shown, t)
            return out

        return masked
