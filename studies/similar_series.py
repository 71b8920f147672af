"""Which similarity of items finds the films of a series: the model's own, and other ways to correct it for popularity.

    RECFUSION_DATA=... python studies/similar_series.py ml-latest-small ml-1m

A series is a set of films with the same beginning of the title (before a colon, without numbers). Measured over the
eight most similar items: the share of an item's series among them, for all items and for the 300 best-known; how often
users of the test set who have the item have these, too; the overlap of genres; and how many items are similar to any.
"""

import argparse
import re
from collections import defaultdict

import numpy as np
from numpy.typing import NDArray

import recfusion as rf
from recfusion.core.arrays import FloatArray, binary_csr, column_counts
from recfusion.data.split import split

K = 8
KNOWN = 300


def series_key(title: str) -> tuple[str, ...]:
    """Return the words of a title before a colon, without articles, numbers and the year."""
    head = re.split(r":| - ", re.sub(r"\s*\([^)]*\)", "", title))[0]
    words = [word for word in re.findall(r"\w+", head.lower()) if word not in ("the", "a", "an")]
    while len(words) > 1 and re.fullmatch(r"\d{1,2}|[ivx]+|part|vol", words[-1]):
        words.pop()
    return tuple(words)


def in_one_series(titles: list[str]) -> NDArray[np.bool_]:
    """Return which items belong to one series, (items, items): keys that are equal, or that begin with the other."""
    found, by_key = np.zeros((len(titles), len(titles)), bool), defaultdict(list)
    for place, title in enumerate(titles):
        by_key[series_key(title)].append(place)
    for key, own in by_key.items():
        if not key or (len(key) == 1 and len(key[0]) < 5):
            continue
        longer = [place for other, places in by_key.items() if other[: len(key)] == key for place in places]
        if 2 <= len(longer) <= 15 and own:
            found[np.ix_(longer, longer)] = True
    np.fill_diagonal(found, False)
    return found


def raises(bundle: rf.Bundle) -> FloatArray:
    """Return how much each item alone raises the scores of the others, (items, items)."""
    n = len(bundle.items)
    empty = bundle.model.score(binary_csr(np.array([0, 0]), np.array([], int), n))[0]
    rows = [
        bundle.model.score(binary_csr(np.arange(len(some) + 1), some, n)) for some in np.array_split(np.arange(n), 10)
    ]
    found = np.maximum(np.vstack(rows) - empty, 0)
    np.fill_diagonal(found, 0)
    return found


def study(name: str) -> None:
    data = rf.load(name)
    bundle = rf.train("thinning-linear", data)
    parts = split(data, bundle.protocol.plan, seed=0)
    counts = column_counts(parts.train)
    prior = np.maximum(counts, 1) / counts.mean()
    own = raises(bundle)
    together = (parts.train.T @ parts.train).toarray()
    np.fill_diagonal(together, 0)
    cosine = together / np.sqrt(np.outer(np.maximum(counts, 1), np.maximum(counts, 1)))
    profile = own / np.maximum(np.linalg.norm(own, axis=1, keepdims=True), 1e-9)
    profiles = profile @ profile.T
    np.fill_diagonal(profiles, 0)
    variants = {f"r_ij n_j^-{power:g}": own * prior**-power for power in (0, 0.25, 0.5, 1)}
    variants |= {"r_ji (the other direction)": own.T, "root of r_ij r_ji": np.sqrt(own * own.T)}
    variants |= {"cosine of the rows of r": profiles, "cosine of co-occurrence": cosine}
    series = in_one_series(bundle.items["title"].to_list())
    users = (parts.test.history + parts.test.held_out).tocsr()
    common, test_counts = (users.T @ users).toarray(), np.maximum(column_counts(users), 1)
    genres = bundle.categories("genres").matrix.astype(float)
    genres = genres.toarray() if hasattr(genres, "toarray") else np.asarray(genres)
    shared = genres @ genres.T / np.maximum(genres.sum(1)[:, None] + genres.sum(1) - genres @ genres.T, 1)
    has, known = series.any(1), np.argsort(-counts)[:KNOWN]
    print(f"\n{name}: {int(has.sum())} items in series\n")
    print(f"| similarity | series | of the {KNOWN} best-known | users have both | genres | items |")
    print("|---|---:|---:|---:|---:|---:|")
    rows = np.arange(len(counts))[:, None]
    for label, matrix in variants.items():
        top = np.argsort(-matrix, axis=1, kind="stable")[:, :K]
        share = series[rows, top].sum(1) / np.maximum(np.minimum(series.sum(1), K), 1)
        both = np.average((common[rows, top] / test_counts[:, None]).mean(1), weights=column_counts(users))
        best_known = share[np.intersect1d(known, np.flatnonzero(has))].mean()
        figures = (share[has].mean(), best_known, both, shared[rows, top].mean(), len(np.unique(top)) / len(counts))
        print(f"| {label} | {' | '.join(f'{100 * value:.1f}' for value in figures)} |", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("data", nargs="+")
    for asked in parser.parse_args().data:
        study(asked)
