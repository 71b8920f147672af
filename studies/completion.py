"""Completing real baskets: half of an invoice is hidden, and n items, as many as are hidden, complete the rest.

    python studies/completion.py online-retail.csv.gz --out studies/results/completion.json

The invoices of the Online Retail data (products with a plain number, bought in at least ten invoices of 4 to 200
kinds) are the users of the models here: 1,500 are kept for the test, 1,000 to choose settings on. Per invoice:

    recall     share of the n suggested items that were in the hidden half
    pairs      share of the pairs of suggested items that were both in it
    coherence  mean cosine of co-occurrence, in the training invoices, over the pairs of suggested items

`top n` takes the n best scores; `greedy` adds the best item, scores again with it in the basket, and goes on;
`complete` is the search of `rf.complete`. Intervals are over invoices, for the difference to thinning-linear's top n.
"""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

import recfusion as rf
from recfusion.core.arrays import Csr, FloatArray, IntArray, binary_csr, column_counts
from recfusion.core.files import write_json
from recfusion.evaluation.significance import bootstrap_means
from recfusion.inference.baskets import _best_set
from recfusion.inference.lists import with_items

TEST, VALID = 1500, 1000
CANDIDATES = 200
SIZES = {"2 to 3": (2, 3), "4 to 10": (4, 10), "more than 10": (11, 10**6)}


def baskets(path: str) -> Csr:
    """Return invoices x products, 0/1; returns and lines that are no products are left out."""
    rows = pl.read_csv(path, infer_schema_length=0).select(
        "InvoiceNo", "StockCode", quantity=pl.col("Quantity").cast(pl.Float64)
    )
    rows = rows.filter((pl.col("quantity") > 0) & pl.col("StockCode").str.contains(r"^\d{5}"))
    rows = rows.filter(~pl.col("InvoiceNo").str.starts_with("C")).unique(["InvoiceNo", "StockCode"])
    rows = rows.filter(pl.len().over("StockCode") >= 10)
    rows = rows.filter(pl.len().over("InvoiceNo").is_between(4, 200))
    rows = rows.with_columns(row=pl.col("InvoiceNo").rank("dense") - 1, column=pl.col("StockCode").rank("dense") - 1)
    rows = rows.sort("row", "column")
    indptr = np.concatenate([[0], np.cumsum(rows.group_by("row").len().sort("row")["len"].to_numpy())])
    return binary_csr(indptr, rows["column"].to_numpy().astype(np.int64), int(rows["column"].max()) + 1)  # type: ignore[arg-type]


def halves(matrix: Csr, rng: np.random.Generator) -> tuple[Csr, Csr]:
    """Return each row's visible and hidden half."""
    hidden = np.zeros(matrix.nnz, bool)
    for start, stop in zip(matrix.indptr[:-1], matrix.indptr[1:], strict=True):
        hidden[start + rng.permutation(stop - start)[: (stop - start) // 2]] = True
    row = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))

    def part(keep: Any) -> Csr:
        counts = np.bincount(row[keep], minlength=matrix.shape[0])
        return binary_csr(np.concatenate([[0], np.cumsum(counts)]), matrix.indices[keep], matrix.shape[1])

    return part(~hidden), part(hidden)


def top(scores: FloatArray, seen: IntArray, n: int) -> IntArray:
    scores = scores.copy()
    scores[seen] = -np.inf
    return np.argsort(-scores, kind="stable")[:n]


def top_n(model: rf.Recommender) -> Callable[[Csr, int], IntArray]:
    return lambda basket, n: top(model.score(basket)[0], basket.indices, n)


def greedy(model: rf.Recommender) -> Callable[[Csr, int], IntArray]:
    def completed(basket: Csr, n: int) -> IntArray:
        added: list[int] = []
        for _ in range(n):
            now = with_items(basket, np.zeros(len(added), np.int64), np.array(added, np.int64))
            added.append(int(top(model.score(now)[0], now.indices, 1)[0]))
        return np.array(added)

    return completed


def searched(model: rf.Recommender, counts: IntArray, together: float) -> Callable[[Csr, int], IntArray]:
    from recfusion.inference.similarity import Similarity

    similarity = Similarity(model, counts)

    def completed(basket: Csr, n: int) -> IntArray:
        scores = model.score(basket)[0]
        found = top(scores, basket.indices, max(CANDIDATES, 5 * n))
        return found[_best_set(scores[found].astype(np.float64), similarity.among(found), n, together)]

    return completed


def measure(complete: Callable[[Csr, int], IntArray], shown: Csr, hidden: Csr, cosine: FloatArray) -> FloatArray:
    """Return (invoices, 3): recall, pairs, coherence."""
    found = []
    for row in range(shown.shape[0]):
        wanted = hidden.indices[hidden.indptr[row] : hidden.indptr[row + 1]]
        items = complete(shown[[row]], len(wanted))
        hits, n = int(np.isin(items, wanted).sum()), len(items)
        off = ~np.eye(n, dtype=bool)
        found.append((hits / n, hits * (hits - 1) / (n * (n - 1)), cosine[np.ix_(items, items)][off].mean()))
    return np.array(found, np.float32)


def main() -> None:
    """Fit, complete, measure, and print a table."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("invoices")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    matrix, rng = baskets(arguments.invoices), np.random.default_rng(0)
    order = rng.permutation(matrix.shape[0])
    train = matrix[np.sort(order[TEST + VALID :])]
    shown, hidden = halves(matrix[np.sort(order[:TEST])], rng)
    valid = rf.Fold(np.arange(VALID), *halves(matrix[np.sort(order[TEST : TEST + VALID])], rng))
    counts = column_counts(train)
    root = np.sqrt(np.maximum(counts, 1)).astype(np.float32)
    cosine = (train.T @ train).toarray() / np.outer(root, root)
    ease, linear = (rf.make_model(name, {}).fit(train, valid, rng=0) for name in ("ease", "thinning-linear"))
    ways = {
        "ease, top n": top_n(ease),
        "thinning-linear, top n": top_n(linear),
        "thinning-linear, greedy": greedy(linear),
        **{f"thinning-linear, complete ({g:g})": searched(linear, counts, g) for g in (0.1, 0.25, 0.5)},
    }
    several = np.flatnonzero(np.diff(hidden.indptr) >= 2)
    shown, hidden = shown[several], hidden[several]
    sizes = np.diff(hidden.indptr)
    values = {name: measure(way, shown, hidden, cosine) for name, way in ways.items()}
    base = values["thinning-linear, top n"]
    document: dict[str, Any] = {"invoices": len(several), "products": matrix.shape[1], "ways": {}}
    for name, own in values.items():
        drawn = bootstrap_means(several, (own - base)[:, :1].astype(np.float64))[:, 0]
        row: dict[str, Any] = {
            name: round(float(value), 4)
            for name, value in zip(("recall", "pairs", "coherence"), own.mean(0), strict=True)
        }
        row["recall, difference"] = np.quantile(drawn, [0.025, 0.975]).round(4).tolist()
        row |= {
            f"recall, {size}": round(float(own[(sizes >= low) & (sizes <= high), 0].mean()), 4)
            for size, (low, high) in SIZES.items()
        }
        document["ways"][name] = row
        print(name, row, flush=True)
    if arguments.out:
        write_json(arguments.out, document)


if __name__ == "__main__":
    main()
