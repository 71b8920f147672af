"""The paper's Figure 2 as numbers: binomial noise on real users, and how a small network takes it away again."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

from recfusion.core.arrays import Csr, FloatArray, IntArray, column_counts
from recfusion.core.rng import stream
from recfusion.data.interactions import Interactions
from recfusion.data.options import SplitPlan
from recfusion.data.split import split
from recfusion.diffusion import Binomial, Denoiser, Process, forward_steps, make_schedule, reverse_steps, simple
from recfusion.nets.mlp import MLP
from recfusion.training.batches import dense, seeded, torch_rng
from recfusion.training.checkpoint import TrainState
from recfusion.training.loop import Phase, train_epoch

OnEpoch: TypeAlias = Callable[[str, int], None]  # option, epoch

STEPS = 6
_BATCH = 20  # 750 training users of ml-100k make 38 steps of Adam in an epoch
_LEARNING_RATE = 5e-4  # twice that makes the nets too sure: chains of (c) come back too full or too empty


@dataclass(frozen=True)
class Option:
    """One answer to the paper's question what a completely noised matrix is."""

    name: str
    title: str
    remark: str
    kernel: Callable[..., Process]  # of a schedule and the items' means
    beta: float

    def process(self, means: Tensor) -> Process:
        """Return the process over items of these means."""
        return self.kernel(make_schedule("constant", STEPS, high=self.beta), means)


# (a) and (b) have the paper's rates. Under (c) a one survives a step with probability 1 - beta/2; with the paper's
# three steps and beta <= .1 about 94 % of all ones would reach x^T, which is almost no noise. Here beta = 1, so that
# every step halves the ones and x^T is nearly all zeros, as the text says.
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
    """One option's two chains over the users and items shown; index t of the first axis is step t."""

    option: Option
    forward: FloatArray  # (T + 1, users, items): x^t, zeros and ones
    reverse: FloatArray  # (T + 1, users, items): p_theta(x^t = 1 | x^{t+1}); at T it is x^T itself


def diffusion_figure(
    data: Interactions,
    *,
    plan: SplitPlan | None = None,
    epochs: int = 20,
    seed: int = 0,
    n_users: int = 30,
    n_items: int = 100,
    options: Sequence[Option] = OPTIONS,
    on_epoch: OnEpoch | None = None,
) -> tuple[Chains, ...]:
    """Noise some test users step by step, and let a network trained on the training users undo it.

    Every option has a network of its own. The reverse chain starts at the forward chain's own x^T. Users are drawn at
    random and stand in the order of their activity, items are the most popular ones in the order of popularity; the
    chains run over all items.
    """
    parts = split(data, plan, seed=seed)
    everything = parts.test.history + parts.test.held_out
    drawn = stream(seed, "figure users").permutation(everything.shape[0])[:n_users]
    users = drawn[np.argsort(-np.diff(everything.indptr)[drawn], kind="stable")]
    items: IntArray = np.argsort(-column_counts(parts.train), kind="stable")[:n_items]
    x0 = dense(everything[users])
    chains = []
    for option in options:
        rng = torch_rng(stream(seed, f"figure {option.name}"))
        process, denoiser = _train(option, parts.train, epochs, rng, on_epoch)
        forward = list(forward_steps(process, x0, rng))
        reverse = [state.mean for state in reverse_steps(process, denoiser, forward[-1], rng)]
        shown = [torch.stack(chain)[:, :, items].numpy() for chain in (forward, reverse[::-1])]
        chains.append(Chains(option, *shown))
    return tuple(chains)


def with_evidence(process: Process, net: Denoiser) -> Denoiser:
    """Return the denoiser log p(x^0 = 1)/p(x^0 = 0) = net(x^t, t) + log q(x^t | x^0 = 1)/q(x^t | x^0 = 0).

    Bayes' rule with the net as prior odds: what an entry says about itself is known in closed form, so that the net
    need not push a thousand entries unharmed through its narrow layer and is free to learn what they say of each other.
    """

    def denoiser(xt: Tensor, t: Tensor) -> Tensor:
        one, zero = (process.q_marginal(torch.full_like(xt, value), t).log_prob(xt) for value in (1.0, 0.0))
        return net(xt, t) + one - zero

    return denoiser


def _train(
    option: Option, train: Csr, epochs: int, rng: torch.Generator, on_epoch: OnEpoch | None
) -> tuple[Process, Denoiser]:
    means = (column_counts(train) + 0.5) / (train.shape[0] + 1)
    process = option.process(torch.from_numpy(means))
    net = seeded(lambda: MLP(train.shape[1], time="input", head="linear"), rng)
    denoiser = with_evidence(process, net)
    state = TrainState(net, torch.optim.Adam(net.parameters(), lr=_LEARNING_RATE), rng)

    def loss(rows: Csr) -> Tensor:
        return simple(process, denoiser, dense(rows), rng).mean()

    for epoch in range(1, epochs + 1):
        train_epoch(state, [Phase(loss)], train, _BATCH)
        if on_epoch is not None:
            on_epoch(option.name, epoch)
    return process, denoiser
