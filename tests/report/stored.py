"""Real results of small models, for what is made of a results store."""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from conftest import raw
from recfusion.data.interactions import Interactions
from recfusion.data.prepare import prepare
from recfusion.data.protocol import Protocol
from recfusion.data.settings import Preparation, SplitPlan
from recfusion.data.split import split
from recfusion.experiments.compare import run_model
from recfusion.experiments.store import Row, append_row

METRICS = ("recall@5", "ndcg@10")
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "popularity": ("popularity", {}),
    "ease": ("ease", {"l2": 10.0}),
    "small": ("recfusion", {"width": 8, "max_epochs": 3}),
}


def small_data() -> Interactions:
    """Return 90 users in three groups with items of their own, five to nine each."""
    rng = np.random.default_rng(1)
    pairs = {(user, int(item) + 10 * (user % 3)) for user in range(90) for item in rng.permutation(10)[: 5 + user % 5]}
    users, items = zip(*sorted(pairs), strict=True)
    return prepare(raw({"user": [f"u{u}" for u in users], "item": [f"i{i}" for i in items]}), Preparation())


@cache
def stored_rows() -> tuple[Row, ...]:
    """Return three models, one of them a network, on two splits; EASE is on the second one alone."""
    data = small_data()
    protocol = Protocol.of(data, SplitPlan(), METRICS)
    found = []
    for seed in (0, 1):
        parts = split(data, seed=seed)
        for label, (model, settings) in MODELS.items():
            if (label, seed) != ("ease", 0):
                found.append(Row.of(run_model(data, protocol, parts, model, settings, name=label), threads=1))
    return tuple(found)


def write_store(path: Path) -> Path:
    """Write a results store with those rows."""
    for row in stored_rows():
        append_row(path, row)
    return path
