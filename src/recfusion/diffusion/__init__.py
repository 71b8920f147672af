"""Diffusion of rows of real numbers or of zeros and ones; it knows nothing of recommendation.

A **schedule** holds the noise rates beta_1..beta_T. A **process** is the forward chain x^0, ..., x^T that they drive,
and the form of the way back: `Gaussian`, `Binomial`, `Categorical`, or any class with the methods of `Process`. Its
methods return distributions of independent entries (`Normal`, `Bits`, `States`). A **denoiser** is any function of x^t
and t, both tensors, whose output `Process.p_reverse` reads; the processes here take it for a prediction of x^0. The
**bound** `elbo` is an upper bound of -log p(x^0) in nats, and the **objectives** are other losses, all with one value
for each row. The samplers go forward (`forward_steps`) or back: from the prior (`ancestral`), from a given x^t
(`denoise`), at a few of the steps only (`strided`), without draws (`implicit`), or with some entries known: exactly in
the limit (`condition`), or at the price of one sample, by replacement (`inpaint`). `guided` makes one denoiser of two,
one of which knows more. `Ordered` is the noise of sequences instead of rows, with a bound, a likelihood and samples of
its own. t runs 1..T everywhere, and randomness is a `torch.Generator` (None: torch's own).
"""

from .binomial import Binomial
from .bound import Bound, elbo, learned_elbo
from .categorical import Categorical, States
from .gaussian import Gaussian
from .guidance import guided
from .implicit import implicit, implicit_steps, strided
from .objectives import bce_elbo, multinomial_removed, removed, simple
from .ordered import Ordered
from .particles import condition
from .process import Bits, Denoiser, Entries, HasJumps, HasSurvival, Normal, Process, Rng, kl
from .sampling import ReverseState, ancestral, denoise, forward_steps, inpaint, inpaint_steps, one_step, reverse_steps
from .schedule import LearnedSchedule, NoiseSchedule, Schedule, ScheduleName, Steps, from_survival, make_schedule

__all__ = ["LearnedSchedule", "NoiseSchedule", "Schedule", "ScheduleName", "Steps", "from_survival", "make_schedule"]
__all__ += ["Binomial", "Categorical", "Denoiser", "Gaussian", "HasJumps", "HasSurvival", "Process"]
__all__ += ["Bits", "Entries", "Normal", "Rng", "States", "kl"]
__all__ += ["Bound", "elbo", "learned_elbo"]
__all__ += ["bce_elbo", "multinomial_removed", "removed", "simple"]
__all__ += ["ReverseState", "forward_steps", "inpaint_steps", "reverse_steps"]
__all__ += ["ancestral", "condition", "denoise", "implicit", "implicit_steps", "inpaint", "one_step", "strided"]
__all__ += ["Ordered", "guided"]
