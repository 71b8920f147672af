"""Exported splits, and lists of other programs under the same protocol."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from recfusion.core.errors import InputError
from recfusion.data.interactions import Interactions
from recfusion.data.load import load
from recfusion.data.options import SplitPlan
from recfusion.data.protocol import Protocol
from recfusion.data.split import split
from recfusion.evaluation.evaluate import evaluate
from recfusion.experiments.comparison import Comparison, compare
from recfusion.experiments.foreign_lists import judge_lists, read_lists
from recfusion.experiments.result import append_result, read_results
from recfusion.experiments.split_export import CARD, ExportForm, export_split, read_split
from recfusion.models.linear.ease import EASE

METRICS = ("recall@5", "ndcg@10")


@pytest.fixture(scope="module")
def data() -> Interactions:
    return load("ml-latest-small")


def pairs(frame: pl.DataFrame) -> set[tuple[object, ...]]:
    return set(frame.select(frame.columns[:2]).rows())


@pytest.mark.parametrize("kind", ["strong", "weak", "leave-one-out", "global"])
@pytest.mark.parametrize("form", ["csv", "recbole", "elliot", "lenskit", "recpack"])
def test_exported_files_hold_the_parts_of_the_split(
    groups: Interactions, tmp_path: Path, form: ExportForm, kind: str
) -> None:
    plan = SplitPlan.model_validate({"kind": kind})
    counts = export_split(groups, tmp_path / "out", plan=plan, seed=3, metrics=METRICS, form=form)
    assert {*counts, CARD} == {file.name for file in (tmp_path / "out").iterdir()}
    tab, head = "\t" if form in ("recbole", "elliot") else ",", form != "elliot"
    read = {
        name: pairs(pl.read_csv(tmp_path / "out" / file, separator=tab, has_header=head))
        for file in counts
        for name in ("train", "valid", "test")
        if name in file and "history" not in file
    }
    parts = split(groups, plan, seed=3)
    ids = [str(item) for item in groups.items]
    for name, fold in (("valid", parts.valid), ("test", parts.test)):
        wanted = {
            (groups.users[int(user)], ids[item])
            for row, user in enumerate(fold.users)
            for item in fold.held_out[[row]].indices
        }
        assert read[name] == wanted
    assert not read["train"] & (read["valid"] | read["test"])
    learned = {
        (groups.users[int(user)], ids[item])
        for row, user in enumerate(parts.train_users)
        for item in parts.train[[row]].indices
    }
    assert learned <= read["train"]
    known = {user for user, _ in read["train"]}
    assert form == "csv" or {user for user, _ in read["test"]} <= known


def test_lists_of_a_model_get_its_own_numbers_under_its_protocol(data: Interactions, tmp_path: Path) -> None:
    store, folder = tmp_path / "store.jsonl", tmp_path / "split"
    mine = compare(data, {"ease": {"l2": 200}}, [5], metrics=METRICS, store=store)
    export_split(data, folder, plan=SplitPlan(), seed=5, metrics=METRICS)
    found, protocol, parts = read_split(folder)
    assert protocol.hash == mine.protocol.hash
    model = EASE(l2=200).fit(parts.train)
    lists = evaluate(model, parts.test, parts.train, METRICS, shown=range(len(parts.test.users)), length=10).lists
    rows = [
        (found.users[int(u)], found.items[int(i)], -r)
        for u, own in zip(parts.test.users, lists, strict=True)
        for r, i in enumerate(own)
    ]
    shuffled = [rows[n] for n in np.random.default_rng(0).permutation(len(rows))]
    pl.DataFrame(shuffled, schema=["user", "item", "score"], orient="row").write_csv(tmp_path / "lists.csv")
    items, notes = read_lists(tmp_path / "lists.csv", found, parts.test, 10)
    assert notes == ()
    append_result(store, judge_lists(items, "another library", found, protocol, parts, fit_seconds=3))
    both = Comparison.of(read_results(store))
    assert both.models["another library"].metrics["ndcg@10"].mean == both.models["ease"].metrics["ndcg@10"].mean
    assert both.models["another library"].fit_seconds == 3
    test = both.test("ndcg@10", "ease", "another library")
    assert test is not None
    assert test.difference == 0


def small(
    groups: Interactions, tmp_path: Path, rows: Sequence[tuple[object, ...]], names: list[str]
) -> tuple[str, ...]:
    parts = split(groups, seed=1)
    user, history = str(groups.users[int(parts.test.users[0])]), parts.test.history[[0]].indices
    unseen = [n for n in range(40) if n not in history]
    table = [
        tuple(
            {"U": user, "S": f"i{history[0]:02d}", **{f"N{n}": f"i{unseen[n]:02d}" for n in range(3)}}.get(
                str(cell), cell
            )
            for cell in row
        )
        for row in rows
    ]
    pl.DataFrame(table, schema=names, orient="row", strict=False).write_csv(tmp_path / "lists.csv")
    items, notes = read_lists(tmp_path / "lists.csv", groups, parts.test, 3)
    assert (items[1:] == -1).all()
    return (*(f"N{unseen.index(item)}" for item in items[0] if item >= 0), *notes)


def test_seen_repeated_unknown_and_missing_items_are_counted(groups: Interactions, tmp_path: Path) -> None:
    rows = [("U", "N1", 1), ("U", "S", 2), ("U", "N1", 3), ("U", "new", 4), ("U", "N0", 5), ("nobody", "N0", 1)]
    assert small(groups, tmp_path, rows, ["user", "item", "rank"]) == (
        *("N1", "N0"),
        "1 user is not a test user of this split and was left out",
        "1 unknown item was removed",
        "1 item of a shown history was removed",
        "1 repeated item was removed",
        "7 test users have no list and count as misses",
        "1 list has fewer than 3 items",
    )


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["user", "item", "score"], "N2 N1 N0"),
        (["user_id", "item_id", "rank"], "N0 N1 N2"),
        (["user", "item", "x"], "N1 N0 N2"),
    ],
)
def test_lists_are_ordered_by_score_by_rank_or_as_written(
    groups: Interactions, tmp_path: Path, names: list[str], expected: str
) -> None:
    rows = [("U", "N1", 2), ("U", "N0", 1), ("U", "N2", 3)]
    assert small(groups, tmp_path, rows, names)[:3] == tuple(expected.split())


def test_rows_without_a_score_are_counted(groups: Interactions, tmp_path: Path) -> None:
    rows = [("U", "N1", 1.0), ("U", "N0", None), ("U", "N2", 3.0), ("U", "N0", float("nan"))]
    found = small(groups, tmp_path, rows, ["user", "item", "score"])
    assert found[:3] == ("N2", "N1", "2 rows lack a user, an item or a score, and were left out")


def test_lists_of_seen_items_alone_are_refused_by_that_reason(groups: Interactions, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"got none of them \(2 items of shown histories were removed\): check"):
        small(groups, tmp_path, [("U", "S", 1), ("U", "S", 2)], ["user", "item", "rank"])


def test_lists_of_other_ids_and_missing_columns_are_refused(groups: Interactions, tmp_path: Path) -> None:
    parts = split(groups, seed=1)
    (tmp_path / "lists.csv").write_text("user,item\nx,y\n")
    with pytest.raises(InputError, match=r"lists of the 8 test users .* got none"):
        read_lists(tmp_path / "lists.csv", groups, parts.test, 3)
    with pytest.raises(InputError, match=r"a column 'value' in .*, got user, item"):
        read_lists(tmp_path / "lists.csv", groups, parts.test, 3, score="value")


def test_a_split_of_other_data_is_refused(groups: Interactions, data: Interactions, tmp_path: Path) -> None:
    export_split(data, tmp_path / "a", plan=SplitPlan(), seed=0, metrics=METRICS)
    (tmp_path / "other.csv").write_text(
        "user,item,rating\n" + "".join(f"{u},{i},5\n" for u in range(9) for i in range(9))
    )
    with pytest.raises(InputError, match="Expected the data of the split"):
        read_split(tmp_path / "a", str(tmp_path / "other.csv"))
    with pytest.raises(InputError, match=r"split\.json"):
        read_split(tmp_path / "b")
    assert Protocol.of(groups, SplitPlan(), METRICS).hash
