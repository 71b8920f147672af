"""Diffusion of rows of real numbers, zeros and ones, or states; independent of recommendation.

A **schedule** holds the noise rates beta_1..beta_T. A **process** defines the forward chain x^0, ..., x^T with these
rates and the form of the reverse step. There is one file per process:

    gaussian.py      Gaussian      real numbers
    binomial.py      Binomial      zeros and ones: paper kernel, bit flips, drift, thinning
    categorical.py   Categorical   K states

To add a process, write a class with the methods of `Process` (process.py) in a new file and export it here; RecFusion
models can use it by name after one more line in `make_process`. Methods of a process return distributions of
independent entries (`Normal`, `Bits`, `States`). A **denoiser** is any function of x^t and t, both tensors;
`Process.p_reverse` reads its output, which the processes here take as a prediction of x^0. The **bound** `elbo` is an
upper bound of -log p(x^0) in nats; the **objectives** are other losses. Both have one value per row. Samplers run
forward (`forward_steps`) or in reverse: from the prior (`ancestral`), from a given x^t (`denoise`), with fewer steps
(`strided`), deterministically (`implicit`), or with some entries known (`inpaint`). `guided` combines a conditional and
an unconditional denoiser. t runs 1..T everywhere, and randomness is a `torch.Generator` (None: torch's global one).
"""

from typing import Literal, TypeAlias, get_args

from recfusion.core.errors import choices

from .binomial import Binomial, Mean, Prediction
from .bound import Bound, elbo, learned_elbo
from .categorical import Categorical, States
from .gaussian import Gaussian, Variance
from .implicit import implicit, implicit_steps, strided
from .objectives import bce_elbo, multinomial_removed, removed, simple
from .process import Bits, Denoiser, Entries, HasJumps, HasSurvival, Normal, Process, Rng, guided, kl
from .sampling import ReverseState, ancestral, denoise, forward_steps, inpaint, inpaint_steps, one_step, reverse_steps
from .schedule import LearnedSchedule, NoiseSchedule, Schedule, ScheduleName, Steps, from_survival, make_schedule

__all__ = ["LearnedSchedule", "NoiseSchedule", "Schedule", "ScheduleName", "Steps", "from_survival", "make_schedule"]
__all__ += ["Binomial", "Categorical", "Denoiser", "Gaussian", "HasJumps", "HasSurvival", "Process"]
__all__ += ["ProcessName", "make_process"]
__all__ += ["Bits", "Entries", "Normal", "Rng", "States", "kl"]
__all__ += ["Bound", "elbo", "learned_elbo"]
__all__ += ["bce_elbo", "multinomial_removed", "removed", "simple"]
__all__ += ["ReverseState", "forward_steps", "inpaint_steps", "reverse_steps"]
__all__ += ["ancestral", "denoise", "implicit", "inpaint", "one_step"]
__all__ += ["guided", "implicit_steps", "strided"]

ProcessName: TypeAlias = Literal["gaussian", "paper-kernel", "bit-flips", "drift", "thinning"]


def make_process(
    name: ProcessName,
    schedule: NoiseSchedule,
    mean: Mean = 0.5,
    *,
    variance: Variance = "posterior",
    predicts: Prediction = "x0",
) -> Process:
    """Return a process of rows by name; `variance` is for gaussian, `mean` and `predicts` for the binary ones."""
    if name == "gaussian":
        return Gaussian(schedule, variance)
    chains = {
        "paper-kernel": Binomial.paper_kernel,
        "bit-flips": Binomial.bit_flips,
        "drift": Binomial.drift,
        "thinning": Binomial.thinning,
    }
    if name not in chains:
        raise choices("process", name, get_args(ProcessName))
    return chains[name](schedule, mean, predicts=predicts)
