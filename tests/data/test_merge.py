"""Orders of several files and events of a service become one table; returns cancel purchases."""

from pathlib import Path

import polars as pl
import pytest

from recfusion.data.interactions import Interactions, RawData
from recfusion.data.load import read
from recfusion.data.merge import merge_events, raw_rows
from recfusion.data.options import Preparation, Source
from recfusion.data.prepare import prepare

ALL = Preparation(min_items_per_user=0, min_users_per_item=0)
DAY = 86400
MARCH = 1_772_323_200  # 2026-03-01


def events(*rows: tuple[str, str, float, int]) -> pl.DataFrame:
    return pl.DataFrame(rows, schema=["user", "item", "quantity", "time"], orient="row")


def table(folder: Path, text: str, name: str = "orders.csv") -> RawData:
    (folder / name).write_text(text, encoding="utf-8")
    return read(Source(data=str(folder / name)))


def pairs(data: Interactions) -> set[tuple[str, str]]:
    found = data.matrix.tocoo()
    return {
        (str(data.users[int(u)]), str(data.items[int(i)]))
        for u, i in zip(found.coords[0], found.coords[1], strict=True)
    }


NEW = events(("ann", "tea", 1, MARCH + DAY), ("bob", "cup", -1, MARCH + 2 * DAY), ("eve", "pot", 1, MARCH))


@pytest.mark.parametrize(
    "text",
    [
        "user,item,date\nann,cup,2026-01-01\nbob,cup,2026-02-01\nbob,tea,2026-02-01\n",
        "user,item\nann,cup\nbob,cup\nbob,tea\n",
        "customer;product;quantity;date\nann;cup;2;2026-01-01\nbob;cup;1;2026-02-01\nbob;tea;1;2026-02-01\n",
        "user,item,rating,time\nann,cup,5,1700000000\nbob,cup,4,1700000000\nbob,tea,5,1700000000\n",
    ],
    ids=["ISO dates", "no times", "quantities", "stars"],
)
def test_events_are_added_whatever_columns_the_orders_have(tmp_path: Path, text: str) -> None:
    merged = merge_events(table(tmp_path, text), NEW)
    assert pairs(prepare(merged, ALL)) == {("ann", "cup"), ("ann", "tea"), ("bob", "tea"), ("eve", "pot")}
    assert merged.report.missing == merged.report.unparsable == 0
    assert "events added to the orders: 3 of 3 users, returns among them: 1" in merged.report.notes


def test_an_event_that_is_also_an_order_of_that_day_counts_once(tmp_path: Path) -> None:
    orders = table(tmp_path, "user,item,quantity,date\nann,tea,2,2026-03-01\nbob,cup,1,2026-03-01\n")
    new = events(
        ("ann", "tea", 2, MARCH + 5000), ("ann", "tea", -2, MARCH + 9 * DAY), ("bob", "cup", 1, MARCH + 9 * DAY)
    )
    merged = merge_events(orders, new)
    data = prepare(merged, ALL)
    assert pairs(data) == {("bob", "cup")}
    assert data.grades is not None
    assert data.grades.tolist() == [2.0]
    assert "events that are also in the orders (same user, item and day) and count once: 1" in merged.report.notes


def test_whole_number_ids_stay_numbers_and_become_texts_only_if_an_event_needs_it(tmp_path: Path) -> None:
    orders = table(tmp_path, "user,item\n7,1\n8,2\n")
    assert merge_events(orders, events(("7.0", "2", 1, 0))).rows["user"].to_list() == [7, 8, 7]
    mixed = merge_events(orders, events(("guest-9", "2", 1, 0)))
    assert mixed.rows["user"].to_list() == ["7", "8", "guest-9"]
    assert mixed.rows["item"].to_list() == [1, 2, 2]


def test_no_events_change_nothing(tmp_path: Path) -> None:
    orders = table(tmp_path, "user,item\nann,cup\n")
    assert merge_events(orders, events()[:0].cast({"user": pl.String, "item": pl.String})) is orders


def test_prepared_data_becomes_rows_again(tmp_path: Path) -> None:
    data = prepare(table(tmp_path, "user,item,quantity,date\nann,tea,2,2026-03-01\nbob,cup,1,2026-03-02\n"), ALL)
    again = prepare(raw_rows(data), ALL)
    assert again.fingerprint == data.fingerprint
    assert again.digest(["grades"]) == data.digest(["grades"])
