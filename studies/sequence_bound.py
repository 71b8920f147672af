"""Likelihoods and bounds of test users' ordered histories in nats, for models that read the order.

    python studies/sequence_bound.py --data ml-100k --out studies/results/ml-100k-sequence-bound.json

Models are fitted on the training users of a per-user temporal split (split 0) and measured on the whole ordered rows
of its test users (docs/explanation/signals.md). The likelihood is that of the model's own noise, by `Ordered`: exact,
and by the bound that its loss uses; then with a cut at every place, the likelihood of next-item prediction. The
reference is popularity; differences are paired by user. All have the same distribution of lengths.
One thread; `--quick` trains for an epoch.
"""

import os

os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}  # before numpy and torch

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import recfusion as rf
from ordered import Ordered
from recfusion.core.arrays import Csr, IntArray, column_counts
from recfusion.core.files import write_json
from recfusion.core.rng import stream
from recfusion.data.interactions import Signal
from recfusion.data.signals import whole_extra
from recfusion.models.registry import make_model
from recfusion.models.sequence.sequential import SequentialRecommender
from sequence_likelihood import ordered_nats
from thinning_bound import length_shares

MODELS = ("sasrec", "recfusion-seq")
USED: tuple[Signal, ...] = ("times",)


def main() -> None:
    """Fit, measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--data", default="ml-100k", help="data set of the catalog")
    parser.add_argument("--quick", action="store_true", help="one epoch: to see that it runs")
    parser.add_argument("--out", type=Path, help="JSON file for the figures")
    options = parser.parse_args()
    torch.set_num_threads(1)
    data = rf.load(options.data)
    parts = rf.split(data, rf.SplitPlan(kind="temporal"), seed=0, used=USED)
    everything = whole_extra(data, USED)
    assert everything is not None
    users, extra = data.matrix[parts.test.users], everything.rows(parts.test.users)
    lengths = np.bincount(np.diff(parts.train.indptr)).astype(np.int64)
    found: dict[str, Any] = {"data": options.data, "split": 0, "users": users.shape[0]}
    found["items per user"] = users.nnz / users.shape[0]
    found["the length alone"] = summary(-torch.from_numpy(np.log(of_lengths(users, lengths))))
    of = {"popularity": popularity(parts.train, users, lengths)}  # exact nats of each user
    found["popularity"] = {"exact": summary(of["popularity"])}
    print(found, flush=True)
    for name in MODELS:
        model = make_model(name, {"max_epochs": "1"} if options.quick else {})
        assert isinstance(model, SequentialRecommender)
        model.fit(parts.train, parts.valid, rng=stream(0, f"fit {name}"), extra=parts.extra)
        rows = model.encoded(users, extra)
        own, one_by_one = (ordered_nats(model, rows, lengths, noise) for noise in (None, Ordered(1.0)))
        found[name] = {"reach": model.reach, "exact": summary(own[:, 0]), "bound": summary(own[:, 1])}
        found[name]["exact, one by one"] = summary(one_by_one[:, 0])
        found[name] |= {f"exact minus {other}": summary(own[:, 0] - nats) for other, nats in of.items()}
        of[name] = own[:, 0]
        print(name, found[name], flush=True)
    if options.out:
        write_json(options.out, found)


def popularity(train: Csr, users: Csr, lengths: IntArray) -> Tensor:
    """Return -log p of each user's sequence where every item is drawn by its popularity among those left, (users,)."""
    logits = torch.from_numpy(np.log(column_counts(train) + 0.5))
    rows = map(torch.from_numpy, np.split(users.indices.astype(np.int64), users.indptr[1:-1]))
    # In which order the same items come changes little; that of the columns is as good as any.
    each = [-Ordered(1.0).log_prob(logits.expand(len(row), -1), row) for row in rows]
    return torch.stack(each) - torch.from_numpy(np.log(of_lengths(users, lengths)))


def of_lengths(users: Csr, lengths: IntArray) -> Any:
    """Return the share of training users with as many items as each user has, (users,)."""
    return length_shares(lengths, users.shape[1])[np.diff(users.indptr)]


def summary(nats: Tensor) -> dict[str, float]:
    """Return the mean over users and its standard error."""
    return {"nats per user": float(nats.mean()), "standard error": float(nats.std() / len(nats) ** 0.5)}


if __name__ == "__main__":
    main()
