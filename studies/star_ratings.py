"""Categorical diffusion of star ratings: every item is unseen or has a rating, and noise removes or changes ratings.

Load it as `studies/star_ratings.py:RecFusionRatings`.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import torch
from numpy.typing import ArrayLike
from scipy.sparse import coo_array, csr_array
from torch import Tensor, nn

import recfusion.diffusion as diffusion
from recfusion.core.arrays import Csr, FloatArray, row_numbers
from recfusion.core.errors import InputError
from recfusion.core.memory import require_memory
from recfusion.data.interactions import Signal
from recfusion.data.signals import Extra
from recfusion.models.base import Shape
from recfusion.models.neural import training_settings as training
from recfusion.models.neural.network import NeuralRecommender
from recfusion.models.settings import learned, setting
from recfusion.nets.sparse import NEVER, SparseRows
from recfusion.nets.vae import DenseEncoder, multinomial_nll
from recfusion.training.batches import dense


class RatingNet(nn.Module):
    """Logits (rows, items, K) of rows of states 0..K-1; every pair of item and rating has its own input."""

    def __init__(self, n_items: int, states: int, *, width: int, layers: int) -> None:
        super().__init__()
        self.n_items, self.states = n_items, states
        self.encoder = DenseEncoder(n_items * (states - 1), width, layers)
        nn.init.xavier_normal_(self.encoder.first.weight)  # the eps of the layer norm would hide smaller features
        nn.init.zeros_(self.encoder.first.bias)
        self.decoder = nn.Linear(width, n_items * states)

    def forward(self, rows: SparseRows) -> Tensor:
        """Return the logits (rows, items, K) of rows with states as values."""
        inputs = SparseRows(
            rows.columns * (self.states - 1) + rows.values.long() - 1,
            rows.starts,
            torch.ones_like(rows.values),
            rows.row_of,
        )
        out: Tensor = self.decoder(self.encoder(inputs.normalised()))
        return out.reshape(-1, self.n_items, self.states)

    def denoise(self, xt: Tensor) -> Tensor:
        """Return the logits of dense rows (rows, items); the number of seen items shows the step t."""
        out: Tensor = self(SparseRows.of(csr_array(xt.detach().cpu().numpy()), xt.device))
        return out


@dataclass
class RecFusionRatings(NeuralRecommender):
    """A denoiser of rows of states: 0 is "unseen", k is the k-th rating of the scale step, 2 step, ..., levels step.

    transitions: "absorbing" makes an item unseen; "graded" makes it unseen or moves its rating to a neighbouring one,
    equally often; "uniform" draws a new state from all states; "ordinal" moves to a neighbouring state, with "unseen"
    as the lowest. The share of states without such an event decreases linearly from `high` at t = 1 to `low` at t = T.

    objective: "elbo" is the bound, "simple" the cross-entropy of all states at one step. "ranking" is the limit, for
    small steps, of the ranking part of the bound of a process that only removes items: the cross-entropy of the
    removed items with their ratings, under one softmax over all unseen items and all ratings. Scoring treats a history
    as x^1 and ranks by P(rating >= good) or by the expected rating, where "unseen" counts as 0.
    """

    reads: ClassVar[frozenset[Signal]] = frozenset({"grades"})
    lr: float = training.lr(2e-3)
    weight_decay: float = training.weight_decay(0.5, 3.0)
    batch_size: int = training.batch_size(100, (50, 500))
    max_epochs: int = training.max_epochs(60)
    patience: int = training.patience(6)
    levels: int = setting(5, "number of ratings on the scale", at_least=1, at_most=1000)
    step: float = setting(1.0, "distance between two ratings, and the lowest rating", at_least=1e-6)
    good: float = setting(4.0, "lowest good rating; items without a rating have this one")
    ranks_by: Literal["good", "expected"] = setting("good", "score: P(rating >= good), or the expected rating")
    transitions: Literal["absorbing", "graded", "uniform", "ordinal"] = setting("absorbing", "effect of the noise")
    objective: Literal["ranking", "simple", "elbo"] = setting("ranking", "training loss")
    T: int = setting(16, "diffusion steps", at_least=1, at_most=10_000)
    low: float = setting(0.4, "share of states without noise at the last step", at_least=0)
    high: float = setting(0.9, "share of states without noise at the first step", at_least=0)
    width: int = training.width(400, "width of the network's layers", (100, 800))
    layers: int = setting(2, "layers of the network", at_least=1, at_most=1000, search=(1, 4))
    shares_: FloatArray = learned()  # (K,): shares of the states among all users and items

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.objective == "ranking" and self.transitions in ("uniform", "ordinal"):
            raise InputError(
                f"Objective 'ranking' needs transitions that add no items, absorbing or graded, got "
                f"'{self.transitions}': choose objective 'simple' or 'elbo'.",
                "objective",
            )
        if not 0 < self.low < self.high < 1:
            raise InputError(f"Expected shares 0 < low < high < 1, got {self.low:g} and {self.high:g}.", "low")
        self._states([self.good], "good")

    def encoded(self, history: Csr, extra: Extra | None) -> Csr:
        """Return the histories, with dislikes, with the state of each item as its value."""
        known = extra or Extra()
        grades = np.full(history.nnz, self.good) if known.grades is None else known.grades.data
        parts = [(row_numbers(history), history.indices, grades)]
        if known.disliked is not None:
            parts.append((row_numbers(known.disliked), known.disliked.indices, known.disliked.data))
        rows, columns, values = (np.concatenate(each) for each in zip(*parts, strict=True))
        return csr_array(coo_array((self._states(values, "the history"), (rows, columns)), shape=history.shape))

    def check_grades(self, grades: FloatArray, where: str) -> None:
        self._states(grades, where)

    @property
    def lowest_grade(self) -> float:
        return self.step

    def _states(self, given: ArrayLike, where: str) -> FloatArray:
        """Return the numbers of ratings on the scale, from 1; `where` names their source in an error."""
        ratings = np.asarray(given, np.float64)
        states = np.round(ratings / self.step)
        wrong = ~(np.isclose(states * self.step, ratings) & (states >= 1) & (states <= self.levels))
        if wrong.any():
            first = [f"{self.step * number:g}" for number in range(1, min(self.levels, 10) + 1)]
            scale = ", ".join(first) + (f", ..., {self.step * self.levels:g}" if self.levels > 10 else "")
            more = f" and {int(wrong.sum()) - 1:,} more" if wrong.sum() > 1 else ""
            change = "correct it" if where == "the history" else "correct it, or set levels and step to its scale"
            got = f"{ratings[wrong][0]:g}{more}"
            raise InputError(f"Expected ratings {scale} in {where}, got {got}: {change}.", "rating")
        return states.astype(np.float32)

    def batch_bytes(self, shape: Shape) -> int:
        return super().batch_bytes(shape) * (self.levels + 1)

    def make_net(self, n_items: int) -> RatingNet:
        return RatingNet(n_items, self.levels + 1, width=self.width, layers=self.layers)

    def prepare(self, train: Csr) -> None:
        n_states = self.levels + 1
        require_memory(
            self.batch_bytes(Shape.of(train)),
            f"Logits of {n_states} states of {train.shape[1]:,} items for {self.batch_size:,} users at once",
            "lower batch_size.",
        )
        cells = train.indices.astype(np.int64) * n_states + train.data.astype(np.int64)
        counts = np.bincount(cells, minlength=train.shape[1] * n_states).reshape(-1, n_states).astype(np.float64)
        counts[:, 0] = train.shape[0] - counts.sum(1)
        overall = (counts.sum(0) + 1) / (counts.sum() + n_states)
        self._log_shares = torch.from_numpy(np.log((counts + overall) / (train.shape[0] + 1))).float()
        self.shares_ = overall.astype(np.float32)

    def training_module(self) -> nn.Module:
        with torch.no_grad():  # the initial output is the share of users per item and state
            self._decoder.bias.copy_(self._log_shares.flatten())
            self._decoder.weight.mul_(0.1)
        return self.net_

    def undecayed_parameters(self) -> Iterable[nn.Parameter]:
        yield self._decoder.bias

    @property
    def _decoder(self) -> nn.Linear:
        assert isinstance(self.net_, RatingNet)
        return self.net_.decoder

    def process(self) -> diffusion.Categorical:
        """Return the forward process; its prior has the training shares of the states."""
        schedule = diffusion.from_survival(torch.linspace(self.high, self.low, self.T, dtype=torch.float64))
        shares, kind = torch.from_numpy(self.shares_).double(), diffusion.Categorical
        n_states, shares = len(shares), shares / shares.sum()
        if self.transitions == "absorbing":
            return kind.absorbing(schedule, n_states, shares=shares)
        if self.transitions == "graded":
            return kind.graded(schedule, n_states, shares=shares)
        return (kind.uniform if self.transitions == "uniform" else kind.ordinal)(schedule, n_states, shares)

    def denoiser(self, xt: Tensor, t: Tensor) -> Tensor:
        """Return the logits of x^0, (batch, items, K), for `diffusion.elbo` and the samplers."""
        assert isinstance(self.net_, RatingNet)
        return self.net_.denoise(xt)

    def loss(self, rows: Csr, trained: nn.Module, rng: torch.Generator) -> Tensor:
        process = self.process()
        if self.objective == "simple":
            return diffusion.simple(process, self.denoiser, dense(rows, self.device), rng).mean()
        if self.objective == "elbo":
            return diffusion.elbo(process, self.denoiser, dense(rows, self.device), rng, 1).total.mean()
        x0 = SparseRows.of(rows, self.device)
        t = torch.randint(1, self.T + 1, (rows.shape[0],), generator=rng).to(self.device)
        # No transition leaves "unseen", so only seen items are drawn.
        left = process.q_sample(x0.values[:, None], t[x0.row_of], rng)[:, 0]
        xt, removed = x0.weighted(left).only(left > 0), x0.only(left == 0)
        logits = self.net_(xt)[:, :, 1:]  # (users, items, ratings)
        masked = logits.index_put((xt.row_of, xt.columns), torch.tensor(NEVER, device=self.device)).flatten(1)
        cells = removed.columns * self.levels + removed.values.long() - 1
        asked = SparseRows(cells, removed.starts, torch.ones_like(removed.values), removed.row_of)
        return multinomial_nll(masked, asked).mean()

    def scores(self, history: Csr) -> Tensor:
        """Return log P(rating >= good) or the log of the expected rating, up to a constant per user."""
        logits: Tensor = self.net_(SparseRows.of(history, self.device))
        if self.objective != "ranking":
            logits = logits.log_softmax(2)
        ratings = self.step * torch.arange(self.levels + 1, device=logits.device)
        worth = (ratings >= self.good - 1e-6).float() if self.ranks_by == "good" else ratings
        return (logits[:, :, 1:] + worth[1:].log()).logsumexp(2)
