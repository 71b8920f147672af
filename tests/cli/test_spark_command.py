"""The commands that need Spark, where it is missing or wrong; what they do with it is tested in tests/spark."""

import builtins
import socket
import time
from pathlib import Path
from typing import Any

import pytest

from recfusion.cli import main as cli
from recfusion.data.load import load
from recfusion.experiments.train import train

COMMANDS = pytest.mark.parametrize(
    "command",
    [
        ["tune", "ease", "--engine", "spark", "--data", "shop.csv"],
        ["spark", "prepare", "--data", "shop.csv", "--out", "prepared"],
        ["spark", "recommend", "model", "--histories", "shop.csv", "--out", "lists"],
    ],
)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    rows = [f"u{user},{(6 * user + item) % 54}\n" for user in range(50) for item in range(24)]
    Path("shop.csv").write_text("user,item\n" + "".join(rows))
    train("popularity", load("shop.csv")).save("model")
    return tmp_path


def fail(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Run a command that must end with exit code 2, and return its one sentence."""
    monkeypatch.setattr("sys.argv", ["recfusion", *arguments])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert stop.value.code == 2
    [error] = [line for line in capsys.readouterr().err.splitlines() if line.startswith("Error: ")]
    return error


@COMMANDS
def test_without_pyspark_the_extra_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    load = builtins.__import__

    def missing(name: str, *rest: Any, **more: Any) -> Any:
        if name.startswith("pyspark"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return load(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", missing)
    assert "pip install 'recfusion[spark]'" in fail(monkeypatch, capsys, *command)


@COMMANDS
def test_without_java_it_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: list[str], tmp_path: Path
) -> None:
    pytest.importorskip("pyspark", reason="pyspark is not installed (the extra spark)")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "Spark needs Java 17 or later, and none is on the PATH" in fail(monkeypatch, capsys, *command)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert "there is no bin/java in it" in fail(monkeypatch, capsys, *command)


@COMMANDS
def test_a_master_that_does_not_answer_is_told_of_at_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    pytest.importorskip("pyspark", reason="pyspark is not installed (the extra spark)")
    monkeypatch.setattr("recfusion.spark.session._require_java", lambda: None)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        master = f"spark://127.0.0.1:{free.getsockname()[1]}"
    began = time.monotonic()
    assert f"No Spark master answers at '{master}'" in fail(monkeypatch, capsys, *command, "--master", master)
    assert time.monotonic() - began < 30


@COMMANDS
def test_a_master_of_no_known_form_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    pytest.importorskip("pyspark", reason="pyspark is not installed (the extra spark)")
    monkeypatch.setattr("recfusion.spark.session._require_java", lambda: None)
    assert "got 'bogus': check --master" in fail(monkeypatch, capsys, *command, "--master", "bogus")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["prepare", "--data", "ml-latest-small", "--out", "x"], "is prepared as it is read"),
        (["prepare", "--data", "no.csv", "--out", "x"], "got nothing: check the path"),
        (["prepare", "--data", "shop.csv", "--out", "x", "--split", "weak"], "Data is split when it is used"),
        (["prepare", "--data", "s3://shop/x.csv", "--out", "x"], "got the address 's3://shop/x.csv'"),
        (["prepare", "--data", "shop.csv", "--out", "."], "holds other files"),
        (["recommend", "model", "--histories", "no.csv", "--out", "x"], "got nothing: check the path"),
        (["recommend", "model", "--histories", "shop.csv", "--out", "shop.csv"], "got the file 'shop.csv'"),
        (["recommend", "nomodel", "--histories", "shop.csv", "--out", "x"], "Expected a model folder at 'nomodel'"),
        (["prepare", "--data", "shop.csv", "--out", "x", "--conf", "much"], "Expected --conf KEY=VALUE, got 'much'"),
    ],
)
def test_bad_input_needs_no_spark_to_be_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert message in fail(monkeypatch, capsys, "spark", *arguments)
