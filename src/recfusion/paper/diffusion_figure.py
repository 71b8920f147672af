"""The paper's Figure 2: binomial noise on real users, and its removal by a small network."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from recfusion.core.arrays import Csr, FloatArray, IntArray, column_counts
from recfusion.core.rng import stream
from recfusion.core.steps import log as steps
from recfusion.data.interactions import Interactions
from recfusion.data.options import SplitPlan
from recfusion.data.split import split
from recfusion.diffusion import Binomial, Denoiser, Process, forward_steps, make_schedule, reverse_steps, simple
from recfusion.nets.mlp import MLP
from recfusion.report.figures import FAINT, IMAGE, INK, QUIET, blank
from recfusion.training.batches import dense, seeded, torch_rng
from recfusion.training.checkpoint import TrainState
from recfusion.training.loop import Phase, train_epoch

STEPS = 6
_BATCH = 20  # 750 training users of ml-100k make 38 steps of Adam in an epoch
_LEARNING_RATE = 5e-4  # twice that makes the nets too sure: chains of (c) come back too full or too empty


@dataclass(frozen=True)
class Option:
    """One of the paper's options for the noise process."""

    name: str
    title: str
    remark: str
    kernel: Callable[..., Process]  # arguments: a schedule and the items' means
    beta: float

    def process(self, means: Tensor) -> Process:
        return self.kernel(make_schedule("constant", STEPS, high=self.beta), means)


# (a) and (b) have the paper's rates. With (c) a one survives a step with probability 1 - beta/2. With the paper's three
# steps and beta <= .1, about 94 % of all ones would reach x^T, which is almost no noise. Here beta = 1: every step
# halves the ones and x^T is nearly all zeros, as the paper's text says.
OPTIONS = (
    Option(
        *("a", "bit flips, β = .01", "a few entries flip at each step; going back, unlikely ones are taken out again"),
        *(Binomial.bit_flips, 0.01),
    ),
    Option(
        *("b", "bit flips, β = .5"),
        "one step is a coin toss for every entry: nothing is left of a user, only the items' popularity can return",
        *(Binomial.bit_flips, 0.5),
    ),
    Option(
        *("c", "thinning, β = 1"),
        f"each 1 vanishes with probability β/2 at each step: {100 * 0.5**STEPS:.2g} % reach t = {STEPS} "
        "(94 % with the paper's T = 3 and β ≤ .1); going back, the network fills in",
        *(Binomial.thinning, 1.0),
    ),
)


@dataclass(frozen=True)
class Chains:
    """The two chains of an option, over the users and items shown; index t of the first axis is step t."""

    option: Option
    forward: FloatArray  # (T + 1, users, items): x^t, zeros and ones
    reverse: FloatArray  # (T + 1, users, items): p_theta(x^t = 1 | x^{t+1}); at T it is x^T itself


def diffusion_chains(
    data: Interactions,
    *,
    plan: SplitPlan | None = None,
    epochs: int = 20,
    seed: int = 0,
    n_users: int = 30,
    n_items: int = 100,
    options: Sequence[Option] = OPTIONS,
) -> tuple[Chains, ...]:
    """Add noise to some test users step by step, and remove it with a network trained on the training users.

    Each option has its own network. The reverse chain starts at x^T of the forward chain. The users are a random
    sample, the most active first; the items shown are the most popular ones. The chains run over all items.
    """
    parts = split(data, plan, seed=seed)
    everything = parts.test.history + parts.test.held_out
    drawn = stream(seed, "figure users").permutation(everything.shape[0])[:n_users]
    users = drawn[np.argsort(-np.diff(everything.indptr)[drawn], kind="stable")]
    items: IntArray = np.argsort(-column_counts(parts.train), kind="stable")[:n_items]
    x0 = dense(everything[users])
    chains = []
    for option in options:
        steps.info("network of option (%s)", option.name)
        rng = torch_rng(stream(seed, f"figure {option.name}"))
        process, denoiser = _train(option, parts.train, epochs, rng)
        forward = list(forward_steps(process, x0, rng))
        reverse = [state.mean for state in reverse_steps(process, denoiser, forward[-1], rng)]
        shown = [torch.stack(chain)[:, :, items].numpy() for chain in (forward, reverse[::-1])]
        chains.append(Chains(option, *shown))
    return tuple(chains)


def with_evidence(process: Process, net: Denoiser) -> Denoiser:
    """Return the denoiser log p(x^0 = 1)/p(x^0 = 0) = net(x^t, t) + log q(x^t | x^0 = 1)/q(x^t | x^0 = 0).

    This is Bayes' rule with the net as prior odds. The evidence of an entry about itself is known in closed form: the
    net need not copy a thousand entries through its narrow layer, and learns how they depend on each other.
    """

    def denoiser(xt: Tensor, t: Tensor) -> Tensor:
        one, zero = (process.q_marginal(torch.full_like(xt, value), t).log_prob(xt) for value in (1.0, 0.0))
        return net(xt, t) + one - zero

    return denoiser


def _train(option: Option, train: Csr, epochs: int, rng: torch.Generator) -> tuple[Process, Denoiser]:
    means = (column_counts(train) + 0.5) / (train.shape[0] + 1)
    process = option.process(torch.from_numpy(means))
    net = seeded(lambda: MLP(train.shape[1], time="input", head="linear"), rng)
    denoiser = with_evidence(process, net)
    state = TrainState(net, torch.optim.Adam(net.parameters(), lr=_LEARNING_RATE), rng)

    def loss(rows: Csr) -> Tensor:
        return simple(process, denoiser, dense(rows), rng).mean()

    for _ in range(epochs):
        train_epoch(state, [Phase(loss)], train, _BATCH)
    return process, denoiser


# In pixels: with 100 items and 30 users an entry is 3 wide and 6 high, so entries stay sharp.
_WIDE, _HIGH, _NEXT, _BELOW = 300, 180, 318, 228
_LEFT, _RIGHT, _HEAD, _TITLE = 350, 190, 190, 84
_BLOCK = _TITLE + 2 * _BELOW + 8


def draw_diffusion(shown: Sequence[Chains], name: str, epochs: int) -> Figure:
    """Draw both chains of every option at the steps t = 0..T: the noise on top, the learned reverse below."""
    n_steps, n_users, n_items = shown[0].forward.shape
    right = _LEFT + n_steps * _NEXT - _NEXT + _WIDE
    width, height = right + _RIGHT, _HEAD + len(shown) * _BLOCK + 20
    figure, axes = blank(width, height)
    axes.text(36, 61, f"Binomial diffusion on {name}", fontsize=15, color=INK, weight="bold")
    explained = (
        f"Each picture shows {n_users} test users (rows, the most active on top) and the {n_items} most popular items "
        f"(columns, from the left).  T = {n_steps - 1}.  One network for each option, trained for {epochs} "
        f"epoch{'s' * (epochs != 1)} on the training users."
    )
    axes.text(36, 105, explained, fontsize=9.5, color=QUIET)
    for t in range(n_steps):
        remark = {0: " (data)", n_steps - 1: " (most noise)"}.get(t, "")
        middle = _LEFT + t * _NEXT + _WIDE / 2
        axes.text(middle, _HEAD - 24, f"$t = {t}${remark}", fontsize=10.5, color=INK, ha="center")
    for number, chains in enumerate(shown):
        _draw_chains(axes, chains, _HEAD + number * _BLOCK)
    bottom = height - 76
    scale = figure.add_axes(((right + 40) / width, 1 - bottom / height, 26 / width, (bottom - _HEAD - _TITLE) / height))
    bar = figure.colorbar(axes.images[0], cax=scale, ticks=[0, 0.5, 1], format="%g")
    bar.outline.set_visible(False)
    bar.set_label("forward: $x^t$, 0 or 1;   reverse: probability of a 1", size=10, color=INK)
    scale.tick_params(labelsize=9.5, labelcolor=INK, color=QUIET, length=3)
    return figure


def _draw_chains(axes: Axes, chains: Chains, top: float) -> None:
    axes.axhline(top, 36 / axes.get_xlim()[1], 1 - (_RIGHT / axes.get_xlim()[1]), color=FAINT, linewidth=0.8)
    axes.text(36, top + 58, f"({chains.option.name}) {chains.option.title}", fontsize=12, color=INK, weight="bold")
    axes.text(_LEFT + 90, top + 56, chains.option.remark, fontsize=10, color=QUIET)
    rows = (
        (chains.forward, "forward  →", r"$q(x^t \mid x^{t-1})$"),
        (chains.reverse, "←  learned reverse", r"$p_\theta(x^{t-1} \mid x^t)$"),
    )
    for number, (chain, name, formula) in enumerate(rows):
        y = top + _TITLE + number * _BELOW
        axes.text(_LEFT - 22, y + 81, name, fontsize=11, color=INK, ha="right")
        axes.text(_LEFT - 22, y + 119, formula, fontsize=9.5, color=QUIET, ha="right")
        for t, entries in enumerate(chain):
            x = _LEFT + t * _NEXT
            axes.imshow(entries, extent=(x, x + _WIDE, y + _HIGH, y), **IMAGE)
            mean = f"mean {entries.mean():.3f}"
            axes.text(x + _WIDE / 2, y + _HIGH + 25, mean, fontsize=7.5, color=QUIET, ha="center")
