"""A learned schedule over its training as numbers: the noise rates epoch by epoch, and what learning them buys."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import torch

from recfusion.core.arrays import Csr, FloatArray
from recfusion.core.rng import stream
from recfusion.data.interactions import Interactions
from recfusion.data.options import SplitPlan
from recfusion.data.split import split
from recfusion.diffusion import LearnedSchedule, elbo
from recfusion.models.recfusion.recfusion import RecFusion
from recfusion.training.batches import dense

OnEpoch: TypeAlias = Callable[[str, int], None]  # process, epoch

PROCESSES = ("paper-kernel", "drift", "thinning")
STEPS = 6
_DRAWS = 4  # of every x^t, when users are judged


@dataclass(frozen=True)
class ScheduleCourse:
    """One process's rates in training, and its bound on the test users with them learned and left as they began."""

    process: str
    betas: FloatArray  # (epochs + 1, T)
    learned: FloatArray  # (epochs,), nats per user
    fixed: FloatArray  # (epochs,)


def schedule_figure(
    data: Interactions,
    *,
    plan: SplitPlan | None = None,
    epochs: int = 60,
    seed: int = 0,
    processes: Sequence[str] = PROCESSES,
    on_epoch: OnEpoch | None = None,
) -> tuple[ScheduleCourse, ...]:
    """Train each process twice on the bound, with its schedule learned and fixed, and judge every epoch.

    The rows judged are whole: history and held-out items of the test users, of whom training knows nothing.
    """
    parts = split(data, plan, seed=seed)
    users = parts.test.history + parts.test.held_out

    def course(process: str, learned: bool) -> tuple[list[list[float]], list[float]]:
        model = _model(process, learned, epochs)
        rates, bounds = [model.fixed_schedule().betas.tolist()], []
        for epoch in model.epochs(parts.train, rng=stream(seed, f"schedule {process}")):
            noise = model.net_.get_submodule("noise") if learned else None
            rates.append(noise.betas.tolist() if isinstance(noise, LearnedSchedule) else rates[0])
            bounds.append(_judged(model, users, seed))
            if on_epoch is not None:
                on_epoch(process, epoch.number)
        return rates, bounds

    found = []
    for process in processes:
        betas, learned = course(process, learned=True)
        found.append(
            ScheduleCourse(process, *(np.array(part) for part in (betas, learned, course(process, learned=False)[1])))
        )
    return tuple(found)


def _model(process: str, learned: bool, epochs: int) -> RecFusion:
    return RecFusion(
        process=process,  # type: ignore[arg-type]
        objective="elbo",
        learned_schedule=learned,
        time="input",
        T=STEPS,
        schedule="linear",
        beta_low=0.1,
        beta_high=0.5,
        lr=3e-3,
        weight_decay=0.5,
        batch_size=25,
        max_epochs=epochs,
    )


@torch.no_grad()
def _judged(model: RecFusion, users: Csr, seed: int) -> float:
    """Return the bound in nats per user, with the same noise at every epoch."""
    rng = torch.Generator().manual_seed(seed)
    process = model.make_process(model.means)
    x0 = dense(users)
    return float(torch.stack([elbo(process, model.net_, x0, rng).total.mean() for _ in range(_DRAWS)]).mean())
