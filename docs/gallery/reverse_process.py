"""The reverse process.

A small network learned rows with one block of ones. From noise at t = 20 it makes such rows, step by step.
"""

import torch
from drawing import Figure, plt

import recfusion as rf

T, WIDTH = 20, 24


def draw() -> Figure:
    rng = torch.Generator().manual_seed(0)
    torch.manual_seed(0)
    place = torch.arange(WIDTH)
    start = torch.randint(0, WIDTH - 8, (2000, 1), generator=rng)
    x = ((place >= start) & (place < start + 8)).float()
    process = rf.diffusion.Binomial.bit_flips(rf.diffusion.make_schedule("cosine", T=T))
    net = torch.nn.Sequential(torch.nn.Linear(WIDTH + 1, 96), torch.nn.ReLU(), torch.nn.Linear(96, WIDTH))
    optimiser = torch.optim.Adam(net.parameters(), lr=5e-3)

    def denoiser(xt: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        return net(torch.cat([xt, t.view(-1, 1).expand(len(xt), 1) / T], 1))

    for _ in range(600):
        loss = rf.diffusion.elbo(process, denoiser, x[torch.randint(0, 2000, (256,), generator=rng)], rng, t=1)
        optimiser.zero_grad()
        loss.total.mean().backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    with torch.no_grad():
        states = [state.x for state in rf.diffusion.reverse_steps(process, denoiser, (5, WIDTH), rng)]
    shown, axes = plt.subplots(1, 5, figsize=(6.4, 3.0), layout="constrained", sharey=True)
    for number, axis in enumerate(axes):
        axis.imshow(torch.stack([state[number] for state in states]), aspect="auto", cmap="Blues", vmax=1.3)
        axis.set(xticks=[], title=f"sample {number + 1}")
    axes[0].set(ylabel="step from t = 20 to 0")
    return shown
