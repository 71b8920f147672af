"""Re-orders of the following week: `--again` against simple rules and TIFU-kNN, on the last weeks of Online Retail.

    RECFUSION_DATA=../shared/data python studies/repeat_purchases.py --out studies/results/repeat_purchases.md

For each week, a model is trained on the orders before it, and everybody who orders in it gets a list of ten. A re-order
is an item that the user bought before and did not return. Baselines, as in "A next basket recommendation reality check"
(Li et al., 2023), rank the items that a user bought:

    most recent     by the time of the last purchase, then by frequency
    most frequent   by the number of baskets with the item, then by the last purchase
    GP-TopFreq      personal top frequency: by the number of baskets with the item, then by the number of all its users
    TIFU-kNN        by decayed frequencies in groups of baskets, mixed with those of the nearest users (Hu et al., 2020)

TIFU-kNN has its authors' settings for a grocery shop. Intervals are over users, paired, with all weeks of a user
together.
"""

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl

import recfusion as rf
from recfusion.core.arrays import FloatArray, IntArray
from recfusion.data.options import Preparation
from recfusion.data.purchases import DAY, Numbers, Pairs, Purchases
from recfusion.evaluation.scoring import scores as model_scores
from recfusion.evaluation.significance import bootstrap_means, paired_difference
from recfusion.inference.bundle import Bundle
from recfusion.inference.histories import Histories, parse_histories
from recfusion.inference.lists import ListMaker
from recfusion.inference.request import Filters

K = 10
GROUP, WITHIN, ACROSS, NEIGHBOURS, OWN = 7, 0.9, 0.7, 300, 0.7  # of TIFU-kNN
RULES = ("most recent", "most frequent", "GP-TopFreq", "TIFU-kNN")
MODES = ("--again only", "--again allowed", "--again never", "scores of the model alone")


def read_orders(path: Path) -> pl.DataFrame:
    """Return user, item, quantity and time of the orders."""
    rows = pl.read_csv(path, infer_schema_length=0).select(
        user="u" + pl.col("CustomerID"),
        item="StockCode",
        quantity=pl.col("Quantity").cast(pl.Float64),
        time=pl.col("InvoiceDate").str.to_datetime("%Y-%m-%d %H:%M:%S").dt.epoch("s"),
    )
    return rows.drop_nulls()


def user_vectors(bought: Purchases, n_users: int, n_items: int) -> FloatArray:
    """Return TIFU's user vectors, (users, items): means of groups of baskets, newer ones count for more."""
    basket = np.unique(np.stack([bought.user, (bought.time // DAY).astype(np.int64)]), axis=1)
    count = np.bincount(basket[0], minlength=n_users)
    start = np.concatenate([[0], np.cumsum(count)])
    days = basket[0] * 10**6 + basket[1]
    place = np.searchsorted(days, bought.user * 10**6 + (bought.time // DAY).astype(np.int64))
    place = place - start[bought.user]  # of each purchase's basket among those of its user, oldest first
    back = count[bought.user] - 1 - place
    group = back // GROUP
    groups = -(-count // GROUP)[bought.user]
    size = np.minimum(GROUP, count[bought.user] - group * GROUP)
    weight = WITHIN ** (back % GROUP) / size * ACROSS**group / groups
    vectors = np.zeros((n_users, n_items), np.float32)
    key = np.unique(np.stack([bought.user, bought.item, place]), axis=1, return_index=True)[1]  # once in a basket
    np.add.at(vectors, (bought.user[key], bought.item[key]), weight[key])
    return vectors


def tifu_scores(vectors: FloatArray, users: IntArray) -> FloatArray:
    """Return TIFU-kNN's scores of some users, (users, items)."""
    squares = (vectors**2).sum(1)
    found = np.empty((len(users), vectors.shape[1]), np.float32)
    for row, user in enumerate(users):
        distance = squares - 2 * vectors @ vectors[user]
        distance[user] = np.inf
        near = np.argpartition(distance, NEIGHBOURS)[:NEIGHBOURS]
        found[row] = OWN * vectors[user] + (1 - OWN) * vectors[near].mean(0)
    return found


def rule_scores(pairs: Pairs, bought: Purchases, n_users: int, n_items: int) -> dict[str, Numbers]:
    """Return the score of each pair by each rule."""
    users = np.bincount(pairs.item, minlength=n_items)[pairs.item]
    tifu = tifu_scores(user_vectors(bought, n_users, n_items), np.arange(pairs.user.max() + 1))
    scores = (
        pairs.last + pairs.count,
        pairs.count + pairs.last / 1e12,
        pairs.count + users / 1e7,
        tifu[pairs.user, pairs.item].astype(np.float64),
    )
    return dict(zip(RULES, scores, strict=True))


def best(pairs: Pairs, scores: Numbers, n_users: int) -> list[list[int]]:
    """Return the K best items of each user."""
    lists: list[list[int]] = [[] for _ in range(n_users)]
    for place in np.lexsort((-scores, pairs.user)).tolist():
        if len(own := lists[pairs.user[place]]) < K:
            own.append(int(pairs.item[place]))
    return lists


def model_lists(bundle: Bundle, histories: Histories) -> dict[str, list[list[int]]]:
    """Return the lists of the model for each setting, and those of its own scores with all bought items."""
    found = {}
    for mode in MODES[:3]:
        maker = ListMaker.of(bundle, Filters.model_validate({"again": mode.split()[1]}))
        found[mode] = [[item for item in row if item >= 0] for row in maker.lists(histories, K).items.tolist()]
    scores = model_scores(bundle.model, histories.matrix, histories.extra)
    found[MODES[3]] = np.argsort(-scores, axis=1, kind="stable")[:, :K].tolist()
    return found


def judge_week(rows: pl.DataFrame, cut: int, model: str) -> list[tuple[str, str, int, int, int, int]]:
    """Return (method, user, re-orders found, re-orders, purchases found, purchases) of the week after `cut`."""
    past = rows.filter(pl.col("time") < cut)
    week = rows.filter((pl.col("time") >= cut) & (pl.col("time") < cut + 7 * DAY) & (pl.col("quantity") > 0))
    data = rf.load(past, Preparation(min_users_per_item=5), name="orders")
    bundle = rf.train(model, data, {"tune_trials": 0}, all_users=True, signals="binary")
    histories = parse_histories(bundle, past.filter(pl.col("user").is_in(week["user"].unique().implode())))
    pairs, users = histories.purchases, histories.users
    assert pairs is not None
    assert users is not None
    column = {item: place for place, item in enumerate(bundle.items["item"])}
    next_items: dict[str, set[int]] = {user: set() for user in users}
    for user, item in week.select("user", "item").iter_rows():
        if user in next_items and item in column:
            next_items[user].add(column[item])
    known = past.filter((pl.col("quantity") > 0) & pl.col("item").is_in(bundle.items["item"].implode()))
    everybody = pl.concat([users, known["user"]]).unique(maintain_order=True)
    number = {user: place for place, user in enumerate(everybody)}
    bought = Purchases(
        np.array([number[user] for user in known["user"]]),
        np.array([column[item] for item in known["item"]]),
        known["time"].to_numpy().astype(np.float64),
    )
    scores = rule_scores(pairs, bought, len(everybody), len(column))
    lists = {name: best(pairs, own, len(users)) for name, own in scores.items()} | model_lists(bundle, histories)
    found = []
    for method, own in lists.items():
        for place, user in enumerate(users):
            history = set(histories.matrix[[place]].indices.tolist())
            wanted, again = next_items[user], next_items[user] & history
            hits = wanted & set(own[place])
            if wanted:
                found.append((method, user, len(hits & again), len(again), len(hits), len(wanted)))
    return found


def table(rows: pl.DataFrame, hits: str, total: str, methods: Sequence[str], ours: str) -> list[str]:
    """Return a Markdown table of the methods: found items, mean recall of users, and our gain over each."""
    rows = rows.filter(pl.col(total) > 0).sort("method", "week", "user")
    recall = {name: rows.filter(pl.col("method") == name) for name in methods}
    users = np.unique(recall[ours]["user"].to_numpy(), return_inverse=True)[1]
    values = np.stack([(own[hits] / own[total]).to_numpy() for own in recall.values()], axis=1)
    drawn = bootstrap_means(users, values)
    place = methods.index(ours)
    lines = [f"| list of {K} | found | recall | {ours} minus it (95 % interval over users) |", "|---|---:|---:|---:|"]
    for number, name in enumerate(methods):
        own, gain = (
            recall[name],
            paired_difference(values[:, place], values[:, number], drawn[:, place], drawn[:, number]),
        )
        low, high = (100 * end for end in gain.ci95 or (np.nan, np.nan))
        interval = "" if name == ours else f"{100 * gain.difference:+.1f} ({low:+.1f} to {high:+.1f})"
        count = f"{own[hits].sum():,} of {own[total].sum():,}"
        lines.append(
            f"| {name} | {count} | {100 * values[:, number].mean():.1f} | {interval} |".replace("-0.0 ", "0.0 ")
        )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weeks", type=int, default=8)
    parser.add_argument("--model", default="thinning-linear")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    rows = read_orders(Path(os.environ["RECFUSION_DATA"]) / "online-retail" / "online-retail.csv.gz")
    end, found = int(rows["time"].max()), []  # type: ignore[arg-type]
    for week in range(given.weeks, 0, -1):
        found += [(week, *row) for row in judge_week(rows, end + 1 - 7 * DAY * week, given.model)]
        print(f"{week} weeks before the end: done", flush=True)
    columns = ["week", "method", "user", "again", "reorders", "hits", "bought"]
    results = pl.DataFrame(found, schema=columns, orient="row")
    lines = [
        "# Re-orders of the following week",
        "",
        f"`python studies/repeat_purchases.py --weeks {given.weeks} --model {given.model}`: each of the "
        "last weeks of Online Retail is predicted from all orders before it. Recall in percent, the mean of all users.",
        "",
        "Items that users bought before:",
        "",
        *table(results, "again", "reorders", [*RULES, *MODES[:2], MODES[3]], MODES[0]),
        "",
        "All items that users bought in the week:",
        "",
        *table(results, "hits", "bought", [*RULES, *MODES], MODES[1]),
    ]
    print("\n".join(lines))
    if given.out is not None:
        given.out.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
