"""Small data that several tests share."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch

from recfusion.core.arrays import Csr, binary_csr
from recfusion.data.interactions import Interactions
from recfusion.data.prepare import prepare
from recfusion.data.raw import RawData, ReadReport
from recfusion.data.settings import Preparation

torch.set_num_threads(1)  # nets this small lose more by waiting for a second thread than they gain


def csr(rows: list[list[int]], n_columns: int) -> Csr:
    """Return the 0/1 matrix with ones at the listed columns of each row."""
    indptr = np.concatenate([[0], np.cumsum([len(row) for row in rows])])
    return binary_csr(indptr, np.array([column for row in rows for column in row], np.int64), n_columns)


def random_csr(n_users: int, n_items: int, density: float, seed: int) -> Csr:
    """Return a random 0/1 matrix in which every row has at least one entry."""
    dense = np.random.default_rng(seed).random((n_users, n_items)) < density
    dense[np.arange(n_users), np.arange(n_users) % n_items] = True
    return csr([np.flatnonzero(row).tolist() for row in dense], n_items)


def raw(rows: Mapping[str, Sequence[object]], items: pl.DataFrame | None = None) -> RawData:
    """Return raw data as a reader would."""
    frame = pl.DataFrame(rows, schema_overrides={"rating": pl.Float32} if "rating" in rows else None)
    return RawData("made up", frame, items, ReadReport(len(frame)))


@pytest.fixture
def groups() -> Interactions:
    """Four groups of users with tastes of their own: 80 users, 40 items, a fifth of each group's items each."""
    rng = np.random.default_rng(0)
    user, item = [], []
    for number in range(80):
        group = number % 4
        own = rng.permutation(np.arange(10 * group, 10 * group + 10))[:7]
        other = rng.permutation(40)[:2]
        for column in np.unique(np.concatenate([own, other])):
            user.append(f"u{number:02d}")
            item.append(f"i{column:02d}")
    times = list(range(len(user)))
    titles = pl.DataFrame({"item": [f"i{n:02d}" for n in range(40)], "title": [f"Item {n}" for n in range(40)]})
    return prepare(raw({"user": user, "item": item, "time": times}, titles), Preparation())


@pytest.fixture
def data_folder() -> Path:
    """The folder of local copies of the published data sets; tests that need it are skipped where there is none."""
    folder = os.environ.get("RECFUSION_DATA")
    if not folder:
        pytest.skip("RECFUSION_DATA names no folder with local copies of the data sets")
    return Path(folder)
