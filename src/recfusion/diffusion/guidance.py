"""Classifier-free guidance: a combination of a conditional and an unconditional denoiser."""

from torch import Tensor

from recfusion.diffusion.process import Denoiser


def guided(conditional: Denoiser, unconditional: Denoiser, strength: float) -> Denoiser:
    """Return out = unconditional + strength (conditional - unconditional) (Ho and Salimans, 2022, w = strength - 1).

    strength 0 is the unconditional denoiser, 1 the conditional one, and more amplifies the condition. Predicted means
    of a Gaussian x^0 combine as scores do: each step follows p(x^t)^(1 - strength) p(x^t | c)^strength. Logits of
    binary entries combine to those of the same product.
    """

    def denoised(xt: Tensor, t: Tensor) -> Tensor:
        if strength == 1:
            return conditional(xt, t)
        without = unconditional(xt, t)
        return without if strength == 0 else without + strength * (conditional(xt, t) - without)

    return denoised
