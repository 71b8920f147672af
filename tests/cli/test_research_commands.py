"""`compare --by`, `split export`, `judge`, `plan`, `run --plan` and `diff`, used as a person would."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from recfusion.cli import main as cli

Leave = Callable[..., tuple[object, str, str]]
EXPERIMENT = """
name = "small"
hypotheses = ["ease is ahead"]
data.data = "shop.csv"
run = { seeds = 1, metrics = ["recall@5", "ndcg@10"], deciding = "recall@5" }
[models.popularity]
[models.ease]
l2 = 5.0
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    items = [6 * step + twin for step in range(4) for twin in range(6)]
    rows = [f"u{user},{(6 * user + item) % 54}\n" for user in range(50) for item in items]
    (tmp_path / "shop.csv").write_text("user,item\n" + "".join(rows))
    (tmp_path / "small.toml").write_text(EXPERIMENT)
    return tmp_path


@pytest.fixture
def leave(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Leave:
    """Run a command and return its exit code and what it printed."""

    def run(*words: str) -> tuple[object, str, str]:
        monkeypatch.setattr("sys.argv", ["recfusion", *words])
        with pytest.raises(SystemExit) as left:
            cli.main()
        found = capsys.readouterr()
        return left.value.code, found.out, found.err

    return run


def test_lists_of_another_program_stand_beside_our_models(leave: Leave) -> None:
    metrics = ("--metrics", "recall@5,ndcg@10")
    assert (
        leave(
            "compare", "--data", "shop.csv", "--models", "popularity", "--workers", "0", "--out", "s.jsonl", *metrics
        )[0]
        == 0
    )
    code, _, err = leave("split", "export", "--data", "shop.csv", "--out", "split", *metrics)
    assert code == 0
    assert "split/test_history.csv" in err
    users = [line.split(",")[0] for line in Path("split/test.csv").read_text().splitlines()[1:]]
    rows = [f"{user},{item},{item}\n" for user in dict.fromkeys(users) for item in (*range(12), 999)]
    Path("lists.csv").write_text("user,item,rank\n" + "".join(rows))
    code, out, err = leave("judge", "lists.csv", "split", "--label", "other", "--out", "s.jsonl", "--json")
    assert code == 0
    assert json.loads(out)["models"].keys() == {"popularity", "other"}
    assert "5 unknown items were removed" in err
    code, out, _ = leave("diff", "s.jsonl", "s.jsonl", "--labels", "popularity,other")
    assert (code, "model: popularity -> lists" in out) == (0, True)


def test_a_planned_run_is_confirmatory_until_a_default_changes(leave: Leave) -> None:
    code, _, err = leave("plan", "small.toml")
    assert (code, err.splitlines()[-1][:13]) == (0, "Plan of small")
    code, _, err = leave("plan", "small.toml")
    assert (code, "never overwritten" in err) == (2, True)
    command = ("run", "small.toml", "--plan", "small.plan.json", "--workers", "0", "--out", "s.jsonl")
    code, _, err = leave(*command)
    assert (code, "Confirmatory: " in err) == (0, True)
    Path("small.toml").write_text(EXPERIMENT.replace("5.0", "9.0"))
    code, _, err = leave(*command)
    assert (code, "models.ease.settings.l2 changed" in err) == (0, True)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("judge", "none.csv", "split", "--label", "x", "--out", "s.jsonl"), "Expected a file of lists at 'none.csv'"),
        (("judge", "shop.csv", "none", "--label", "x", "--out", "s.jsonl"), "split.json"),
        (("judge", "shop.csv", "none", "--label", "<x>", "--out", "s.jsonl"), "Expected a label"),
        (
            ("judge", "shop.csv", "none", "--label", "x", "--out", "shop.csv"),
            "Expected a store of results at 'shop.csv'",
        ),
        (("diff", "none.jsonl", "shop.csv"), "Expected a store of results at 'none.jsonl'"),
        (("run", "small.toml", "--plan", "shop.csv"), "shop.csv"),
        (("compare", "--data", "shop.csv", "--deciding", "map@5"), "Unknown deciding metric 'map@5'"),
        (("compare", "--data", "shop.csv", "--metrics", "no.py:f@5"), "no.py"),
    ],
)
def test_bad_input_is_one_sentence(leave: Leave, words: tuple[str, ...], expected: str) -> None:
    code, out, err = leave(*words)
    assert (code, out) == (2, "")
    *progress, said = err.splitlines()
    assert said.startswith("Error: ")
    assert expected in said
    assert progress in ([], ["Judging shop.csv"])
    assert not Path("s.jsonl").exists()


def test_a_comparison_by_a_column_of_the_users_fits_nothing_again(leave: Leave) -> None:
    Path("users.csv").write_text("user,age\n" + "".join(f"u{n},{'old' if n % 2 else 'young'}\n" for n in range(50)))
    words = ("compare", "--data", "shop.csv", "--models", "popularity,ease", "--workers", "0", "--out", "s.jsonl")
    assert leave(*words)[0] == 0
    stored = Path("s.jsonl").read_bytes()
    code, out, _ = leave(*words, "--users-file", "users.csv", "--by", "age")
    assert code == 0
    assert "ease, age old (" in out
    assert "popularity, age young (" in out
    assert "By age: the mean ndcg@100 of the test users in each group." in out
    assert Path("s.jsonl").read_bytes() == stored
    code, out, _ = leave(*words, "--users-file", "users.csv", "--by", "age", "--json")
    assert {group["value"] for group in json.loads(out)["by"]["ease"]["groups"]} == {"old", "young"}
    code, _, err = leave(*words, "--by", "age")
    assert code == 2
    assert "Expected a file of users with the column 'age', got none: name it with --users-file." in err
