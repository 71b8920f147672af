"""Whatever is wrong from outside: one line that begins with "Error:", exit code 2, nothing printed, nothing written."""

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from shutil import copytree

import polars as pl
import pytest

from recfusion.cli import main as cli
from recfusion.inference.bundle_files import sealed

Fail = Callable[..., str]
OWN = """
from dataclasses import dataclass
import recfusion as rf
class NoModel: ...
class Undecorated(rf.Recommender):
    def fit(self, train, valid=None, *, rng=None): return self
    def score(self, history): return history.toarray()
@dataclass
class Abstract(rf.Recommender):
    def fit(self, train, valid=None, *, rng=None): return self
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of its own to work in, with a usable table in it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RECFUSION_DATA", str(tmp_path / "no data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "no cache"))
    monkeypatch.setenv("MPLCONFIGDIR", tempfile.gettempdir())  # matplotlib would write its cache of fonts beside it
    rows = [f"u{user},{(user + 3 * step) % 15},5\n" for user in range(40) for step in range(8)]
    Path("good.csv").write_text("user,item,rating\n" + "".join(rows))
    Path("broken.py").write_text("def\n")
    Path("own.py").write_text(OWN)
    return tmp_path


def leave(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> object:
    monkeypatch.setattr("sys.argv", ["recfusion", *map(str, arguments)])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    return stop.value.code


@pytest.fixture
def fail(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Fail:
    """Run a command that must fail as it should, and return its message."""

    def call(*arguments: object) -> str:
        before = sorted(path for path in folder.rglob("*") if "__pycache__" not in path.parts)
        code = leave(monkeypatch, *arguments)
        printed = capsys.readouterr()
        *progress, message = printed.err.strip().splitlines()
        assert code == 2, printed.err
        assert printed.out == ""
        assert message.startswith("Error: ")
        assert not any(line.startswith(("Error", "Traceback", " ")) for line in progress)
        assert sorted(path for path in folder.rglob("*") if "__pycache__" not in path.parts) == before
        return message

    return call


@pytest.fixture
def model(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Path:
    """A model folder."""
    assert leave(monkeypatch, "train", "ease", "--data", "good.csv", "--out", "model") == 0
    capsys.readouterr()
    return folder / "model"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "got an empty file"),
        ("user,item,rating\n", "got none below"),
        ("user\na\nb\n", "a column for the item"),
        ("who,what\na,1\nc,2\n", "a column for the user"),
        ("user,item,rating\na,1,good\nb,2,bad\n", "line 2 has a rating that is not a number: 'good'"),
        ("user,item\na,1\na,2\na,3\na,4\na,5\n", "No interactions"),
        ("user,item,item\na,1,2\n", "twice"),
        ("user,item\na,1\nb,\n", "line 3 has no item"),
        ("\0\0\0", "binary data"),
    ],
)
def test_a_bad_file_is_refused(fail: Fail, content: str, words: str) -> None:
    Path("bad.csv").write_text(content)
    assert words in fail("train", "popularity", "--data", "bad.csv", "--out", "model")
    assert words in fail("data", "describe", "bad.csv")
    assert words in fail("compare", "--data", "bad.csv", "--json")


def test_users_with_a_single_item_cannot_be_judged_but_learned_from(fail: Fail) -> None:
    Path("one.csv").write_text("user,item\n" + "".join(f"u{user},i\n" for user in range(60)))
    for command in (["train", "elsa", "--out", "model"], ["compare", "--models", "ease,elsa"]):
        message = fail(*command, "--data", "one.csv", "--min-items-per-user", 1)
        assert message == (
            "Error: No user of 'one.csv' has 2 items, one to show and one to find, so nobody can be evaluated: "
            "train on everybody with --all-users, or bring more data."
        )


def test_a_misspelt_command_is_one_sentence(fail: Fail) -> None:
    assert fail("trian", "ease") == "Error: No such command 'trian'. Did you mean 'train'?"


@pytest.mark.parametrize("users", [1, 2])
def test_too_few_users_are_refused(fail: Fail, users: int) -> None:
    Path("few.csv").write_text("user,item\n" + "".join(f"u{u},{i}\n" for u in range(users) for i in range(6)))
    message = fail("train", "ease", "--data", "few.csv", "--min-users-per-item", 0, "--out", "model")
    assert f"at least 3 users (one each for training, validation and test), got {users}" in message


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("train ease --data good.csv", "Missing option '--out'"),
        ("train esae --data good.csv --out m", "Unknown model 'esae': choose one of"),
        ("train ease --data nosuch --out m", "neither a data set of the catalog"),
        ("train ease --data nosuch.csv --out m", "Expected a file at 'nosuch.csv', got nothing"),
        ("train ease --data . --out m", "got a folder"),
        ("train ease --data ml-100k --out m", "recfusion data fetch ml-100k"),
        ("train ease --data ml-latest-small --user x --out m", "leave out --user"),
        ("train ease --data good.csv --out m --bogus 1", "No such option"),
        ("train ease --dat good.csv --out m", "--data"),
        ("train ease --data good.csv --out m --set l2", "Expected --set NAME=VALUE"),
        ("train ease --data good.csv --out m --set l2=abc", "got 'abc'"),
        ("train ease --data good.csv --out m --set l2=-1", "at least"),
        ("train ease --data good.csv --out m --set depth=3", "Unknown setting of ease 'depth'"),
        ("train ease --data good.csv --out m --seed -1", "--seed"),
        ("train ease --data good.csv --out m --split foo", "strong"),
        ("train ease --data good.csv --out m --split temporal", "needs times"),
        ("train ease --data good.csv --out m --min-rating abc", "--min-rating"),
        ("train ease --data good.csv --out m --min-rating 9", "No interactions of 'good.csv' are left"),
        ("train ease --data good.csv --out m --user nobody", "Expected a column 'nobody' (--user)"),
        ("train ease --data good.csv --out m --separator ::", "found 1 column: user,item"),
        ("train ease --data good.csv --out m --separator ;", "--separator"),
        ("train ease --data good.csv --out m --items nosuch.csv", "Expected a file at 'nosuch.csv'"),
        ("train ease --data good.csv --out good.csv", "Expected a folder to write to"),
        ("train ease --data good.csv --out good.csv/m", "Cannot write to"),
        ("train ease --data good.csv --out .", "is not replaced"),
        ("compare --data good.csv --models foo", "Unknown model 'foo'"),
        ("compare --data good.csv --models ,", "at least one model"),
        ("compare --data good.csv --models ease,ease", "got 'ease' twice"),
        ("compare --data good.csv --metrics ,", "at least one metric"),
        ("compare --data good.csv --out .", "got the folder"),
        ("compare --data good.csv --min-rating nan", "--min-rating"),
        ("train ease --data good.csv --out m --set l2=nan", "finite"),
        ("recommend model --history 1 --out x.csv", "Expected --histories FILE and --out FILE"),
        ("compare --data good.csv --splits 0", "--splits"),
        ("compare --data good.csv --metrics foo@3", "Unknown metric"),
        ("compare --data good.csv --metrics ndcg", "a list length"),
        ("compare --data good.csv --set l2=3", "MODEL.NAME=VALUE"),
        ("compare --data good.csv --out good.csv/r.json", "Cannot write to"),
        ("compare --data good.csv --models a=ease,a=slim", "got 'a' twice"),
        ("compare --data good.csv --models nosuch.py:Model", "Expected a Python file at"),
        ("compare --data good.csv --models broken.py:Model", "Cannot import 'broken.py' (SyntaxError"),
        ("compare --data good.csv --models own.py:Nothing", "models there: Abstract, Undecorated"),
        ("compare --data good.csv --models own.py:NoModel", "inherits from recfusion.Recommender"),
        ("compare --data good.csv --models own.py:Undecorated", "write @dataclass above it"),
        ("compare --data good.csv --models own.py:Abstract", "lacks what every model has: score"),
        ("compare --data good.csv --models no.such.module:Model", "Cannot import 'no.such.module'"),
        ("compare --data good.csv --models :Model", "Expected a model as file.py:Class"),
        ("train own.py:Abstract --data good.csv --out m", "lacks what every model has"),
        ("models nosuch", "Unknown model 'nosuch'"),
        ("recommend model", "Expected either --history"),
        ("recommend model --history 1 --histories good.csv", "Expected either --history"),
        ("recommend model --histories good.csv", "Expected --histories FILE and --out FILE"),
        ("recommend model --history 1", "Expected a model folder"),
        ("recommend good.csv --history 1 -k 0", "-k"),
        ("evaluate nosuch", "Expected a model folder"),
        ("figure diffusion --data good.csv --signals graded --out f.png", "Expected no --signals"),
        ("data fetch nosuch", "Unknown data set 'nosuch'"),
        ("data describe nosuch", "neither a data set"),
        ("fly", "No such command 'fly'"),
    ],
)
def test_a_wrong_word_is_refused(fail: Fail, arguments: str, words: str) -> None:
    assert words in fail(*arguments.split())


def test_a_wrong_choice_is_named_without_the_words_of_a_library(fail: Fail) -> None:
    told = fail("compare", "--split", "nosuch")
    assert "'nosuch' is not one of" in told
    assert "Value error" not in told


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("--histories nosuch.csv --out lists.csv", "Expected a file at 'nosuch.csv'"),
        ("--histories good.csv --out lists.xlsx", "end it in .csv"),
        ("--histories good.csv --out good.csv/lists.csv", "Cannot write to"),
        ("--histories good.csv --user nobody --out lists.csv", "Expected a column 'nobody'"),
        ("--histories empty.jsonl --out lists.csv", "empty file"),
    ],
)
def test_lists_for_a_bad_file_are_refused(fail: Fail, model: Path, arguments: str, words: str) -> None:
    Path("empty.jsonl").touch()
    assert words in fail("recommend", model, *arguments.split())


def cut(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:100])


def edit(key: str, value: object) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(sealed(config | {key: value})))

    return change


def shorten(folder: Path) -> None:
    items = pl.read_parquet(folder / "items.parquet")
    items.head(3).write_parquet(folder / "items.parquet")


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (cut, "model.safetensors in the model folder 'damaged' is not the one that was saved"),
        (lambda folder: (folder / "model.safetensors").unlink(), "is not the one that was saved"),
        (lambda folder: (folder / "items.parquet").unlink(), "is not the one that was saved"),
        (lambda folder: (folder / "protocol.json").unlink(), "protocol.json"),
        (lambda folder: (folder / "config.json").write_text("{"), "Expected JSON"),
        (lambda folder: (folder / "config.json").write_text("[]"), "Expected a JSON object"),
        (lambda folder: (folder / "protocol.json").write_text("{}"), "protocol.json in the model folder"),
        (shorten, "items.parquet in the model folder"),
        (edit("digests", {}), "Expected digests"),
        (edit("format", 9), "has format 9"),
        (edit("model", "foo"), "if you trust it"),
        (edit("settings", {"zz": 1}), "Unknown setting of ease 'zz'"),
        (edit("seed", "x"), "config.json': seed: input should be a valid integer"),
    ],
)
def test_a_damaged_model_folder_is_refused(
    fail: Fail, model: Path, damage: Callable[[Path], object], words: str
) -> None:
    damage(copytree(model, model.with_name("damaged")))
    assert words in fail("recommend", "damaged", "--history", "1")
    assert words in fail("evaluate", "damaged")


def test_a_model_is_not_judged_on_other_data(fail: Fail, model: Path) -> None:
    Path("other.csv").write_text(Path("good.csv").read_text().replace("u39,0,", "u39,1,"))
    assert "got other data (other.csv: 40, 15, " in fail("evaluate", model, "--data", "other.csv")


def test_a_folder_that_is_no_model_is_left_alone(fail: Fail) -> None:
    Path("mine").mkdir()
    Path("mine/diary.txt").write_text("dear diary")
    assert "holds other files" in fail("train", "ease", "--data", "good.csv", "--out", "mine")
