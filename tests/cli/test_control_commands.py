"""Filters, re-ranking, explanations, similar items and completions on the command line."""

import json
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from conftest import Command
from recfusion.data.interactions import Interactions
from recfusion.experiments.train import train
from recfusion.inference.bundle import Bundle
from recfusion.inference.new_items import add_items
from recfusion.inference.request import Filters, ItemFilters, Reranking
from recfusion.inference.similar import similar
from shop import shop

HISTORY = "i01,i02,i11"


@pytest.fixture(scope="module")
def model(groups: Interactions, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shop(groups, "thinning-linear").save(tmp_path_factory.mktemp("shop") / "model")


def found(command: Command, *arguments: object) -> list[dict[str, object]]:
    code, printed, told = command(*arguments, "--json")
    assert code == 0, told
    document = json.loads(printed)
    return next(value for value in document.values() if isinstance(value, list))


def test_rules_come_from_options_and_files(model: Path, tmp_path: Path, command: Command) -> None:
    (tmp_path / "deny.txt").write_text("\ufeffi03\n\n i04 \n")
    options = ["--where", "stock > 0", "--deny", tmp_path / "deny.txt", "--at-most", "kind=2", "-k", "6"]
    rows = found(command, "recommend", model, "--history", HISTORY, *options)
    assert rows
    assert all(int(str(row["stock"])) > 0 and row["item"] not in ("i03", "i04", "i01", "i02", "i11") for row in rows)
    kinds = [kind for row in rows for kind in str(row["kind"]).split("|") if row["kind"]]
    assert max(map(kinds.count, kinds)) <= 2
    only = found(command, "recommend", model, "--history", HISTORY, "--allow", "i20,i21,i01")
    assert {row["item"] for row in only} == {"i20", "i21"}


def test_knobs_and_reasons_come_from_options(model: Path, tmp_path: Path, command: Command) -> None:
    plain = found(command, "recommend", model, "--history", HISTORY, "-k", "8")
    knobs = ["--adventurousness", "1", "--popularity", "-1", "--wish", "kind:Cups=1,Tea=-1", "--diversity", ".5"]
    leaning = found(command, "recommend", model, "--history", HISTORY, "-k", "8", *knobs)
    assert [row["item"] for row in plain] != [row["item"] for row in leaning]
    shared = found(command, "recommend", model, "--history", HISTORY, "-k", "4", "--shares", "kind:Cups=1")
    assert all(row["kind"] == "Cups" for row in shared)
    told = found(command, "recommend", model, "--history", HISTORY, "-k", "3", "--why", "2")
    assert all(row["reasons"] == "exact" and row["because"] for row in told)
    users = tmp_path / "users.csv"
    users.write_text("user,item\na,i01\na,i02\nb,i15\n")
    lists = tmp_path / "lists.csv"
    code, _, _ = command("recommend", model, "--histories", users, "--out", lists, "--why", "1")
    assert code == 0
    assert pl.read_csv(lists).filter(user="a")["because"].is_in(["Item 1", "Item 2"]).all()
    code, _, _ = command("recommend", model, "--histories", users, "--rows", "item != 'i01'", "--out", lists, "-k", 39)
    assert code == 0
    assert "i01" in pl.read_csv(lists).filter(user="a")["item"]


def test_help_shows_generated_options(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    printed = command("recommend", "--help")[1]
    for name in (*Filters.model_fields, *Reranking.model_fields, "history", "histories", "why"):
        assert f"--{name.replace('_', '-')} " in printed
    printed = command("similar", "--help")[1]
    assert "--deny" in printed
    assert "--at-most" not in printed
    assert "--popularity" not in printed


def test_similar_items_and_completions_are_commands(model: Path, command: Command) -> None:
    alike = found(command, "similar", model, "i05", "-k", "3", "--where", "stock > 0")
    assert len(alike) == 3
    assert all(str(row["item"]) != "i05" and int(str(row["stock"])) > 0 for row in alike)
    sets = found(command, "complete", model, "--history", HISTORY, "-n", "2", "--alternatives", "2")
    assert [row["alternative"] for row in sets] == [1, 1, 2, 2]
    code, printed, _ = command("similar", model, "i05")
    assert code == 0
    assert "Like i05" in printed


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--where", "stock >"], "at place 8 of the condition, got its end"),
        (["--where", "colour == 'red'"], "Unknown column of the item table 'colour'"),
        (["--where", "stock > 99"], "where removes 40"),
        (["--allow", "nonsense"], "allow removes 40"),
        (["--at-most", "kind=two"], "Expected --at-most COLUMN=N"),
        (["--at-most", "kind=0"], "Option --at-most: kind: input should be greater than or equal to 1"),
        (["--wish", "Drama=1"], "Expected --wish COLUMN:VALUE=NUMBER"),
        (["--wish", "kind:Drama=1"], "Unknown value 'Drama' of the column kind"),
        (["--shares", "kind:Tea=2"], "Option --shares: kind.Tea: input should be less than or equal to 1"),
        (["--adventurousness", "3"], "Invalid value for '--adventurousness': "),
    ],
)
def test_bad_control_is_one_sentence(
    model: Path,
    options: list[str],
    message: str,
    command: Command,
) -> None:
    code, printed, told = command("recommend", model, "--history", HISTORY, *options)
    assert (code, printed) == (2, "")
    assert message in told.replace("\n", " ")
    assert "Traceback" not in told


def test_the_better_recipe_is_fitted_on_the_data_of_today(tmp_path: Path, command: Command) -> None:
    model, previous = tmp_path / "m", tmp_path / "m.previous"
    out = ["--all-users", "--out", model, "--keep-if-better", model]
    code, _, told = command("train", "ease", "--set", "l2=200", *out)
    assert code == 0
    assert "There was no older model" in told.replace("\n", " ")
    first = (model / "config.json").read_bytes()
    code, printed, told = command("train", "popularity", "--json", *out)
    assert code == 3
    assert "the old recipe is fitted on today's data" in told.replace("\n", " ")
    found = json.loads(printed)
    assert (found["model"], found["outcome"]["decision"]) == ("ease", "old")
    assert found["outcome"]["gain"] < 0
    assert (previous / "config.json").read_bytes() == first
    assert json.loads((model / "config.json").read_text())["model"] == "ease"
    assert command("train", "ease", "--set", "l2=200", *out)[0] == 0
    (previous / "config.json").rename(previous / "mine.json")
    code, _, told = command("train", "ease", *out)
    assert code == 2
    assert "holds other files" in told.replace("\n", " ")
    assert "Training" not in told


def test_prices_keep_their_decimals_and_scores_have_four(
    groups: Interactions, tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    bundle = shop(groups)
    table = bundle.items.with_columns(pl.lit(1.65, pl.Float32).alias("price"), pl.lit(12.125).alias("weight"))
    folder = replace(bundle, items=table).save(tmp_path / "model")
    for arguments in (["recommend", folder, "--history", HISTORY], ["similar", folder, "i05"]):
        code, printed, told = command(*arguments, "-k", "2")
        assert code == 0, told
        cells = [cell.strip() for cell in printed.splitlines()[-3].split("│")]
        assert {"1.65", "12.125"} <= set(cells)
        assert any(len(cell.partition(".")[2]) == 4 for cell in cells)


def test_why_not_says_rank_filters_and_remedies(model: Path, command: Command) -> None:
    rows = found(command, "recommend", model, "--history", HISTORY, "-k", "40")
    last = rows[-1]["item"]
    asked = ["why-not", model, last, "--history", HISTORY, "-k", "5"]
    code, printed, _ = command(*asked)
    assert code == 0
    assert f"is not in the list of 5: it is at rank {len(rows)}." in printed
    assert f"At rank {len(rows)} with a list of {len(rows)} items" in printed
    code, printed, _ = command(*asked, "--deny", last, "--json")
    assert json.loads(printed)["excluded_by"] == ["deny"]
    code, _, told = command("why-not", model, "?", "--history", "i01")
    assert (code, "no item '?'" in told, "Traceback" in told) == (2, True, False)


def test_similar_items_of_all_items_are_those_of_each_also_of_new_ones(
    groups: Interactions, tmp_path: Path, command: Command
) -> None:
    titled = replace(
        groups, item_table=groups.item_table.with_columns(kind=pl.lit("A") + pl.col("item").str.slice(1, 1))
    )
    settings = {"tune_trials": 0, "l2": 20}
    folder = train("thinning-features", titled, settings, signals="features").save(tmp_path / "model")
    add_items(folder, pl.DataFrame({"item": ["new", "odd"], "kind": ["A1", "B"]}), folder)
    out = tmp_path / "similar.csv"
    code, _, told = command("similar", folder, "--all", "--out", out, "-k", "3", "--deny", "i15")
    assert (code, "41 lists" in told, "Without a list: 1 item with no known feature" in told) == (0, True, True)
    rows = pl.read_csv(out)
    for item in ("i00", "i15", "new"):
        one = similar(Bundle.load(folder), item, 3, ItemFilters(deny=("i15",))).filter(pl.col("similarity") > 0)
        own = rows.filter(item=item)
        assert own["similar"].to_list() == one["item"].to_list()
        assert own["rank"].to_list() == [1, 2, 3]


def test_items_that_a_model_without_features_does_not_know_are_reported(
    groups: Interactions, tmp_path: Path, command: Command
) -> None:
    folder = shop(groups, "popularity").save(tmp_path / "model")
    out = tmp_path / "similar.csv"
    code, _, told = command("similar", folder, "--all", "--out", out)
    assert (code, "40 items with no purchases with others (the model reads no features)" in " ".join(told.split())) == (
        0,
        True,
    )


def test_all_baskets_of_a_file_are_completed(model: Path, tmp_path: Path, command: Command) -> None:
    file, out = tmp_path / "baskets.csv", tmp_path / "completed.csv"
    file.write_text("order;item\n1;i01\n1;i02\n2;i33\n3;nothing\n")
    options = ["-n", "2", "--alternatives", "2", "--where", "stock > 0"]
    code, _, told = command("complete", model, "--baskets", file, "--basket", "order", "--out", out, *options)
    assert code == 0, told
    assert "Without a completion: 1 basket" in told
    rows = pl.read_csv(out)
    assert rows["basket"].unique(maintain_order=True).to_list() == [1, 2]
    one = found(command, "complete", model, "--history", "i01,i02", *options)
    assert rows.filter(basket=1)["item"].to_list() == [row["item"] for row in one]


@pytest.mark.parametrize(
    "arguments",
    [["similar"], ["similar", "i01", "--all", "--out", "x.csv"], ["complete"], ["complete", "--baskets", "b"]],
)
def test_half_of_a_batch_command_is_refused(model: Path, arguments: list[str], command: Command) -> None:
    code, _, told = command(arguments[0], model, *arguments[1:])
    assert (code, "Expected either" in told) == (2, True)
