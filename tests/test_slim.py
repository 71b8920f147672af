"""Installations without optional packages: what works, what says which extra it needs, and what is imported when."""

import gc
import io
import json
import re
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import polars as pl
import pytest

from conftest import random_csr
from named_tests import ROOT
from recfusion.cli.loading import loading, without_collection
from recfusion.core.compiled import compiled
from recfusion.core.errors import InputError
from recfusion.core.extras import EXTRAS, is_installed, missing_package
from recfusion.core.parquet import read_parquet
from recfusion.models.base import Shape
from recfusion.models.thinning import local
from recfusion.models.thinning.mixture import Thinning
from recfusion.models.thinning.plan import WITHOUT_TORCH, plan
from running import process

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
SLIM = "torch,matplotlib,numba"  # the packages that a plain installation lacks
SERVING = f"{SLIM},hyperopt,jinja2,pyarrow"  # those that the serving set lacks
# Runs commands, separated by ";", in a process that cannot import some packages; prints their exit codes.
START = """
import sys
from importlib.abc import MetaPathFinder
class Without(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in BLOCKED:
            raise ModuleNotFoundError(f"No module named '{name}'", name=name)
sys.meta_path.insert(0, Without())
BLOCKED = set(sys.argv.pop(1).split(","))
from recfusion.cli.main import main
program, *words = sys.argv
for command in " ".join(words).split(" ; "):
    sys.argv = [program, *command.split()]
    try:
        main()
    except SystemExit as end:
        print("exit", end.code, flush=True)
"""


def run(blocked: str, *words: str | Path, folder: Path) -> tuple[str, str]:
    """Run commands without some packages; return what they print and their messages."""
    command = [sys.executable, "-c", START, blocked, *map(str, words)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=300)
    assert "Traceback" not in done.stderr, done.stderr
    return done.stdout, done.stderr


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A working folder with `orders.csv` and `model`, the default trained on it, and the messages of the training."""
    work = tmp_path_factory.mktemp("slim")
    rows = [(user, item) for user in range(90) for item in range(user % 3, 30, 3) if (user + item) % 7]
    (work / "orders.csv").write_text("user,item\n" + "".join(f"u{user},p{item}\n" for user, item in rows))
    given = ("--data", "orders.csv", "--set", "tune_trials=0", "--all-users", "--out", "model")
    printed, messages = run(SLIM, "train", *given, folder=work)
    assert "exit 0" in printed
    return work, messages


def test_without_torch_the_default_is_trained_without_networks_and_says_once_what_that_costs(
    folder: tuple[Path, str],
) -> None:
    work, messages = folder
    assert messages.count("torch is not installed") == 1
    assert WITHOUT_TORCH in messages
    assert WITHOUT_TORCH in (work / "model" / "README.md").read_text(encoding="utf-8")
    parts = json.loads((work / "model" / "config.json").read_text(encoding="utf-8"))["settings"]["parts"]
    assert "ials" in parts
    assert not {"thinning-deep", "thinning-order"} & {name.partition("#")[0] for name in parts}


def test_the_serving_set_recommends_and_serves_a_folder_of_closed_forms(folder: tuple[Path, str]) -> None:
    work, _ = folder
    printed, _ = run(SERVING, "recommend", "model", "--history", "p0,p3", "-k", "2", "--json", folder=work)
    listed = json.loads(printed.partition("exit")[0])["recommendations"]
    assert len(listed) == 2
    with process([START, SERVING, "serve", str(work / "model")]) as (_, client):
        until = time.monotonic() + 60
        while client.get("/ready").status != 200:
            assert time.monotonic() < until
            time.sleep(0.1)
        served = client.post("/recommend", {"history": ["p0", "p3"], "k": 2}).json["items"]
        assert client.get("/").status == 200
    assert [row["item"] for row in served] == [row["item"] for row in listed]


def test_what_needs_a_missing_package_names_the_extra_in_one_sentence_with_exit_code_2(
    folder: tuple[Path, str],
) -> None:
    work, _ = folder
    blocked = f"{SLIM},fastapi,pyspark"
    asked = {
        "train recvae --data orders.csv --out other": "'recfusion[nets]'",
        "compare --data orders.csv --models ease,recfusion": "'recfusion[nets]'",
        "models recvae": "'recfusion[nets]'",
        "figure architecture --out figure.png": "'recfusion[report]'",
        "serve model": "'recfusion[serve]'",
        "spark recommend model --histories orders.csv --out lists": "'recfusion[spark]'",
    }
    printed, messages = run(blocked, " ; ".join([*asked, "models"]), folder=work)
    errors = re.findall(r"^Error: (.*)$", messages, re.MULTILINE)
    named = [error.rpartition("which is not installed: pip install ")[2] for error in errors]
    assert named == [f"{extra}." for extra in asked.values()], messages
    assert re.findall(r"exit (\d)", printed) == ["2"] * len(asked) + ["0"]
    assert "recvae" in printed  # listed without torch
    assert not (work / "other").exists()


def test_every_optional_package_has_its_extra() -> None:
    extras = PROJECT["optional-dependencies"]
    names = {package.replace("_", "-"): extra for package, extra in EXTRAS.items() if package != "starlette"}
    declared = {
        re.split(r"[<>=;]", text)[0].removesuffix("-skinny"): extra
        for extra in ("nets", "report", "large", "serve", "xlsx", "spark", "hub", "mcp", "mlflow")
        for text in extras[extra]
        if not text.startswith("recfusion")
    }
    base = {re.split(r"[<>=;]", text)[0] for text in PROJECT["dependencies"]}
    assert {name: extra for name, extra in names.items() if extra} == declared
    assert {name for name, extra in names.items() if not extra} <= base
    assert not {*declared} & base


def test_help_and_the_list_of_models_import_nothing_heavy() -> None:
    heavy = {"torch", "matplotlib", "numba", "hyperopt", "pyspark", "jinja2"}
    for words, more in (("--help", {"polars", "numpy", "scipy", "pyarrow", "pydantic"}), ("models", set())):
        code = "import sys; from recfusion.cli.main import command_line; "
        code += f"command_line()(['{words}'], standalone_mode=False); print('loaded', *sys.modules)"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        loaded = done.stdout.partition("loaded ")[2].split()
        assert (heavy | more) & {*loaded} == set(), words
        assert "typer" in loaded


@pytest.fixture
def nothing_optional(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recfusion.core.extras.find_spec", lambda _: None)


def test_a_plan_without_torch_has_no_network(nothing_optional: None) -> None:
    found = plan(("thinning-pairs", "thinning-deep", "thinning-deep"), Shape(100, 50, 500))
    assert found.parts == ("thinning-pairs",)
    assert found.reasons == (WITHOUT_TORCH,)
    assert not Thinning().keeps_histories


def test_without_numba_a_large_catalogue_is_refused_and_a_mixture_leaves_that_part_out(
    nothing_optional: None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    compiled.cache_clear()
    monkeypatch.setattr(local, "WHOLE_ITEMS", 0)
    train = random_csr(60, 20, 0.2, seed=0)
    with pytest.raises(InputError, match=r"needs the package numba.*pip install 'recfusion\[large\]'"):
        local.ThinningLocal(neighbours=5).fit(train, rng=0)
    assert set(Thinning(tune_trials=0, members="thinning-local,ials").fit(train, rng=0).parts_) == {"ials"}
    assert "recfusion[large]" in caplog.text


def test_without_pyarrow_a_file_is_read_or_refused(
    nothing_optional: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "[items]*.parquet"  # no pattern of files
    table = pl.DataFrame({"item": ["a", "b"], "count": [1, 2]})
    with path.open("wb") as file:
        table.write_parquet(file)
    assert read_parquet(path).equals(table)
    content = path.read_bytes()
    path.write_bytes(content[:20] + b"\xff" * 20 + content[40:])
    with pytest.raises(pl.exceptions.ComputeError):
        read_parquet(path)
    path.write_bytes(content)
    monkeypatch.setattr("recfusion.core.parquet._TRIAL", "import os; os.abort()")  # as polars does for some files
    with pytest.raises(pl.exceptions.ComputeError, match="polars ended"):
        read_parquet(path)
    monkeypatch.setattr("recfusion.core.parquet._TRIAL", "import time; time.sleep(5)")
    monkeypatch.setattr("recfusion.core.parquet._SECONDS", 0.1)
    with pytest.raises(pl.exceptions.ComputeError, match=r"within 0\.1 seconds"):
        read_parquet(path)


def test_without_pyarrow_the_bytes_of_the_trial_are_those_that_are_read(
    nothing_optional: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, table = tmp_path / "items.parquet", pl.DataFrame({"item": ["a"]})
    table.write_parquet(path)
    swap = f"from pathlib import Path; Path({str(path)!r}).write_bytes(b'damaged')"
    monkeypatch.setattr("recfusion.core.parquet._TRIAL", swap)  # another program replaces the file meanwhile
    assert read_parquet(path).equals(table)
    assert path.read_bytes() == b"damaged"


def test_a_failed_import_is_about_a_package_of_ours_or_stays_what_it_is() -> None:
    absent = missing_package(ModuleNotFoundError("No module named 'pyarrow.lib'", name="pyarrow.lib"), "This")
    assert str(absent) == "This needs the package pyarrow, which is not installed: pip install recfusion."
    assert missing_package(ModuleNotFoundError("No module named 'mine'", name="mine"), "This") is None
    assert missing_package(ImportError("cannot import name", name="torch"), "This") is None
    assert is_installed("numpy")
    assert not is_installed("no_such_package")


def test_a_public_name_without_its_package_names_the_extra() -> None:
    code = f"import sys; sys.argv = ['', 'torch', 'models', 'ease']\n{START}\nimport recfusion as rf\nrf.diffusion"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=300)
    assert "InputError: recfusion.diffusion needs the package torch" in done.stderr
    assert "pip install 'recfusion[nets]'" in done.stderr


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_loading_is_counted_on_a_terminal_after_half_a_second_and_then_erased(monkeypatch: pytest.MonkeyPatch) -> None:
    screen, quick, file = Terminal(), Terminal(), io.StringIO()
    monkeypatch.setattr("sys.stderr", quick)
    with loading("the model"):
        pass
    assert "Loading" not in quick.getvalue()
    monkeypatch.setattr("recfusion.cli.loading._SECONDS", 0.0)
    monkeypatch.setattr("sys.stderr", screen)
    with loading("the model"):
        until = time.monotonic() + 60
        while "Loading the model ... 1 s" not in screen.getvalue():
            assert time.monotonic() < until
    assert screen.getvalue().endswith("\r\x1b[K")
    monkeypatch.setattr("sys.stderr", file)
    with loading("the model"):
        pass
    assert file.getvalue() == ""


def test_a_command_is_imported_without_garbage_collection() -> None:
    def stopped() -> None:
        with without_collection():
            assert not gc.isenabled()
            raise InputError("stopped")

    with pytest.raises(InputError):
        stopped()
    assert gc.isenabled()
    frozen = gc.get_freeze_count()
    assert frozen > 0
    with without_collection():
        later: list[list[int]] = [[] for _ in range(10_000)]
    assert gc.get_freeze_count() < frozen + len(later)  # only the first command of a process is left out
    gc.unfreeze()
