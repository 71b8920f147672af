"""`recfusion items add` on the command line."""

from pathlib import Path

import polars as pl
import pytest

from recfusion.cli import main as cli


def run(*arguments: str) -> int:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["recfusion", *arguments])
        with pytest.raises(SystemExit) as left:
            cli.main()
    return int(left.value.code or 0)


def test_new_items_are_added_from_a_file_and_oddities_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [f"u{u},i{10 * (u % 2) + (u + n) % 10}" for u in range(60) for n in range(6)]
    Path("data.csv").write_text("\n".join(["user,item", *rows]) + "\n")
    kinds = [f"i{n},{'Tea' if n < 10 else 'Book'}" for n in range(20)]
    Path("items.csv").write_text("\n".join(["item,kind", *kinds]) + "\n")
    Path("new.csv").write_text("item,kind,colour\ni1,Tea,red\nnew,Tea,blue\nodd,Zebra,red\n")
    options = ("--data", "data.csv", "--items", "items.csv", "--signals", "features", "--tune-trials", "0")
    assert run("train", "thinning-features", *options, "--out", "model") == 0
    assert run("items", "add", "model", "--items", "new.csv", "--out", "more") == 0
    said = capsys.readouterr().err
    assert "Added 2 items; the model knows 1 of their 2 features" in said
    assert "1 item that the model already has" in said
    assert "1 new item without a known feature" in said
    assert "New columns, without values for items that are not in the file: colour" in " ".join(said.split())
    items = pl.read_parquet("more/items.parquet")
    assert dict(items.drop_nulls("colour").select("item", "colour").iter_rows()) == {
        "i1": "red",
        "new": "blue",
        "odd": "red",
    }
    assert run("recommend", "more", "--history", "i0,i2,i3", "--why", "2", "--where", "item = 'new'") == 0
    assert "its kind: Tea" in " ".join(capsys.readouterr().out.split())
    assert run("items", "add", "more", "--items", "new.csv", "--out", "again") == 2
    assert not Path("again").exists()


def test_a_signal_that_no_model_reads_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("train", "ease", "--signals", "features", "--out", "nowhere") == 2
    assert "does not read them" in " ".join(capsys.readouterr().err.split())
