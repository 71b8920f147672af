"""A night of a shop: what it reads, what it refuses, what it leaves behind."""

import html
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from recfusion.cli import main as cli
from recfusion.core.errors import InputError
from recfusion.inference.bundle import Bundle
from recfusion.nightly.config import read_shop
from recfusion.nightly.report import Night, read_nights
from recfusion.nightly.run import PENDING, PHASES, run_night
from recfusion.server.event_store import Event, Store

KILLED = """
import os, signal, sys
from contextlib import closing
from pathlib import Path
from recfusion.nightly.config import read_shop
from recfusion.nightly.run import run_night

def kill(phase):
    if phase == sys.argv[2]:
        os.kill(os.getpid(), signal.SIGKILL)

run_night(read_shop(Path(sys.argv[1])), on_phase=kill)
"""


def make_shop(folder: Path, *, model: str = "ease", settings: str = "l2 = 10", more: str = "") -> Path:
    """Write orders of 80 customers in four groups, products with stock, events and the file of the shop."""
    rng = np.random.default_rng(0)
    folder.mkdir(exist_ok=True)
    lines = [
        f"c{user:02d};p{10 * (user % 4) + product:02d};1;2026-01-{1 + user % 28:02d}"
        for user in range(80)
        for product in rng.choice(10, 6, replace=False)
    ]
    (folder / "orders.csv").write_text("\n".join(["customer;product;quantity;date", *lines, ""]), encoding="utf-8")
    write_products(folder, 40)
    (folder / "shop.toml").write_text(
        f'folder = "shop"\norders = "orders*.csv"\nproducts = "products.csv"\nevents = "events.sqlite"\n'
        f'forget = "forget.txt"\nmodel = "{model}"\n{more}\n[settings]\n{settings}\n',
        encoding="utf-8",
    )
    (folder / "forget.txt").write_text("", encoding="utf-8")
    return folder / "shop.toml"


def write_products(folder: Path, number: int, stock: int = 1) -> None:
    rows = [f"p{n:02d};Product {n};kind {n % 40 // 10};{stock}" for n in range(number)]
    (folder / "products.csv").write_text("\n".join(["product;name;kind;stock", *rows, ""]), encoding="utf-8")


def add_events(folder: Path, *events: Event) -> None:
    store = Store(folder / "events.sqlite")
    with store.writing():
        store.add(events)
    store.close()


def night(file: Path) -> Night:
    return run_night(read_shop(file))[0]


def without_times(one: Night) -> dict[str, object]:
    return one.model_dump(exclude={"started", "seconds", "version", "inputs"})  # digests of users are salted


def weights(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in ("model.safetensors", "items.parquet", "protocol.json")}


def test_the_first_night_needs_no_model_no_events_and_no_reports(tmp_path: Path) -> None:
    first = night(make_shop(tmp_path))
    assert (first.outcome, first.events, first.before) == ("first", 0, None)
    assert first.counts.model_dump() == {"rows": 480, "customers": 80, "products": 40}
    assert Bundle.load(tmp_path / "shop").train_users == 80
    assert json.loads((tmp_path / "reports" / "latest.json").read_text())["outcome"] == "first"
    assert "The first model" in (tmp_path / "reports" / "latest.html").read_text(encoding="utf-8")
    assert not (tmp_path / "events.sqlite").exists()
    assert not (tmp_path / "reports" / PENDING).exists()


def test_events_returns_new_products_and_stock_reach_the_model(tmp_path: Path) -> None:
    file = make_shop(tmp_path)
    night(file)
    bought = pl.read_csv(tmp_path / "orders.csv", separator=";").row(0)[1]
    new = [Event(f"c{n:02d}", "p40", time=1.77e9) for n in range(5)]
    add_events(tmp_path, *new, Event("c00", bought, "return", time=1.77e9), Event("guest", "p01", time=1.77e9))
    write_products(tmp_path, 41, stock=5)
    second = night(file)
    assert (second.events, second.before and second.before.customers, second.counts.customers) == (7, 80, 81)
    bundle = Bundle.load(tmp_path / "shop")
    counts = dict(bundle.items.select("item", "train_count").rows())
    before = dict(Bundle.load(tmp_path / "shop.previous").items.select("item", "train_count").rows())
    assert counts["p40"] == 5
    assert counts[bought] == before[bought] - 1
    assert bundle.items["stock"].unique().to_list() == [5]


def test_the_better_recipe_is_served_and_the_other_one_is_reported(tmp_path: Path) -> None:
    night(make_shop(tmp_path))
    make_shop(tmp_path, model="popularity", settings="")
    write_products(tmp_path, 40, stock=9)
    second = night(tmp_path / "shop.toml")
    assert (second.outcome, second.model) == ("old", "ease")
    assert second.comparison["gain"] < 0
    assert Bundle.load(tmp_path / "shop").items["stock"].to_list() == [9] * 40
    make_shop(tmp_path, model="thinning-linear", settings="")
    assert night(tmp_path / "shop.toml").outcome in ("new", "old")


def test_a_sharp_drop_is_refused_until_it_is_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = make_shop(tmp_path)
    night(file)
    served = weights(tmp_path / "shop")
    whole = (tmp_path / "orders.csv").read_text()
    (tmp_path / "orders.csv").write_text("\n".join(whole.splitlines()[:300]) + "\n")

    def run(*options: str) -> int:
        monkeypatch.setattr("sys.argv", ["recfusion", "nightly", str(file), *options])
        with pytest.raises(SystemExit) as stop:
            cli.main()
        return int(str(stop.value.code or 0))

    for _ in range(2):
        assert run("--json") == 3
        printed = capsys.readouterr()
        assert json.loads(printed.out)["outcome"] == "refused"
        assert "299 rows, 38% fewer than the 480 of the last night" in printed.err
    assert weights(tmp_path / "shop") == served
    assert "Refused" in (tmp_path / "reports" / "latest.html").read_text(encoding="utf-8")
    assert run("--accept-drop") == 0
    assert "outcome=" in capsys.readouterr().out
    assert Bundle.load(tmp_path / "shop").train_users == 50


def test_a_dry_run_writes_nothing(tmp_path: Path) -> None:
    file = make_shop(tmp_path)
    add_events(tmp_path, Event("c00", "p01", time=1.77e9), Event("c01", "p02", time=1.77e9))
    (tmp_path / "forget.txt").write_text("c00\n", encoding="utf-8")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    dry, _ = run_night(read_shop(file), dry_run=True)
    assert (dry.dry_run, dry.outcome, dry.forgotten, dry.counts.customers) == (True, "first", 1, 79)
    assert dry.line().split(" ", 1)[1].startswith("dry run outcome=first model=ease ndcg@100=0.")
    after = {
        path.name: path.read_bytes() for path in tmp_path.iterdir() if path.suffix not in (".sqlite-wal", ".sqlite-shm")
    }
    assert {name: after[name] for name in before if "sqlite" not in name} == {
        name: text for name, text in before.items() if "sqlite" not in name
    }
    assert not {"shop", "reports"} & after.keys()


def test_a_forgotten_customer_is_in_no_file_that_the_run_writes(tmp_path: Path) -> None:
    """The model holds histories, so the older model is removed, too."""
    file = make_shop(tmp_path, model="user-knn", settings="")
    add_events(tmp_path, Event("gone@example.org", "p01", time=1.77e9), Event("gone@example.org", "p02", time=1.77e9))
    assert night(file).counts.customers == 81
    (tmp_path / "forget.txt").write_text("gone@example.org\nc05\n", encoding="utf-8")
    write_products(tmp_path, 41)
    second = night(file)
    assert (second.forgotten, second.counts.customers, second.events) == (2, 79, 0)
    assert not (tmp_path / "shop.previous").exists()
    outputs = [path for path in tmp_path.rglob("*") if path.is_file() and path.name not in ("forget.txt", "orders.csv")]
    assert len(outputs) > 8
    named = re.compile(rb"gone@|(?<![0-9a-f])c05(?![0-9a-f])")  # digests may have these letters
    assert [path.name for path in outputs if named.search(path.read_bytes())] == []
    write_products(tmp_path, 42)
    assert night(file).forgotten == 2
    assert (tmp_path / "shop.previous").exists()


def test_a_second_run_on_the_same_inputs_does_nothing(tmp_path: Path) -> None:
    file = make_shop(tmp_path)
    first = night(file)
    made = (tmp_path / "shop" / "config.json").stat().st_mtime_ns
    again, repeated = run_night(read_shop(file))
    assert repeated
    assert (again.started, (tmp_path / "shop" / "config.json").stat().st_mtime_ns) == (first.started, made)
    assert len(read_nights(tmp_path / "reports")) == 1


@pytest.mark.parametrize("phase", PHASES)
def test_a_run_that_was_killed_in_any_phase_ends_like_an_undisturbed_one(tmp_path: Path, phase: str) -> None:
    ends = []
    for place in (tmp_path / "calm", tmp_path / "killed"):
        file = make_shop(place)
        night(file)
        add_events(place, Event("c00", "p39", time=1.77e9), Event("gone", "p01", time=1.77e9))
        (place / "forget.txt").write_text("gone\n", encoding="utf-8")
        write_products(place, 41)
        if place.name == "killed":
            done = subprocess.run([sys.executable, "-c", KILLED, str(file), phase], check=False, timeout=120)
            assert done.returncode == -signal.SIGKILL
        night(file)
        nights = [without_times(one) for one in read_nights(place / "reports")]
        left = sorted(str(path.relative_to(place)) for path in place.rglob("*") if "sqlite-" not in path.name)
        ends.append((nights, left, weights(place / "shop")))
    assert ends[0] == ends[1]


def test_the_service_is_asked_to_reload_and_a_silent_one_is_reported_and_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = make_shop(tmp_path, more='service = "http://127.0.0.1:9"')
    monkeypatch.setattr("sys.argv", ["recfusion", "nightly", str(file)])
    for _ in range(2):
        with pytest.raises(SystemExit) as stop:
            cli.main()
        assert stop.value.code == 4
        assert "was not reached" in capsys.readouterr().err
    assert "It serves the older model until" in (tmp_path / "reports" / "latest.html").read_text(encoding="utf-8")


def test_a_folder_of_something_else_is_not_replaced(tmp_path: Path) -> None:
    file = make_shop(tmp_path)
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "mine.txt").write_text("mine")
    with pytest.raises(InputError, match="holds other files"):
        night(file)
    assert os.listdir(tmp_path / "shop") == ["mine.txt"]  # noqa: PTH208


def test_products_that_nobody_bought_are_placed_by_their_features(tmp_path: Path) -> None:
    file = make_shop(tmp_path, model="thinning-features", settings="")
    write_products(tmp_path, 44)
    first = night(file)
    assert (first.items, first.choices[-1]) == (44, "4 items with too few users are placed by their features.")
    assert "p43" in Bundle.load(tmp_path / "shop").items["item"].to_list()


def test_orders_may_come_from_a_database(tmp_path: Path) -> None:
    """The same night as from the file; a second one with the same rows, in another order, does nothing."""
    pytest.importorskip("adbc_driver_sqlite")
    file = make_shop(tmp_path)
    from_file = night(file)
    rows = pl.read_csv(tmp_path / "orders.csv", separator=";")
    with closing(sqlite3.connect(tmp_path / "shop.db")) as database:
        database.execute("CREATE TABLE orders (customer TEXT, product TEXT, quantity INTEGER, date TEXT)")
        database.executemany("INSERT INTO orders VALUES (?, ?, ?, ?)", rows.rows())
        database.commit()
    text = file.read_text(encoding="utf-8").replace('"orders*.csv"', '"sqlite:///shop.db"').replace('"shop"', '"other"')
    text = text.replace('"events.sqlite"', '"events.sqlite"\nreports = "others"')
    for order in ("", " ORDER BY product DESC"):
        file.write_text(f'{text}[source]\nquery = "SELECT * FROM orders{order}"\n', encoding="utf-8")
        found, repeated = run_night(read_shop(file))
        assert not repeated
        assert found.counts == from_file.counts
    assert run_night(read_shop(file))[1]
    assert Bundle.load(tmp_path / "other").items.equals(Bundle.load(tmp_path / "shop").items)
    with closing(sqlite3.connect(tmp_path / "shop.db")) as database:
        database.execute("INSERT INTO orders VALUES ('new', 'p01', 1, '2026-01-05')")
        database.commit()
    assert night(file).counts.customers == 81
    file.write_text(f'{text}[source]\nquery = "SELECT * FROM carts"\n', encoding="utf-8")
    with pytest.raises(InputError, match=r"The query on sqlite:///shop.db failed \(.*no such table"):
        night(file)


def test_a_night_answers_in_products_and_money(tmp_path: Path) -> None:
    file = make_shop(tmp_path)
    rows = [f"p{n:02d};Ware {n};{n % 3};{n},50" for n in range(40)]
    (tmp_path / "products.csv").write_text(
        "\n".join(["product;Bezeichnung;Bestand;Preis", *rows, ""]), encoding="utf-8"
    )
    found = night(file)
    gain, shown = found.comparison["answers"]
    assert gain.startswith("Lists of 10 hold ")
    assert " in prices per user (" in gain
    assert shown.endswith("of the places are sold out.")
    assert gain in html.unescape((tmp_path / "reports" / "latest.html").read_text(encoding="utf-8"))
    assert found.comparison["lists"]["gain"]["money"]["ci95"]
