"""The figure of learned schedules: noise rates by epoch, and the bound with learned and with fixed rates.

python studies/schedule_figure.py --data ml-100k --out docs/images/schedule.png
"""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib import colormaps
from matplotlib.figure import Figure

from recfusion.core.arrays import Csr, FloatArray
from recfusion.core.rng import stream
from recfusion.data.interactions import Interactions
from recfusion.data.load import load
from recfusion.data.options import SplitPlan
from recfusion.data.split import split
from recfusion.diffusion import LearnedSchedule, elbo
from recfusion.models.recfusion.recfusion import RecFusion
from recfusion.report.figures import EDGE, GRID, INK, QUIET, check_figure_path, save_figure
from recfusion.training.batches import dense

PROCESSES = ("paper-kernel", "drift", "thinning")
STEPS = 6
_NOISE: Mapping[str, Any] = {"T": STEPS, "schedule": "linear", "beta_low": 0.1, "beta_high": 0.5}
_TRAINING: Mapping[str, Any] = {"objective": "elbo", "time": "input", "lr": 3e-3, "weight_decay": 0.5, "batch_size": 25}
_DASHES = ("-", "--", "-.", ":")
_DRAWS = 4  # of every x^t, for the bound of the test users


@dataclass(frozen=True)
class ScheduleCourse:
    """The noise rates of a process during training, and its bound on the test users with learned and fixed rates."""

    process: str
    betas: FloatArray  # (epochs + 1, T)
    learned: FloatArray  # (epochs,), nats per user
    fixed: FloatArray  # (epochs,)


def main() -> None:
    """Train every process with learned and with fixed rates and draw the figure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--data", default="ml-100k", help="a data set of the catalog, or a file")
    parser.add_argument("--epochs", type=int, default=60, help="training epochs of each network")
    parser.add_argument("--seed", type=int, default=0, help="seed of the split and of the models")
    parser.add_argument("--out", type=Path, default=Path("figure.png"), help="output file: .png or .svg")
    options = parser.parse_args()
    check_figure_path(options.out)
    data = load(options.data)
    courses = schedule_courses(data, epochs=options.epochs, seed=options.seed)
    print(f"Figure: {save_figure(draw_schedules(courses, data.name), options.out)}")


def schedule_courses(
    data: Interactions,
    *,
    plan: SplitPlan | None = None,
    epochs: int = 60,
    seed: int = 0,
    processes: Sequence[str] = PROCESSES,
) -> tuple[ScheduleCourse, ...]:
    """Train each process on the bound, with learned and with fixed rates, and compute the test users' bound per epoch.

    The bound is that of a user's whole row: history and held-out items.
    """
    parts = split(data, plan, seed=seed)
    users = parts.test.history + parts.test.held_out

    def train(process: str, learned: bool) -> tuple[list[list[float]], list[float]]:
        chosen: dict[str, Any] = {"process": process, "learned_schedule": learned, "max_epochs": epochs}
        model = RecFusion(**chosen, **_NOISE, **_TRAINING)
        rates, bounds = [model.fixed_schedule().betas.tolist()], []
        for _ in model.epochs(parts.train, rng=stream(seed, f"schedule {process}")):
            noise = model.net_.get_submodule("noise") if learned else None
            rates.append(noise.betas.tolist() if isinstance(noise, LearnedSchedule) else rates[0])
            bounds.append(_bound(model, users, seed))
        return rates, bounds

    courses = []
    for process in processes:
        print(f"training {process}", flush=True)
        betas, learned = train(process, learned=True)
        _, fixed = train(process, learned=False)
        courses.append(ScheduleCourse(process, np.array(betas), np.array(learned), np.array(fixed)))
    return tuple(courses)


@torch.no_grad()
def _bound(model: RecFusion, users: Csr, seed: int) -> float:
    """Return the bound in nats per user; the noise is the same in every epoch."""
    rng = torch.Generator().manual_seed(seed)
    process = model.make_process(model.means)
    x0 = dense(users)
    return float(torch.stack([elbo(process, model.net_, x0, rng).total.mean() for _ in range(_DRAWS)]).mean())


def draw_schedules(courses: Sequence[ScheduleCourse], name: str) -> Figure:
    """Draw two panels for each process: its rates by epoch, and the bound with learned and with fixed rates."""
    figure = Figure(figsize=(9, 0.6 + 2.5 * len(courses)), layout="constrained")
    panels = figure.subplots(len(courses), 2, squeeze=False)
    for (left, right), course in zip(panels, courses, strict=True):
        n_epochs, n_steps = course.betas.shape[0] - 1, course.betas.shape[1]
        colours = colormaps["viridis"](np.linspace(0.0, 0.55, n_steps))  # without yellow, which is too light for lines
        for t, (rates, colour, dashes) in enumerate(zip(course.betas.T, colours, cycle(_DASHES)), start=1):
            left.plot(range(n_epochs + 1), rates, color=colour, linestyle=dashes, label=rf"$\beta_{{{t}}}$")
        left.set_ylabel("noise rate", fontsize=9, color=INK)
        left.set_title(f"{course.process}: learned rates", fontsize=10, color=INK, loc="left")
        left.legend(fontsize=7, ncols=2, frameon=False, handlelength=3)
        epochs = range(1, n_epochs + 1)
        right.plot(epochs, course.fixed, color=QUIET, linestyle="--", label="fixed rates")
        right.plot(epochs, course.learned, color=EDGE, label="learned rates")
        right.set_ylabel("nats per test user", fontsize=9, color=INK)
        right.set_title("the bound of -log p", fontsize=10, color=INK, loc="left")
        right.legend(fontsize=8, frameon=False)
        for panel in (left, right):
            panel.grid(**GRID)
            panel.tick_params(labelsize=8, colors=QUIET, length=0)
            panel.spines[["top", "right"]].set_visible(False)
            panel.set_xlabel(f"epoch on {name}", fontsize=9, color=INK, parse_math=False)
    return figure


if __name__ == "__main__":
    main()
