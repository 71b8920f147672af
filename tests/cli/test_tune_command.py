"""`recfusion tune`, used as a person would."""

import json
from pathlib import Path

import pytest

from recfusion.cli import main as cli

SPACE = "[space]\nl2 = {low = 1, high = 100, log = true}\n"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in, with a small table and a space."""
    monkeypatch.chdir(tmp_path)
    rows = [f"u{user},{(6 * user + item) % 54}\n" for user in range(50) for item in range(24)]
    Path("shop.csv").write_text("user,item\n" + "".join(rows))
    Path("space.toml").write_text(SPACE)
    return tmp_path


def leave(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> object:
    monkeypatch.setattr("sys.argv", ["recfusion", "tune", *map(str, arguments)])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    return stop.value.code


def test_a_search_is_run_shown_and_gone_on_with(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    common = ("ease", "--data", "shop.csv", "--space", "space.toml", "--threads", 1, "--set", "tune_trials=2")
    assert leave(monkeypatch, *common, "--trials", 2) == 0
    printed = capsys.readouterr()
    assert "[2/2] trial 1 (l2=" in printed.err
    assert "best " in printed.err
    assert "validation ndcg@100:" in printed.out
    assert "(the defaults:" in printed.out
    assert "test ndcg@100:" in printed.out
    folder = Path("tuning/ease-shop.csv")
    assert sorted(file.name for file in folder.iterdir()) == ["best.json", "model", "trials.jsonl"]

    assert leave(monkeypatch, *common, "--trials", 3, "--parallel", 2, "--json") == 0
    printed = capsys.readouterr()
    assert "2 trials of earlier runs; best" in printed.err
    assert "Refitting" in printed.err
    assert "[3/3] trial 2 (l2=" in printed.err
    document = json.loads(printed.out)
    assert document["trials"] == {"ok": 3, "stopped": 0, "failed": 0}
    assert document["validation"] >= document["default"]
    assert len((folder / "trials.jsonl").read_text().splitlines()) == 3

    assert document["settings"]["tune_trials"] == 2
    assert leave(monkeypatch, *common, "--trials", 2, "--json") == 0
    printed = capsys.readouterr()
    assert "Refitting" not in printed.err
    assert json.loads(printed.out) == document

    assert leave(monkeypatch, *common, "--metric", "recall@3") == 2
    assert "another protocol" in capsys.readouterr().err


def test_a_terminal_keeps_a_line_of_each_trial_above_the_bar(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "150")
    assert leave(monkeypatch, "ease", "--data", "shop.csv", "--space", "space.toml", "--trials", 3) == 0
    shown = capsys.readouterr().err
    for number in range(3):
        assert shown.count(f"[{number + 1}/3] trial {number} (") == 1
    assert "3/3" in shown.rpartition("[3/3]")[2]
    assert "best" in shown.rpartition("[3/3]")[2]


def test_what_a_time_limit_left_out_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    common = ("ease", "--data", "shop.csv", "--space", "space.toml", "--trials")
    assert leave(monkeypatch, *common, 1) == 0
    capsys.readouterr()
    assert leave(monkeypatch, *common, 3, "--timeout", 0) == 0
    assert "2 of 3 trials are missing: run the same command to resume" in capsys.readouterr().err
    assert leave(monkeypatch, *common, 3, "--timeout", 0, "--out", "other") == 2
    printed = capsys.readouterr().err
    assert "No trial ended within the time limit" in printed
    assert "Refitting" not in printed


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["thinning"], "every fit tunes its settings"),
        (["popularity"], "popularity declares no range"),
        (["nothing"], "Unknown model 'nothing'"),
        (["ease", "--set", "l2=4"], "no range except for settings with a fixed value"),
        (["ease", "--set", "l3=4"], "Unknown setting of ease 'l3'"),
        (["ease", "--metric", "fun@3"], "Unknown metric"),
        (["ease", "--space", "no.toml"], "Expected a file at 'no.toml', got nothing"),
        (["slim", "--space", "bad.toml"], "'l3': choose one of"),
        (["ease", "--space", "none.toml"], "space: dictionary should have at least 1 item"),
        (["ease", "--master", "local[2]"], "are for Spark"),
        (["ease", "--engine", "spark", "--threads", 2], "spark.task.cpus"),
        (["ease", "--engine", "flink"], "flink"),
        (["ease", "--trials", 0], "trials"),
    ],
)
def test_bad_input_is_one_sentence_and_code_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[object], message: str
) -> None:
    Path("bad.toml").write_text("[space]\nl3 = {low = 1, high = 2}\n")
    Path("none.toml").write_text("[space]\n")
    assert leave(monkeypatch, *arguments, "--data", "shop.csv") == 2
    printed = capsys.readouterr().err
    assert message in printed
    assert len([line for line in printed.splitlines() if line.startswith("Error: ")]) == 1


def test_a_place_that_cannot_hold_the_search_is_refused_before_any_trial(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    common = ("ease", "--data", "shop.csv", "--space", "space.toml", "--trials", 2)
    assert leave(monkeypatch, *common, "--out", "space.toml") == 2
    assert "not a writable folder" in capsys.readouterr().err
    Path("taken/model").mkdir(parents=True)
    Path("taken/model/thesis.txt").write_text("mine")
    assert leave(monkeypatch, *common, "--out", "taken") == 2
    printed = capsys.readouterr().err
    assert "holds other files" in printed
    assert "trial 0" not in printed
