"""Digits, drawn and completed.

scikit-learn's digits with black and white pixels. First row: test digits; second: their right half is hidden; third:
completed by the network; last: new digits.
"""

import torch
from drawing import Figure, plt
from sklearn.datasets import load_digits

import recfusion as rf

T = 30


def draw() -> Figure:
    rng = torch.Generator().manual_seed(0)
    torch.manual_seed(0)
    x = torch.from_numpy((load_digits().data > 7).astype("float32"))
    train, test = x[:1600], x[1600:1612]
    process = rf.diffusion.Binomial.bit_flips(rf.diffusion.make_schedule("cosine", T=T))
    net = torch.nn.Sequential(
        *(
            torch.nn.Linear(65, 256),
            torch.nn.SiLU(),
            torch.nn.Linear(256, 256),
            torch.nn.SiLU(),
            torch.nn.Linear(256, 64),
        )
    )
    optimiser = torch.optim.Adam(net.parameters(), lr=2e-3)

    def denoiser(xt: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        return net(torch.cat([xt, t.view(-1, 1).expand(len(xt), 1) / T], 1))

    for _ in range(2500):
        loss = rf.diffusion.elbo(process, denoiser, train[torch.randint(0, 1600, (200,), generator=rng)], rng, t=1)
        optimiser.zero_grad()
        loss.total.mean().backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    known = (torch.arange(64) % 8 < 4).expand_as(test)
    with torch.no_grad():
        whole = rf.diffusion.inpaint(process, denoiser, test, known, rng, repeats=3)
        new = rf.diffusion.ancestral(process, denoiser, (12, 64), rng)
    shown, axes = plt.subplots(4, 12, figsize=(6.4, 2.4), layout="constrained")
    rows = (test, torch.where(known, test, torch.tensor(0.4)), whole, new)
    for line, pictures in zip(axes, rows, strict=True):
        for axis, picture in zip(line, pictures, strict=True):
            axis.imshow(picture.view(8, 8), cmap="Blues", vmin=0, vmax=1.2)
            axis.axis("off")
    return shown
