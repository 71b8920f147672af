"""`recfusion run`, used as a person would."""

import io
import json
import re
from pathlib import Path

import pytest
from rich.console import Console

from recfusion.cli import main as cli
from recfusion.cli.result_output import print_results
from recfusion.data.interactions import Interactions
from recfusion.experiments.comparison import Comparison, compare
from recfusion.models.baselines.popularity import Popularity
from recfusion.models.linear.ease import EASE

SPEC = """
name = "tried"
[data]
data = "shop.csv"
[run]
seeds = 2
metrics = ["recall@3", "ndcg@5"]
[models.popularity]
[models.ease]
l2 = 5
seeds = 1
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in, and an experiment with its data in another."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    items = [6 * step + twin for step in range(4) for twin in range(6)]  # in sixes that the same users have
    rows = [f"u{user},{(6 * user + item) % 54}\n" for user in range(50) for item in items]
    (tmp_path / "shop.csv").write_text("user,item\n" + "".join(rows))
    (tmp_path / "tried.toml").write_text(SPEC)
    return tmp_path


def leave(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> object:
    monkeypatch.setattr("sys.argv", ["recfusion", "run", *map(str, arguments)])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    return stop.value.code


def test_an_experiment_is_run_shown_and_not_run_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert leave(monkeypatch, "../tried.toml") == 0
    printed = capsys.readouterr()
    assert printed.out.index("Strong generalization") < printed.out.index("popularity │")
    assert "ease against popularity" in printed.out or "popularity against ease" in printed.out
    assert "[3/3]" in printed.err
    assert "Models on fewer than 2 splits: ease 1" in printed.err
    store = Path("results/tried.jsonl")
    assert f"3 fits; results are saved in {store}" in printed.err
    whole = store.read_bytes()

    assert leave(monkeypatch, "../tried.toml", "--json") == 0
    again = capsys.readouterr()
    assert "3 fits, 3 of them are stored already" in again.err
    document = json.loads(again.out)
    assert (document["experiment"], document["models"]["ease"]["seeds"]) == ("tried", [0])
    assert store.read_bytes() == whole


def test_stale_results_are_fitted_again_or_kept(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    store = Path("results/tried.jsonl")
    assert leave(monkeypatch, "../tried.toml", "--workers", 0) == 0
    text = re.sub(r'"code":"\w+"', '"code":"0123456789abcdef"', store.read_text(), count=1)
    store.write_text(text)
    label = json.loads(text.splitlines()[0])["label"]
    capsys.readouterr()

    assert leave(monkeypatch, "../tried.toml", "--workers", 0, "--keep-stale") == 0
    printed = capsys.readouterr()
    assert caplog.messages == [f"Stored results of other code are used: {label}, split 0."]
    assert f"{label} †" in printed.out
    assert "†: fitted by older code" in printed.err
    assert store.read_text() == text

    assert leave(monkeypatch, "../tried.toml", "--workers", 0) == 0
    printed = capsys.readouterr()
    assert "3 fits, 2 of them are stored already" in printed.err
    assert "†" not in printed.out
    assert len(store.read_text().splitlines()) == 4


def test_a_narrow_terminal_shows_whole_names_and_means_without_intervals(groups: Interactions) -> None:
    metrics = ("calibrated_recall@20", "coverage@10", "ndcg@100")
    found = compare(groups, {"thinning-pairs": EASE(l2=5.0), "thinning-kernel (1)": Popularity()}, metrics=metrics)
    mean, low, high = (f"{100 * value:.{digits}f}" for value, digits in _of(found, "thinning-pairs", "ndcg@100"))
    shown = {}
    for width in (200, 90, 70):
        console = Console(width=width, file=io.StringIO(), highlight=False)
        print_results(console, found)
        assert isinstance(console.file, io.StringIO)
        shown[width] = console.file.getvalue()
        assert "thinning-kernel (1)" in shown[width]
        assert "thinning-pairs against thinning-kernel (1), ndcg@100: +" in shown[width].replace("\n", " ")
        assert "coverage@10: " not in shown[width]
        assert mean in shown[width]
    assert [f"{low}–{high}" in text for text in shown.values()] == [True, False, False]
    assert ["fit s" in text for text in shown.values()] == [True, True, False]


def _of(found: Comparison, label: str, metric: str) -> list[tuple[float, int]]:
    summary = found.models[label].metrics[metric]
    assert summary.ci95 is not None
    return [(summary.mean, 2), (summary.ci95[0], 1), (summary.ci95[1], 1)]


def test_failures_are_listed_and_the_exit_code_is_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    (folder / "tried.toml").write_text(SPEC.replace("l2 = 5", "l2 = 1e-6"))  # equal columns make the matrix singular
    assert leave(monkeypatch, "../tried.toml", "--workers", 1, "--out", "s.jsonl") == 1
    printed = capsys.readouterr()
    assert "popularity │" in printed.out
    assert "ease, split 0 failed: The regularised Gram matrix" in printed.err
    assert "1 fit failed and will be retried by the next run:\n  ease, split 0: The regularised" in printed.err
    assert "--verbose" not in printed.err  # the sentence says it all
    assert len(Path("s.jsonl").read_bytes().splitlines()) == 2


def test_a_failure_of_foreign_code_says_how_to_see_its_lines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    (folder / "mine.py").write_text(
        "from dataclasses import dataclass\nimport recfusion as rf\n@dataclass\nclass Mine(rf.Recommender):\n"
        "    def fit(self, train, valid=None, *, rng=None):\n        return [][0]\n"
        "    def score(self, history):\n        return history\n"
    )
    (folder / "tried.toml").write_text(SPEC + f"[models.mine]\nmodel = '{folder / 'mine.py'}:Mine'\n")
    assert leave(monkeypatch, "../tried.toml", "--workers", 0, "--out", "s.jsonl") == 1
    printed = capsys.readouterr().err
    assert "mine, split 0: IndexError: list index out of range\n" in printed
    assert printed.endswith(
        "`recfusion --verbose`, before the command, shows the lines of the code where they failed.\n"
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("nosuch.toml", "Expected a file at 'nosuch.toml', got nothing"),
        ("../shop.csv", "Expected TOML in '../shop.csv'"),
        ("../tried.toml --workers -1", "--workers"),
        ("../tried.toml --out ..", "got the folder"),
        ("../tried.toml --out ../shop.csv", "Expected a result as JSON in '../shop.csv, line 1'"),
        ("../tried.toml --out ../tried.toml", "Expected a result as JSON"),
        ("../tried.toml --out ../shop.csv/s.jsonl", "Cannot write to"),
    ],
)
def test_wrong_input_is_refused_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], folder: Path, arguments: str, words: str
) -> None:
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert leave(monkeypatch, *arguments.split()) == 2
    printed = capsys.readouterr()
    (message,) = printed.err.splitlines()
    assert message.startswith("Error: ")
    assert words in message
    assert printed.out == ""
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
