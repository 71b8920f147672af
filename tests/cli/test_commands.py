"""The commands, used as a person would."""

import json
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from recfusion.cli import demo
from recfusion.cli import main as cli
from recfusion.models.linear.ease import EASE
from recfusion.models.recfusion.recfusion import RecFusion
from recfusion.models.registry import MODELS

Run = Callable[..., str]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command that must succeed, and return what it printed."""

    def call(*arguments: object) -> str:
        monkeypatch.setattr("sys.argv", ["recfusion", *map(str, arguments)])
        with pytest.raises(SystemExit) as stop:
            cli.main()
        printed = capsys.readouterr()
        assert stop.value.code == 0, printed.err
        return printed.out

    return call


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """A shop's file with text ids, duplicates and a few bad rows, and a file of its products."""
    lines = ["customer;product;stars;date"]
    for customer in range(60):
        for step in range(8):
            product = (customer % 3) * 10 + (customer + 3 * step) % 10
            lines.append(f"c{customer:03d};p-{product};{4 + step % 2};2024-01-{step + 1:02d}")
    lines += ["c001;p-11;5;2024-01-01", "c002;;5;2024-01-01", "c003;p-1;many;2024-01-01"]
    (tmp_path / "shop.csv").write_text("\n".join(lines) + "\n")
    titles = pl.DataFrame({"product": [f"p-{n}" for n in range(30)], "title": [f"Lamp, no. {n}" for n in range(30)]})
    titles.write_csv(tmp_path / "products.csv")
    return tmp_path / "shop.csv"


@pytest.mark.parametrize("path", cli.COMMANDS)
def test_the_help_of_a_command_begins_with_its_line_in_the_list(run: Run, path: str) -> None:
    shown = " ".join(run(*path.split(), "--help").replace("│", " ").split())
    assert 0 < shown.index(cli.summary(path)) < shown.index("Options")


def test_a_single_test_user_gets_no_interval_and_no_p(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [f"u{user},{(user + step) % 9}" for user in range(12) for step in range(5)]
    Path("tiny.csv").write_text("user,item\n" + "\n".join(rows) + "\n")
    given = ("compare", "--data", "tiny.csv", "--models", "popularity,ease,random", "--set", "ease.tune_trials=0")
    printed = run(*given, "--workers", 1, "--page", "page.html")
    tested = [line for line in printed.splitlines() if " against " in line]
    assert len(tested) == 2
    assert all(line.endswith(", not tested: there is one test user") for line in tested)
    assert "intervals" not in printed
    found = json.loads(run(*given, "--workers", 1, "--json"))
    assert [(test["ci95"], test["p"], test["p_holm"]) for test in found["tests"]] == [(None, None, None)] * 6
    assert found["models"]["ease"]["ndcg@100"]["ci95"] is None
    run("train", "popularity", "--data", "tiny.csv", "--out", "model")
    assert "test ndcg@100: " in (judged := run("evaluate", "model"))
    assert " to " not in judged.split("test ndcg@100")[1]
    assert json.loads(Path("model/metrics.json").read_text())["validation"]["ndcg@100"]["ci95"] is None


def test_the_demo_compares_saves_recommends_and_reports(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = {"popularity": "popularity", "ease": EASE(tune_trials=0), "recfusion": RecFusion(max_epochs=3)}
    monkeypatch.setattr(demo, "_MODELS", small)  # the models of the demo would take a minute
    printed = run("demo", "--out", tmp_path / "demo", "--splits", 1)
    assert "659 users, 2,078 items, 44,413 interactions" in printed
    assert "ease against popularity" in printed or "recfusion against popularity" in printed
    assert "(19" in printed  # a title with its year
    assert "User 1" in printed
    page = (tmp_path / "demo" / "report.html").read_text()
    for heading in ("Differences to ease", "By popularity of the item", "Training", "Examples", "How to run it again"):
        assert heading in page
    assert len((tmp_path / "demo" / "results.jsonl").read_bytes().splitlines()) == 3
    run("report", tmp_path / "demo" / "results.jsonl", "--out", tmp_path / "again.html")
    assert "Differences to ease" in (tmp_path / "again.html").read_text()
    assert "Shawshank" in run("recommend", tmp_path / "demo" / "model", "--history", "296,356", "-k", 5)


def test_a_file_of_one_s_own_goes_all_the_way(run: Run, shop: Path, tmp_path: Path) -> None:
    products = shop.with_name("products.csv")
    described = json.loads(run("data", "describe", shop, "--json"))
    read = described["protocol"]["read"]
    assert read["columns"] == {"user": "customer", "item": "product", "rating": "stars", "time": "date"}
    assert (read["missing"], read["unparsable"]) == (1, 1)

    run("train", "ease", "--data", shop, "--items", products, "--set", "l2=5", "--out", tmp_path / "model")
    judged = json.loads(run("evaluate", tmp_path / "model", "--data", shop, "--json"))
    assert judged["models"]["ease"]["ndcg@100"]["mean"] > 0.5
    assert json.loads((tmp_path / "model" / "metrics.json").read_text())["test"] == judged["models"]["ease"]

    lists = json.loads(run("recommend", tmp_path / "model", "--history", "p-1, p-4,nothing", "-k", 3, "--json"))
    assert [place["rank"] for place in lists["recommendations"]] == [1, 2, 3]
    assert all(place["title"].startswith("Lamp, no.") for place in lists["recommendations"])


@pytest.mark.parametrize("kind", ["csv", "parquet", "jsonl"])
def test_lists_for_a_file_of_users_are_written_in_the_asked_form(
    run: Run, shop: Path, tmp_path: Path, kind: str
) -> None:
    run("train", "ease", "--data", shop, "--all-users", "--out", tmp_path / "model")
    users = pl.DataFrame({"user": ["x", "x", "y", "z", "w"], "item": ["p-1", "p-4", "p-22", "unheard of", None]})
    users.write_csv(tmp_path / "users.csv")
    run(
        "recommend",
        tmp_path / "model",
        "--histories",
        tmp_path / "users.csv",
        "--out",
        tmp_path / f"lists.{kind}",
        "-k",
        2,
    )
    scan: dict[str, Callable[[Path], pl.LazyFrame]]
    scan = {"csv": pl.scan_csv, "parquet": pl.scan_parquet, "jsonl": pl.scan_ndjson}
    lists = scan[kind](tmp_path / f"lists.{kind}").collect()
    assert lists["user"].to_list() == ["x", "x", "y", "y", "z", "z", "w", "w"]
    assert lists["rank"].to_list() == [1, 2] * 4
    assert lists["basis"].to_list() == ["history"] * 4 + ["popularity"] * 4


def test_a_comparison_prints_one_json_document(run: Run, tmp_path: Path) -> None:
    printed = run(
        *("compare", "--models", "popularity,ease", "--splits", 2, "--seed", 3, "--set", "ease.l2=300", "--json"),
        *("--out", tmp_path / "results.jsonl", "--page", tmp_path / "page.html", "--workers", 0),
    )
    document = json.loads(printed)
    assert len((tmp_path / "results.jsonl").read_bytes().splitlines()) == 4
    (difference,) = (test for test in document["reference_tests"] if test["metric"] == "ndcg@100")
    assert (difference["a"], difference["b"]) == ("popularity", "ease")
    assert difference["ci95"][0] < difference["difference"] < difference["ci95"][1] < 0
    assert document["seeds"] == [3, 4]
    assert document["models"]["ease"]["settings"]["l2"] == 300
    for model in ("popularity", "ease"):
        for metric in ("ndcg@100", "calibrated_recall@20", "calibrated_recall@50"):
            value = document["models"][model][metric]
            assert 0 < value["ci95"][0] < value["mean"] < value["ci95"][1] < 1
            assert len(value["splits"]) == 2
    assert (tmp_path / "page.html").stat().st_size > 1000


def test_a_comparison_keeps_its_results_and_is_not_run_again(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    first = run("compare", "--models", "popularity,random", "--workers", 0)
    store = tmp_path / "comparisons" / "ml-latest-small.jsonl"
    kept = store.read_bytes()
    assert run("compare", "--models", "popularity,random", "--workers", 0) == first
    assert store.read_bytes() == kept
    run("compare", "--models", "popularity,same=popularity", "--workers", 0)
    assert len(store.read_bytes().splitlines()) == 3


OWN = """
from dataclasses import dataclass
import numpy as np
import recfusion as rf

@dataclass
class Cooccurrence(rf.Recommender):
    \"\"\"Counts of common users.\"\"\"

    power: float = rf.setting(0.5, "power of popularity", at_least=0, search=(0.0, 1.0))
    weights_: np.ndarray = rf.learned()

    def fit(self, train, valid=None, *, rng=None):
        g = (train.T @ train).toarray()
        n = np.maximum(np.diag(g), 1.0)
        self.weights_ = (g / np.outer(n, n) ** self.power * (1 - np.eye(len(n)))).astype(np.float32)
        return self

    def score(self, history):
        return np.asarray(history @ self.weights_, np.float32)
"""


def test_a_model_of_one_s_own_is_compared_tuned_trained_and_trusted(
    run: Run, shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("own.py").write_text(OWN)
    models = ("--models", "popularity,mine=own.py:Cooccurrence,own.py:Cooccurrence", "--set", "mine.power=0.2")
    found = json.loads(run("compare", "--data", shop, *models, "--workers", 1, "--json"))["models"]
    assert found["mine"]["settings"] == {"power": 0.2}
    assert found["Cooccurrence"]["settings"] == {"power": 0.5}
    assert found["mine"]["ndcg@100"]["mean"] > found["popularity"]["ndcg@100"]["mean"]
    assert found["mine"]["place"] == "own.py:Cooccurrence"
    assert str(tmp_path) not in Path("comparisons/shop.csv.jsonl").read_text()

    tuned = json.loads(run("tune", "own.py:Cooccurrence", "--data", shop, "--trials", 2, "--out", "t", "--json"))
    assert tuned["model"] == "Cooccurrence"
    run("train", "own.py:Cooccurrence", "--data", shop, "--out", "model")
    monkeypatch.setattr("sys.argv", ["recfusion", "recommend", "model", "--history", "p-1"])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert stop.value.code == 2
    assert "if you trust it" in capsys.readouterr().err
    trust = ("--trust", "own.py:Cooccurrence")
    lists = json.loads(run("recommend", "model", "--history", "p-1", *trust, "--json"))
    assert len(lists["recommendations"]) == 10
    assert json.loads(run("evaluate", "model", *trust, "--json"))["models"]["Cooccurrence"]["ndcg@100"]["mean"] > 0
    assert "Counts of common users." in run("models", "own.py:Cooccurrence")


def test_titles_are_shown_as_they_stand_and_control_nothing(run: Run, shop: Path, tmp_path: Path) -> None:
    titles = ["Alien [/b]", "Film [director's cut]", "\x1b[2JGone", "Two\nlines"] + ["plain"] * 26
    pl.DataFrame({"product": [f"p-{n}" for n in range(30)], "title": titles}).write_parquet(tmp_path / "i.parquet")
    run("train", "popularity", "--data", shop, "--items", tmp_path / "i.parquet", "--out", tmp_path / "m")
    printed = run("recommend", tmp_path / "m", "--history", "p-9", "-k", 30)
    assert "Alien [/b]" in printed
    assert "Film [director's cut]" in printed
    assert "\\x1b[2JGone" in printed
    assert "\x1b" not in printed


def test_the_protocol_card_stands_above_the_table(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    printed = run("compare", "--models", "popularity", "--workers", 0)
    assert printed.index("Strong generalization") < printed.index("ndcg@100 ") < printed.index("popularity │")


def test_other_splits_can_be_asked_for(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for kind in ("weak", "temporal"):
        document = json.loads(run("compare", "--models", "popularity", "--split", kind, "--workers", 0, "--json"))
        assert document["protocol"]["plan"]["kind"] == kind


def test_every_model_is_listed_with_its_settings(run: Run) -> None:
    assert set(json.loads(run("models", "--json"))) == set(MODELS)
    assert "linear item-item model with a closed form (recfusion)" in run("models")
    assert "lr = 0.001" in run("models", "recfusion")
    assert "l2: chosen by the fit" in run("models", "ease")


def test_the_catalog_is_listed(run: Run) -> None:
    assert set(json.loads(run("data", "list", "--json"))) >= {"ml-latest-small", "ml-1m", "ml-25m", "netflix"}


def test_item_columns_named_like_those_of_a_list_are_kept_under_other_names(
    run: Run, shop: Path, tmp_path: Path
) -> None:
    pl.DataFrame({"product": [f"p-{n}" for n in range(20)], "score": list(range(20))}).write_csv(tmp_path / "i.csv")
    run("train", "popularity", "--data", shop, "--items", tmp_path / "i.csv", "--out", tmp_path / "model")
    lists = json.loads(run("recommend", tmp_path / "model", "--history", "p-3", "--json"))["recommendations"]
    assert {"score", "item_score"} <= set(lists[0])
    assert "describes 20 of 30 items" in (tmp_path / "model" / "protocol.json").read_text()


def test_training_twice_into_one_folder_replaces_the_model(run: Run, tmp_path: Path) -> None:
    run("train", "popularity", "--out", tmp_path / "model")
    run("train", "ease", "--tune-trials", 0, "--out", tmp_path / "model")
    assert json.loads((tmp_path / "model" / "config.json").read_text())["model"] == "ease"
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_a_model_with_features_of_users_is_judged_also_where_their_file_has_moved(
    run: Run, shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, installed_studies: None
) -> None:
    users = pl.DataFrame({"customer": [f"c{n:03d}" for n in range(60)], "town": ["Bern", "Oslo", "Rome"] * 20})
    users.write_csv(tmp_path / "users.csv")
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    small = ("--set", "max_epochs=1", "--set", "width=8")
    data, people = ("--data", shop), ("--users-file", tmp_path / "users.csv")
    run("train", "recfusion-guided", *small, *data, *people, "--signals", "features", "--out", "model")
    judged = json.loads(run("evaluate", "model", *data, *people, "--json"))
    assert judged["models"]["recfusion-guided"]["ndcg@100"]["users"] == 6
