"""docs/reference/promises.md names tests that exist, and tests of the promises about the package as a whole."""

import ast
import logging
import re
from pathlib import Path

import pytest

from foreign import Mine
from named_tests import ROOT, missing
from recfusion.data.load import load
from recfusion.experiments.comparison import compare
from recfusion.experiments.train import train
from recfusion.experiments.tuning.tune import tune
from recfusion.report.page import write_page

PROMISES = (ROOT / "docs" / "reference" / "promises.md").read_text(encoding="utf-8")
_TEST = re.compile(r"`(tests/[^`]*)`")


def test_every_promise_names_tests_and_all_of_them_exist() -> None:
    promises = PROMISES.split("\n- **")[1:]
    assert len(promises) > 20
    assert [promise.splitlines()[0] for promise in promises if not _TEST.search(promise)] == []
    assert missing(_TEST.findall(PROMISES)) == []


def test_nothing_that_is_written_names_a_user_or_a_folder_of_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "recfusion")  # an earlier command may have changed it
    elsewhere, here = tmp_path / "secret-folder", tmp_path / "work"
    elsewhere.mkdir()
    here.mkdir()
    monkeypatch.chdir(here)
    users = [f"customer-{number}-jones" for number in range(60)]
    rows = [f"{user},{item}" for place, user in enumerate(users) for item in range(place % 4, 20, 2)]
    broken = ['customer-61-jones,"7', "customer-62-jones"]  # unreadable lines
    (elsewhere / "shop.csv").write_text("user,item\n" + "\n".join([*rows, *broken]) + "\n")
    data = load(str(elsewhere / "shop.csv"))
    train("thinning-linear", data).save("model")
    tune(Mine, data, trials=2, folder="search")
    found = compare(data, {"mine": Mine(), "net": "recfusion"}, store="results.jsonl")
    write_page(found, "report.html")
    written = [path for path in here.rglob("*") if path.is_file()]
    assert {"config.json", "README.md", "trials.jsonl", "results.jsonl", "report.html"} <= {p.name for p in written}
    logged = [one.getMessage().encode() for one in caplog.records if one.name.startswith("recfusion")]
    assert logged
    for text in (*(path.read_bytes() for path in written), *logged):
        assert b"jones" not in text
        assert b"secret-folder" not in text
        assert str(Path.home()).encode() + b"/" not in text


def test_only_what_worker_processes_are_sent_is_unpickled_and_nothing_is_evaluated() -> None:
    package, risky = ROOT / "src" / "recfusion", {"eval", "exec", "compile", "__import__", "torch.load", "np.load"}
    risky |= {f"{module}.{name}" for module in ("pickle", "marshal", "joblib") for name in ("load", "loads", "dump")}
    found = {
        (file.relative_to(package).as_posix(), ast.unparse(node.func))
        for file in package.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) in risky
        and "allow_pickle=False" not in ast.unparse(node)
    }
    # The job of a worker process, and the check that a model can be sent to one.
    assert found == {("experiments/candidate.py", "pickle.loads"), ("testing/declaration_checks.py", "pickle.loads")}
