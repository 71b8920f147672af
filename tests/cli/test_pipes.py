"""A file that a command reads may turn out to be a pipe, as `<(...)` of a shell is: refused, and never waited for."""

import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from recfusion.cli import main as cli
from recfusion.data.interactions import Interactions
from recfusion.experiments.train import train
from recfusion.inference.bundle_files import FILES, sealed

pytestmark = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")

OLD = "old/items.parquet"  # in a folder of format 1, which has no digests
COMMANDS = {
    "data.csv": "compare --data data.csv --models popularity",
    "data.parquet": "train popularity --data data.parquet --out new",
    "items.csv": "data describe rows.csv --items items.csv",
    "users.csv": "data describe rows.csv --signals features --users-file users.csv",
    "split.csv": "evaluate model --data split.csv",
    "experiment.toml": "run experiment.toml",
    "results.jsonl": "report results.jsonl",
    "chosen.toml": "report kept.jsonl --experiment chosen.toml",
    "kept.jsonl": "compare --data rows.csv --models popularity --out kept.jsonl",
    "space.toml": "tune ease --data rows.csv --space space.toml --out tuned",
    "tuned/trials.jsonl": "tune ease --data rows.csv --trials 1 --out tuned",
    "fitted.checkpoint": "train multvae --data rows.csv --set max_epochs=1 --resume --out fitted",
    "mine.py": "train mine.py:Mine --data rows.csv --out new",
    "histories.csv": "recommend model --histories histories.csv --out lists.csv",
    "about.csv": "recommend model --histories rows.csv --users-file about.csv --out lists.csv",
    "deny.txt": "recommend model --history i01 --deny deny.txt",
    "allow.txt": "similar model i01 --allow allow.txt",
    "new.csv": "items add model --items new.csv --out new",
    "known.csv": "serve model --port 0 --histories known.csv",
    "events.sqlite": "serve model --port 0 --events events.sqlite",
    "past.sqlite": "events report past.sqlite",
    "model/config.json": "recommend model --history i01",
    "old/config.json": "items add old --items rows.csv --out new",
    **{f"model/{name}": "recommend model --history i01" for name in FILES},
    OLD: "recommend old --history i01",
}


@contextmanager
def never_waited_for(pipe: Path, seconds: float = 30) -> Iterator[None]:
    """Let whoever waits for a pipe find it empty after a while: a test fails then, and does not hang."""
    waited: list[Path] = []

    def end() -> None:
        with suppress(OSError):  # nobody reads
            os.close(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))
            waited.append(pipe)

    waiting = threading.Timer(seconds, end)
    waiting.daemon = True
    waiting.start()
    try:
        yield
    finally:
        waiting.cancel()
    assert waited == []


@pytest.mark.parametrize("name", COMMANDS)
def test_a_pipe_in_the_place_of_a_file_is_refused_at_once(
    groups: Interactions,
    tmp_path: Path,
    name: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    pairs = [(user, item) for user in range(12) for item in range(user % 4, 8)]
    Path("rows.csv").write_text("user,item\n" + "".join(f"u{user:02d},i{item:02d}\n" for user, item in pairs))
    if "model" in COMMANDS[name].split() or "old" in COMMANDS[name].split():
        train("popularity", groups).save("model")
    if name.startswith("old/"):
        Path("model").rename("old")
        config = json.loads(Path("old/config.json").read_text())
        Path("old/config.json").write_text(json.dumps(sealed({**config, "format": 1, "chosen": []})))
    if name == "chosen.toml":
        Path("kept.jsonl").touch()
    pipe = tmp_path / name
    pipe.parent.mkdir(exist_ok=True)
    pipe.unlink(missing_ok=True)
    os.mkfifo(pipe)
    monkeypatch.setattr("sys.argv", ["recfusion", *COMMANDS[name].split()])
    with never_waited_for(pipe), pytest.raises(SystemExit) as stop:
        cli.main()
    told = capsys.readouterr().err
    assert stop.value.code == 2
    assert told.count("Error: ") == 1
    assert "Traceback" not in told
    assert pipe.name in told.replace("\n", "")
