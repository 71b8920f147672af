"""Forward processes.

The same row of zeros and ones under three processes: thinning only removes ones, bit flips also add some, and Gaussian
noise makes real numbers.
"""

import torch
from drawing import Figure, plt

import recfusion as rf


def draw() -> Figure:
    rng, steps = torch.Generator().manual_seed(1), 24
    x = (torch.rand(1, 60, generator=rng) < 0.25).float()
    schedule = rf.diffusion.make_schedule("cosine", T=steps)
    shown, axes = plt.subplots(3, 1, figsize=(6.4, 4.2), layout="constrained", sharex=True)
    for axis, name in zip(axes, ("thinning", "bit-flips", "gaussian"), strict=True):
        process = rf.diffusion.make_process(name, schedule)  # type: ignore[arg-type]
        chain = torch.cat(list(rf.diffusion.forward_steps(process, x, rng)))
        axis.imshow(chain, aspect="auto", cmap="Blues", vmin=-1 if name == "gaussian" else 0, vmax=1.5)
        axis.set(title=name, ylabel="t")
    axes[-1].set_xlabel("entry of the row")
    return shown
