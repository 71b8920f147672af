"""Repeat purchases on the command line: `--again`, `--again-by` and their errors."""

from pathlib import Path

import polars as pl
import pytest

from conftest import Command
from shop import DAY, orders, reorder_shop


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return reorder_shop().save(tmp_path_factory.mktemp("orders") / "shop")


def lists(command: Command, model: Path, rows: pl.DataFrame, *more: object) -> pl.DataFrame:
    histories, out = model.parent / "histories.csv", model.parent / "lists.parquet"
    rows.write_csv(histories)
    arguments = ("recommend", model, "--histories", histories, "--out", out, "-k", "40", "--why", "1", *more)
    code, _, told = command(*arguments)
    assert code == 0, told
    return pl.read_parquet(out)


def test_lists_of_a_file_have_bought_items_as_asked(model: Path, command: Command) -> None:
    rows = orders().filter(pl.col("user").is_in(["u7", "u30"]))
    found = lists(command, model, rows, "--again", "only")
    first = found.filter(pl.col("rank") <= 2).group_by("user").agg(pl.col("item").sort()).sort("user")
    assert first["item"].to_list() == [["i6", "i7"], ["i7", "i8"]]
    text = found.filter((pl.col("user") == "u7") & (pl.col("item") == "i7"))["because"][0][0]["text"]
    assert text == "bought 12 times, usually every 10 days, last 2 days ago"
    coffee = lists(command, model, rows, "--again-by", "category:Coffee=allowed")
    own = set(rows.filter(pl.col("user") == "u7")["item"])
    assert set(coffee.filter(pl.col("user") == "u7")["item"]) & own == {"i7", "i8"}


def test_returned_items_are_in_no_list_of_a_file(model: Path, command: Command) -> None:
    rows = pl.DataFrame({"user": ["a"] * 3, "item": ["i1", "i2", "i1"], "quantity": [2, 1, -2]})
    rows = rows.with_columns(time=pl.Series([1_500_000_000 + day * DAY for day in range(3)]))
    for again in ("never", "allowed", "only"):
        assert "i1" not in lists(command, model, rows, "--again", again)["item"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--again", "sometimes"], "'never', 'allowed', 'only'"),
        (["--again-by", "category:Coffee=maybe"], "'never', 'allowed' or 'only'"),
        (["--again-by", "category:Wine=only"], "Unknown value 'Wine'"),
        (["--again-by", "Coffee"], "Expected --again-by COLUMN:VALUE=WORD,VALUE=WORD, got 'Coffee'"),
    ],
)
def test_wrong_words_and_categories_are_one_sentence(
    model: Path, options: list[str], words: str, command: Command
) -> None:
    code, _, told = command("recommend", model, "--history", "i1", *options)
    assert code == 2
    assert words in " ".join(told.split())
