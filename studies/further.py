"""Four ideas to improve the mixture's network, compared with the current one, paired by user.

    python studies/further.py --data ml-1m --splits 26 27 --keep /tmp/further --out studies/results/further.json

The closed parts and the current network are fitted once on each split. Then (a) gradient steps on the full matrix of
`thinning-linear` by a ranking loss; (b) sharpness-aware steps for the network; (c) its product with a linear branch
(VASP), or RecVAE's composite prior on a stochastic code; (d) a teacher's scores as further targets. Each is mixed as
in the mixture, with weights from validation users, and evaluated on test users: `instead` of the current network (a
matrix: of pairs), and `beside` it. Controls: `seed 1`, the current network with another seed, and `linear`, no steps.
Gains are relative to the mixture with one current network; seconds are CPU seconds.

Settings were chosen on the validation users of split 26 alone; a setting that lost there was not always run on 27.
(Adam with a rate of 1e-4 in (a), from left-out or in-sample scores, lost 2.6 points there and is left out.) No table
uses these splits. Figures per user are saved in a folder, and saved fits are not repeated.
"""

import os

os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}  # before numpy and torch

import argparse
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import logsigmoid

import recfusion as rf
from recfusion.core.arrays import Csr, FloatArray, binary_csr, keep_entries, row_numbers
from recfusion.core.files import write_json
from recfusion.core.rng import RngLike, make_rng
from recfusion.data.split import Fold
from recfusion.evaluation.evaluate import evaluate
from recfusion.models.base import Recommender, Shape
from recfusion.models.leave_one_out import linear_scores
from recfusion.models.linear.gram import gram, user_weighted, user_weights
from recfusion.models.neural.vae import WithOldEncoder
from recfusion.models.registry import make_model
from recfusion.models.self_tuning import scalings
from recfusion.models.settings import learned, setting
from recfusion.models.thinning.deep import ThinningDeep
from recfusion.models.thinning.linear import ThinningLinear, solve
from recfusion.models.thinning.mixture_choice import found_weights, usual_weights
from recfusion.models.thinning.mixture_weights import Ballot, standardised, weighted_sum
from recfusion.models.thinning.parts import economical
from recfusion.nets import vae
from recfusion.nets.sparse import SparseRows, sparse_product
from recfusion.training.loop import Phase

CLOSED = ("thinning-pairs", "thinning-local", "ials")
METRIC = "ndcg@100"
Parts = Mapping[str, Recommender]
Figures = dict[str, Any]  # arrays: of each user, by way of mixing and fold; and the seconds
Teacher = Callable[[Csr, Csr], FloatArray]  # whole rows and what survived of them -> scores
_NEVER = -1e9
_PRIOR = (3 / 20, 3 / 4, 1 / 10)  # RecVAE's weights


def left_out_linear(linear: ThinningLinear, train: Csr) -> tuple[Teacher, FloatArray, FloatArray]:
    """Return exact left-out scores of training users under a fitted model, its B and P, (items, items)."""
    ridge = {"l2": linear.l2_, "nu": linear.nu_, "kappa": linear.kappa_}
    b, diagonal = solve(gram(user_weighted(train, linear.b_)), **ridge)
    scale = scalings(train, (linear.c_,))[0]
    one = user_weights(train, linear.b_)[0] * max(1, int(np.diff(train.indptr)[0])) ** linear.b_  # of a single item

    def scores(rows: Csr, survived: Csr) -> FloatArray:
        weights = (one * np.maximum(np.diff(rows.indptr), 1) ** -linear.b_).astype(np.float32)
        return linear_scores(b, diagonal, rows, survived, weights)[0] * scale

    p = -b * diagonal
    np.fill_diagonal(p, diagonal)
    return scores, b * scale, p


def nats(model: Recommender, fold: Fold, gain: float) -> float:
    """Return -log softmax(gain times standardised scores over unseen items), a mean over the held-out items."""
    scores = torch.from_numpy(gain * standardised(model.score(fold.history), fold.history))
    scores[row_numbers(fold.history), fold.history.indices] = -torch.inf
    return float(vae.multinomial_nll(scores, SparseRows.of(fold.held_out)).sum()) / fold.held_out.nnz


def best_gain(model: Recommender, fold: Fold) -> float:
    """Return the factor of standardised scores whose softmax makes what is held out most likely."""
    return float(min(np.linspace(0.5, 3, 26), key=lambda gain: nats(model, fold, gain)))


@dataclass
class FineTuned(Recommender):
    """(a) B + D: D by steps on the softmax of what was removed, at scores of a B without the user.

    Steps are Adam's, or those of a ridge regression of the loss's residuals, -rate P Z'R, once an epoch. Each step
    takes a share `pull` of D away.
    """

    rate: float = setting(1e-5, "learning rate")
    ridge: bool = setting(False, "whether steps are ridge regressions")
    pull: float = setting(0.02, "share of the way back to the start in each step")
    max_epochs: int = setting(8, "epochs")
    weights_: FloatArray = learned()  # (items, items)

    def fit(self, train: Csr, valid: Fold | None = None, *, rng: RngLike = None) -> Self:
        assert valid is not None
        generator = make_rng(rng)
        linear = ThinningLinear().fit(train, valid, rng=generator)
        left_out, start, p = left_out_linear(linear, train)
        gain = best_gain(linear, valid)
        d = nn.Parameter(torch.zeros(start.shape))
        optimizer = torch.optim.Adam([d], lr=self.rate, fused=True)
        for _ in range(self.max_epochs):
            total = np.zeros_like(start)
            for users in np.array_split(generator.permutation(train.shape[0]), -(-train.shape[0] // 500)):
                rows = train[users]
                kept = generator.random(rows.nnz) < generator.uniform(0.4, 0.9, len(users))[row_numbers(rows)]
                z, removed = keep_entries(rows, kept), keep_entries(rows, ~kept)
                scores = left_out(rows, z) + z @ d.detach().numpy()
                gradient = np.asarray(z.T @ ranking_residuals(scores, z, removed, gain))
                if self.ridge:
                    total += gradient
                    continue
                d.grad = torch.from_numpy(gradient)
                optimizer.step()
                d.detach().mul_(1 - self.pull)
            if self.ridge:
                d.detach().sub_(torch.from_numpy(self.rate * (p @ total))).mul_(1 - self.pull)
            self.weights_ = start + d.detach().numpy()
            found = evaluate(self, valid, train, (METRIC,)).mean()[METRIC]
            print(f"  validation users: {100 * found:.2f}, {nats(self, valid, gain):.4f} nats an item", flush=True)
        return self

    def score(self, history: Csr) -> FloatArray:
        return np.asarray(history @ self.weights_)


def ranking_residuals(scores: FloatArray, z: Csr, removed: Csr, gain: float) -> FloatArray:
    """Return |removed| softmax - removed over the items not in z, times |u|^-1/2, (users, items)."""
    logits = torch.from_numpy(gain * standardised(scores, z))
    logits[row_numbers(z), z.indices] = -torch.inf
    lengths = np.maximum(np.diff(z.indptr) + np.diff(removed.indptr), 1)
    out = logits.softmax(1).numpy() * np.diff(removed.indptr)[:, None].astype(np.float32)
    out[row_numbers(removed), removed.indices] -= 1
    out *= (lengths**-0.5 * lengths.sum() / (lengths**0.5).sum()).astype(np.float32)[:, None]
    return np.asarray(out)


def weighed(net: ThinningDeep, xt: SparseRows) -> SparseRows:
    """Return x_t as the network takes it."""
    return xt.weighted(xt.values * torch.from_numpy(net.item_weights_)[xt.columns]).normalised()


@dataclass
class Sharp(ThinningDeep):
    """(b) The gradient is taken where the loss is highest nearby: a step of length `rho` up the gradient."""

    rho: float = setting(0.5, "length of the step up")
    _moved: dict[str, Tensor] | None = field(default=None, init=False, repr=False, compare=False)

    def logits(self, xt: SparseRows) -> Tensor:
        if self._moved is None:
            return super().logits(xt)
        out: Tensor = functional_call(self.net_, self._moved, (weighed(self, xt),))
        return out

    def loss(self, rows: Csr, trained: nn.Module, rng: torch.Generator) -> Tensor:
        drawn = rng.get_state()
        names, parameters = zip(*self.net_.named_parameters(), strict=True)
        up = torch.autograd.grad(super().loss(rows, trained, rng), parameters)
        length = torch.stack([each.square().sum() for each in up]).sum().sqrt()
        steps = zip(names, parameters, up, strict=True)
        self._moved = {name: weights + self.rho / length * step for name, weights, step in steps}
        rng.set_state(drawn)  # the same survivors
        try:
            return super().loss(rows, trained, rng)
        finally:
            self._moved = None


class ProductNet(vae.Autoencoder):
    """log(sigmoid(net) sigmoid(linear)): an item must please both (Vančura and Kordík, 2021)."""

    def __init__(self, of: vae.Autoencoder, n_items: int, shift: float, gain: float) -> None:
        super().__init__(of.encoder, of.decoder)
        self.shift, self.gain = shift, gain
        self.linear = nn.Parameter(torch.zeros(n_items, n_items))

    def forward(self, rows: SparseRows) -> Tensor:
        return logsigmoid(super().forward(rows) - self.shift) + logsigmoid(
            self.gain * sparse_product(rows, self.linear)
        )


@dataclass
class Product(ThinningDeep):
    """(c) VASP's product; with a large `shift` the net's sigmoid is an exponential."""

    shift: float = setting(3.0, "taken off the net's logits")
    gain: float = setting(1.0, "of the linear branch, whose rate it sets")

    def make_net(self, n_items: int) -> vae.Autoencoder:
        return ProductNet(super().make_net(n_items), n_items, self.shift, self.gain)


@dataclass
class Composite(ThinningDeep):
    """(c) A stochastic code with RecVAE's prior: gamma |x_t| KL(q(z | x_t) || composite prior) is added."""

    gamma: float = setting(0.002, "weight of the divergence for each item of x_t")
    log_variance: float = setting(-4.0, "of the code at the beginning")
    _rng: torch.Generator = field(init=False, repr=False, compare=False)
    _old: WithOldEncoder = field(init=False, repr=False, compare=False)
    _divergence: Tensor = field(init=False, repr=False, compare=False)

    def make_net(self, n_items: int) -> vae.Autoencoder:
        net = super().make_net(n_items)
        head = vae.NormalHead(self.width, self.latent)
        nn.init.constant_(head.both.bias[self.latent :], self.log_variance)
        return vae.Autoencoder(nn.Sequential(net.encoder[0], head), net.decoder)  # type: ignore[index]

    def training_module(self) -> nn.Module:
        super().training_module()
        self._old = WithOldEncoder(self.net_)
        return self._old

    def phases(self, train: Csr, trained: nn.Module, rng: torch.Generator) -> Sequence[Phase]:
        return [Phase(lambda rows: self.loss(rows, trained, rng), before=self._old.renew)]

    def loss(self, rows: Csr, trained: nn.Module, rng: torch.Generator) -> Tensor:
        self._rng = rng
        return super().loss(rows, trained, rng) + self._divergence

    def logits(self, xt: SparseRows) -> Tensor:
        if not self.net_.training:
            return super().logits(xt)
        net = self._old.net
        rows = weighed(self, xt)
        z, log_q = vae.draw_with_log_prob(net.encoder(rows), self._rng)
        divergence = (log_q - vae.composite_log_prob(z, self._old.old(rows), _PRIOR)).sum(1)
        self._divergence = self.gamma * (xt.sums() * divergence).mean()
        out: Tensor = net.decoder(z)
        return out


@dataclass
class Distilled(ThinningDeep):
    """(d) A share of the loss is the cross-entropy to the softmax of a teacher's scores of the same thinned rows."""

    share: float = setting(0.2, "of the teacher in the loss")
    gain: float = setting(2.0, "of the teacher's standardised scores")
    teacher: Teacher | None = field(default=None, compare=False)
    _last: tuple[SparseRows, Tensor] = field(init=False, repr=False, compare=False)

    def logits(self, xt: SparseRows) -> Tensor:
        self._last = xt, super().logits(xt)
        return self._last[1]

    def loss(self, rows: Csr, trained: nn.Module, rng: torch.Generator) -> Tensor:
        assert self.teacher is not None
        own = super().loss(rows, trained, rng)
        xt, logits = self._last
        starts = np.append(xt.starts.numpy(), len(xt.columns))
        survived = binary_csr(starts, xt.columns.numpy().astype(rows.indices.dtype), rows.shape[1])
        wanted = torch.from_numpy(self.gain * standardised(self.teacher(rows, survived), survived))
        wanted[xt.row_of, xt.columns] = _NEVER
        log_pi = logits.index_put((xt.row_of, xt.columns), torch.tensor(_NEVER)).log_softmax(1)
        lengths = torch.from_numpy(np.diff(rows.indptr)).clamp(min=1).float()
        nll = -(lengths - xt.sums()) * (wanted.softmax(1) * log_pi).sum(1)  # as if the teacher had said each item
        weights = lengths**-self.b
        cross = (weights * nll).sum() / (weights * lengths).sum() * lengths.mean()
        return (1 - self.share) * own + self.share * cross


def taught_by_linear(_: Parts, split: rf.Split) -> Distilled:
    """Return a network whose teacher is the linear model without the user that is asked for."""
    linear = ThinningLinear().fit(split.train, split.valid, rng=0)
    return Distilled(teacher=left_out_linear(linear, split.train)[0], gain=best_gain(linear, split.valid))


def taught_by_mixture(closed: Parts, split: rf.Split) -> Distilled:
    """Return a network whose teacher is the mixture of the closed parts, which have learned from all users."""
    weights = usual_weights(closed, Shape.of(split.train))

    def mixture(_: Csr, survived: Csr) -> FloatArray:
        scores = {name: standardised(part.score(survived), survived) for name, part in closed.items()}
        return weighted_sum(scores, weights)

    return Distilled(teacher=mixture)


TRIES: dict[str, Callable[[Parts, rf.Split], Recommender]] = {
    "seed 1": lambda *_: ThinningDeep(),
    "linear": lambda *_: ThinningLinear(),
    "a: Adam": lambda *_: FineTuned(),
    "a: ridge": lambda *_: FineTuned(rate=0.02, ridge=True),
    "b: SAM, rho .1": lambda *_: Sharp(rho=0.1),
    "b: SAM, rho .5": lambda *_: Sharp(rho=0.5),
    "c: product": lambda *_: Product(),
    "c: product, gain .3": lambda *_: Product(gain=0.3),
    "c: composite prior": lambda *_: Composite(),
    "d: left-out linear": taught_by_linear,
    "d: in-sample mixture": taught_by_mixture,
}


def main() -> None:
    """Fit, mix and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--data", default="ml-1m")
    parser.add_argument("--splits", type=int, nargs="+", default=[26, 27])
    parser.add_argument("--tries", nargs="*", default=list(TRIES), help="what is fitted; what is kept is always told")
    parser.add_argument("--keep", type=Path, default=Path("/tmp/further"), help="folder for the figures of users")
    parser.add_argument("--out", type=Path, help="JSON file for the figures")
    options = parser.parse_args()
    torch.set_num_threads(1)
    options.keep.mkdir(parents=True, exist_ok=True)
    found = {seed: of_split(options.data, seed, options.tries, options.keep) for seed in options.splits}
    report: dict[str, Any] = {"data": options.data}
    for name in ("today", *TRIES):
        splits = [seed for seed in options.splits if name in found[seed]]
        if splits:
            told = summary([found[seed][name] for seed in splits], [found[seed]["today"] for seed in splits])
            report[name] = {"splits": splits, **told}
            print(name, report[name])
    if options.out:
        write_json(options.out, report)


def of_split(data: str, seed: int, chosen: Sequence[str], keep: Path) -> dict[str, Figures]:
    """Fit what is chosen and not kept yet, and return the figures of all that is kept."""
    paths = {name: keep / f"{data}-{seed}-{name}.npz" for name in ("today", *TRIES)}
    missing = [name for name in chosen if not paths[name].exists()]
    if missing or not paths["today"].exists():
        split = rf.split(rf.load(data), seed=seed)
        shape = Shape.of(split.train)
        closed: dict[str, Recommender] = {
            name: economical(make_model(name, {}), shape).fit(split.train, split.valid, rng=0) for name in CLOSED
        }
        net, seconds = timed(ThinningDeep(), split, 0)
        today = {**closed, "thinning-deep": net}
        np.savez(paths["today"], **judged({"alone": {"": net}, "instead": today}, split, seconds))
        for name in missing:
            model, seconds = timed(TRIES[name](closed, split), split, int(name == "seed 1"))
            deep = isinstance(model, ThinningDeep)
            own, second = ("thinning-deep", "thinning-deep#2") if deep else ("thinning-pairs", "thinning-linear")
            ways = {"alone": {"": model}, "instead": today | {own: model}, "beside": today | {second: model}}
            np.savez(paths[name], **judged(ways, split, seconds))
            print(f"split {seed}, {name}: done", flush=True)
    return {name: dict(np.load(path)) for name, path in paths.items() if path.exists()}


def timed(model: Recommender, split: rf.Split, rng: int) -> tuple[Recommender, float]:
    """Return the model, fitted, and the seconds of the processor."""
    began = time.process_time()
    return model.fit(split.train, split.valid, rng=rng), time.process_time() - began


def judged(ways: Mapping[str, Parts], split: rf.Split, seconds: float) -> Figures:
    """Return 100 NDCG@100 of the users of both folds, (users,) each, for the mixtures of `ways`."""
    figures: Figures = {"cpu seconds": np.array(seconds)}
    for way, mixture in ways.items():
        ballot, weights = Ballot.of(mixture, split.valid), dict.fromkeys(mixture, 1.0)
        if len(mixture) > 1:
            weights = found_weights(ballot, usual_weights(mixture, Shape.of(split.train)))
        figures[f"{way}, valid"] = 100 * ballot.ndcg(weights)
        figures[f"{way}, test"] = 100 * Ballot.of(mixture, split.test).ndcg(weights)
    return figures


def summary(splits: Sequence[Figures], today: Sequence[Figures]) -> dict[str, Any]:
    """Return means over the splits' users, and gains over `today`."""
    told: dict[str, Any] = {"cpu seconds": float(np.mean([figures["cpu seconds"] for figures in splits]))}
    for key in splits[0]:
        way, _, fold = key.partition(", ")
        if way == "alone":
            told[key] = float(np.concatenate([figures[key] for figures in splits]).mean())
        elif fold:
            gains = [figures[key] - of[f"instead, {fold}"] for figures, of in zip(splits, today, strict=True)]
            gain = np.concatenate(gains)
            told[key] = {
                "ndcg@100": float(np.concatenate([figures[key] for figures in splits]).mean()),
                "gain": float(gain.mean()),
                "standard error": float(gain.std() / np.sqrt(len(gain))),
                "gain of each split": [float(each.mean()) for each in gains],
            }
    return told


if __name__ == "__main__":
    main()
