"""The bound, step by step.

Nats that each reverse step costs for independent bits, under a denoiser that knows only their rate, for three
schedules of bit flips. Most of the cost lies in the last steps of the reverse process, where little noise is left.
"""

import torch
from drawing import COLOURS, Figure, figure

import recfusion as rf

RATE = 0.1


def draw() -> Figure:
    rng, steps = torch.Generator().manual_seed(0), 40
    x = (torch.rand(4000, 8, generator=rng) < RATE).float()
    logit = float(torch.logit(torch.tensor(RATE)))
    shown, axes = figure()
    for name, colour in zip(("linear", "cosine", "constant"), COLOURS, strict=False):
        process = rf.diffusion.Binomial.bit_flips(rf.diffusion.make_schedule(name, T=steps))  # type: ignore[arg-type]
        costs = []
        for t in range(2, steps + 1):
            time = torch.full((len(x),), t)
            xt = process.q_sample(x, time, rng)
            q = process.q_posterior(x, xt, time)
            p = process.p_reverse(torch.full_like(xt, logit), xt, time)
            costs.append(float(rf.diffusion.kl(q, p).sum(1).mean()))
        axes.plot(range(2, steps + 1), costs, color=colour, label=name)
    axes.set(xlabel="t", ylabel="nats")
    axes.legend(frameon=False)
    return shown
