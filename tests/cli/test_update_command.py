"""`recfusion update` on the command line."""

from pathlib import Path

import pytest
from test_items_command import run

from recfusion.core.files import file_digest


def digests(folder: Path) -> dict[str, str]:
    return {file.name: file_digest(file) for file in folder.iterdir()}


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Path:
    monkeypatch.chdir(tmp_path)
    rows = [f"u{u},i{10 * (u % 2) + (u + n) % 10}" for u in range(60) for n in range(6)]
    Path("data.csv").write_text("\n".join(["user,item", *rows]) + "\n")
    options = ("--data", "data.csv", "--set", "l2=10", "--tune-trials", "0", "--all-users", "--updatable")
    assert run("train", "thinning-linear", *options, "--out", "model") == 0
    assert "For updates the folder also keeps about 0 MB: the rows of 60 users" in capsys.readouterr().err
    Path("new.csv").write_text("user,item\nnew,i0\nnew,i1\nnew,i2\nnew,i3\nnew,i4\nu1,i2\nother,i1\n")
    Path("gone.txt").write_text("user\nu5\nu6\n")
    return Path("model")


def test_rows_are_added_and_users_forgotten_from_files(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = digests(model)
    assert run("update", "model", "--rows", "new.csv", "--forget", "gone.txt", "--out", "next") == 0
    said = " ".join(capsys.readouterr().err.split())
    assert "1 user added, 1 changed, 2 forgotten; 0 new items" in said
    assert "The model has 59 users and 20 items; saved to next" in said
    assert digests(model) == before
    assert run("update", "next", "--forget", "gone.txt", "--out", "last") == 2
    assert "2 of 2 that it does not have" in capsys.readouterr().err
    assert run("recommend", "next", "--history", "i0,i2") == 0
    assert run("update", "next", "--rows", "new.csv", "--replace", "--out", "next") == 0
    assert "0 users added, 2 changed, 0 forgotten" in capsys.readouterr().err


def test_wrong_updates_leave_the_folder_unchanged(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = digests(model)
    assert run("update", "model", "--out", "model") == 2
    assert run("update", "model", "--rows", "missing.csv", "--out", "model") == 2
    assert run("update", "model", "--forget", "missing.txt", "--out", "model") == 2
    Path("few.csv").write_text("user,item\nother,i1\nother,i2\n")
    assert run("update", "model", "--rows", "few.csv", "--out", "model") == 2
    assert "2 of new users with too few items" in " ".join(capsys.readouterr().err.split())
    assert run("train", "popularity", "--data", "data.csv", "--out", "plain") == 0
    assert run("update", "plain", "--rows", "new.csv", "--out", "plain") == 2
    assert run("train", "popularity", "--data", "data.csv", "--updatable", "--out", "plain") == 2
    assert digests(model) == before


def test_a_full_disk_leaves_the_folder_unchanged(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    before = digests(model)
    monkeypatch.setattr("recfusion.inference.bundle.save_file", full)
    assert run("update", "model", "--rows", "new.csv", "--out", "model") == 2
    assert "No space left on device" in " ".join(capsys.readouterr().err.split())
    assert digests(model) == before


def test_a_failed_certificate_leaves_the_folder_unchanged(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = digests(model)
    monkeypatch.setattr("recfusion.inference.update.TOLERANCE", 1e-12)
    assert run("update", "model", "--rows", "new.csv", "--out", "model") == 2
    assert "of the spread of scores, above 1e-12: train it again" in " ".join(capsys.readouterr().err.split())
    assert digests(model) == before


def test_files_are_read_like_the_orders_of_the_model(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The ids are in the columns that training named, and cancelled lines do not count."""
    monkeypatch.chdir(tmp_path)
    header = "Kunde;Konto;Artikel;Code;Status\n"
    rows = [f"x;k{u};Tee;i{10 * (u % 2) + (u + n) % 10};ok\n" for u in range(60) for n in range(6)]
    Path("orders.csv").write_text(header + "".join(rows))
    columns = ("--user", "Konto", "--item", "Code", "--rows", "Status == 'ok'")
    options = ("--data", "orders.csv", *columns, "--set", "l2=10", "--tune-trials", "0", "--all-users", "--updatable")
    assert run("train", "thinning-linear", *options, "--out", "model") == 0
    lines = [f"x;new;Tee;i{n};{'ok' if n < 6 else 'cancelled'}\n" for n in range(8)]
    Path("today.csv").write_text(header + "".join(lines))
    capsys.readouterr()
    assert run("update", "model", "--rows", "today.csv", "--out", "next") == 0
    assert "Only rows that meet the condition of the training count: Status == 'ok'" in caplog.text
    said = " ".join(capsys.readouterr().err.split())
    assert "1 user added, 0 changed, 0 forgotten" in said
    assert run("recommend", "next", "--histories", "today.csv", "-k", "20", "--out", "lists.csv") == 0
    said = " ".join(capsys.readouterr().err.split())
    assert "Only rows that meet the condition of the training count: Status == 'ok'" in said
    assert "unknown to the model" not in said
    lists = Path("lists.csv").read_text()
    assert "new,1," in lists
    assert ",i6," in lists
    assert ",i0," not in lists
