"""Bounds of -log p(x^0) of test users in nats, for all models with a likelihood.

    python studies/bound.py --data ml-100k --out studies/results/ml-100k-bound.json

Networks are trained on split 0. The rows are history and held-out items of the test users together. Each bound belongs
to its own process and prior; all are upper bounds of -log p(x_0) of the same rows of zeros and ones, and every prior
uses the same smoothed training means. Binary processes: `recfusion-bin` as it ranks best, the same net
trained on its bound with each process (paper kernel, bit flips, drift, thinning), with fixed rates and with learned
ones, and `thinning-deep`. A Gaussian process has a density of real numbers, and a multinomial likelihood (MultVAE,
RecVAE) has none of a user's length, so they are not comparable. Independent items, each with its mean, have an exact
-log p. They ignore the users' lengths, which alone saves much: so the thinning process is also measured with a denoiser
that always ranks by popularity. One thread; `--quick` trains for two epochs. Each row is written when it is finished,
and an interrupted run resumes.
"""

import os

os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}  # before numpy and torch

import argparse
import copy
import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import recfusion as rf
from recfusion.core.arrays import Csr, column_counts
from recfusion.core.files import write_json
from recfusion.core.rng import stream
from recfusion.diffusion import Bound, elbo
from recfusion.evaluation.evaluate import batches
from recfusion.models.recfusion.recfusion import RecFusion
from recfusion.models.registry import make_model
from recfusion.models.settings import setting_values
from recfusion.models.thinning.deep import ThinningDeep
from recfusion.training.batches import dense
from thinning_bound import thinning_bound

PROCESSES = ("paper-kernel", "bit-flips", "drift", "thinning")
# One net and one start for every process; early stopping would look at ranking, so all have as many epochs.
BOUND_SETTINGS: dict[str, Any] = {
    "objective": "elbo",
    "time": "input",
    "T": 6,
    "schedule": "linear",
    "beta_low": 0.1,
    "beta_high": 0.5,
    "lr": 3e-3,
    "weight_decay": 0.5,
    "batch_size": 25,
    "max_epochs": 40,
    "patience": 40,
}
STEPS = 200
DRAWS = 16  # steps drawn for each user of the deep denoiser; recfusion-bin has all its steps that often


def main() -> None:
    """Train the networks, measure them on the same rows, and print the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--data", default="ml-1m", help="data set of the catalog")
    parser.add_argument("--quick", action="store_true", help="two epochs and few draws: to see that it runs")
    parser.add_argument("--out", type=Path, help="JSON file for the figures")
    options = parser.parse_args()
    torch.set_num_threads(1)
    parts = rf.split(rf.load(options.data), seed=0)
    users = parts.test.history + parts.test.held_out  # whole rows
    means = torch.from_numpy((column_counts(parts.train) + 0.5) / (parts.train.shape[0] + 1))
    draws = 2 if options.quick else DRAWS
    short = {"max_epochs": 2} if options.quick else {}

    found: dict[str, Any] = {
        "data": options.data,
        "split": 0,
        "users": users.shape[0],
        "items": users.shape[1],
        "items per user": users.nnz / users.shape[0],
        "quick": options.quick,
        "nats per user": {},
    }
    if options.out and options.out.exists():  # what an interrupted run has measured
        before = json.loads(options.out.read_text(encoding="utf-8"))
        if {**before, "nats per user": {}} == found:
            found = before

    def measured(label: str, row: Callable[[], dict[str, Any]]) -> None:
        if label not in found["nats per user"]:
            found["nats per user"][label] = row()
            if options.out:
                write_json(options.out, found)

    def plain(name: str, settings: dict[str, Any]) -> dict[str, Any]:
        model, judged = fitted(name, settings | short, parts)
        assert isinstance(model, RecFusion)
        return judged | recfusion_bound(model, users, means, draws)

    def deep(popular: bool) -> dict[str, Any]:
        model, judged = fitted("thinning-deep", {"max_epochs": 1} if popular else short, parts)
        assert isinstance(model, ThinningDeep)
        if popular:
            return drawn_steps(by_popularity(model, means), users, means, draws)
        return judged | drawn_steps(model, users, means, draws)

    measured("independent items (exact)", lambda: summary(independent(users, means)))
    measured("thinning by popularity", lambda: deep(popular=True))
    measured("thinning-deep", lambda: deep(popular=False))
    measured("recfusion-bin", lambda: plain("recfusion-bin", {}))
    for process in PROCESSES:
        for learned in (False, True):
            settings = BOUND_SETTINGS | {"process": process, "learned_schedule": learned}
            label = f"{process}, trained on its bound, {'learned' if learned else 'fixed'} rates"
            measured(label, functools.partial(plain, "recfusion", settings))
    print(json.dumps(found, indent=2))


def fitted(name: str, settings: dict[str, Any], parts: rf.Split) -> tuple[rf.Recommender, dict[str, Any]]:
    """Return a model trained on the split, with its settings and its test NDCG@100."""
    model = make_model(name, settings).fit(parts.train, parts.valid, rng=stream(0, f"fit {name}"))
    ndcg = rf.evaluate(model, parts.test, parts.train, ("ndcg@100",), threads=1).mean()
    return model, {"settings": setting_values(model), "test ndcg@100": ndcg["ndcg@100"]}


def independent(users: Csr, means: Tensor) -> Tensor:
    """-log p(x_0) where every item is there with its mean, (users,)."""
    present = torch.from_numpy(users @ (means.log() - torch.log1p(-means)).numpy())
    return -present - torch.log1p(-means).sum()


def recfusion_bound(model: RecFusion, users: Csr, means: Tensor, draws: int) -> dict[str, Any]:
    """Return what RecFusion's own process and net cost."""
    return {"steps": model.T} | by_parts(users, lambda rows, rng: every_step(model, rows, means, rng, draws))


@torch.no_grad()
def every_step(model: RecFusion, users: Csr, means: Tensor, rng: torch.Generator, draws: int) -> Bound:
    """Return the bound of RecFusion's own process and net, the mean of `draws` estimates with all steps each."""
    process = model.make_process(means)
    found = [elbo(process, model.net_, dense(users), rng) for _ in range(draws)]
    return Bound(*(torch.stack([getattr(one, name) for one in found]).mean(0) for name in ("L_T", "L_steps", "L_0")))


def drawn_steps(model: ThinningDeep, users: Csr, means: Tensor, draws: int) -> dict[str, Any]:
    """Return what the thinning process with this denoiser costs."""

    def bound(rows: Csr, rng: torch.Generator) -> Bound:
        return thinning_bound(model, rows, means, rng, steps=STEPS, draws=draws)

    return {"steps": STEPS, "steps drawn for each user": draws} | by_parts(users, bound)


def by_popularity(model: ThinningDeep, means: Tensor) -> ThinningDeep:
    """Return a copy whose logits are the logarithms of the items' means, whatever it sees."""
    blind = copy.deepcopy(model)
    decoder = blind.net_.get_submodule("decoder")
    assert isinstance(decoder, torch.nn.Linear)
    with torch.no_grad():
        decoder.weight.zero_()
        decoder.bias.copy_(means.log())
    return blind


def by_parts(users: Csr, bound: Callable[[Csr, torch.Generator], Bound]) -> dict[str, Any]:
    """Return mean and standard error of the bound over users, and the means of its three parts."""
    rng = torch.Generator().manual_seed(0)
    found = [bound(users[rows], rng) for rows in batches(*users.shape)]
    total = torch.cat([one.total for one in found])
    shares = {
        name: float(torch.cat([getattr(one, name) for one in found]).mean()) for name in ("L_T", "L_steps", "L_0")
    }
    return summary(total) | shares


def summary(values: Tensor) -> dict[str, float]:
    """Return mean and standard error over users."""
    plain = values.double().numpy()
    return {"mean": float(plain.mean()), "standard error": float(plain.std(ddof=1) / np.sqrt(len(plain)))}


if __name__ == "__main__":
    main()
