"""A learned schedule.

The survival curve of a Gaussian process before training, and after it was trained on the bound together with the
network.
"""

import torch
from drawing import BLUE, GREY, Figure, figure

import recfusion as rf


def draw() -> Figure:
    rng, steps = torch.Generator().manual_seed(0), 20
    torch.manual_seed(0)
    start = rf.diffusion.make_schedule("linear", T=steps, high=0.3)
    learned = rf.diffusion.LearnedSchedule(start)
    process = rf.diffusion.Gaussian(learned)
    x = torch.randint(0, 2, (1000, 1), generator=rng) * torch.ones(1, 8) + 0.1 * torch.randn(1000, 8, generator=rng)
    net = torch.nn.Sequential(torch.nn.Linear(9, 48), torch.nn.ReLU(), torch.nn.Linear(48, 8))

    def denoiser(xt: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        return net(torch.cat([xt, t.view(-1, 1).expand(len(xt), 1) / steps], 1).float())

    optimiser = torch.optim.Adam([*net.parameters(), *learned.parameters()], lr=1e-2)
    for _ in range(120):
        bound = rf.diffusion.learned_elbo(process, denoiser, x[torch.randint(0, 1000, (100,), generator=rng)], rng, t=4)
        optimiser.zero_grad()
        bound.total.mean().backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    shown, axes = figure()
    times = torch.arange(1, steps + 1)
    axes.plot(times, start.alpha_bar(times), color=GREY, ls="--", label="start: linear")
    axes.plot(times, learned.alpha_bar(times).detach(), color=BLUE, marker="o", ms=3, label="trained")
    axes.set(xlabel="t", ylabel="survival of the signal", ylim=(0, 1))
    axes.legend(frameon=False)
    return shown
