"""Under a limit of the address space a command works or ends soon with one sentence; it never hangs."""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from patience import ends_within

resource = pytest.importorskip("resource")
RUN = (
    "import resource, sys; resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv[1]),) * 2);"
    "sys.argv[:2] = ['recfusion']; from recfusion.cli.main import main; main()"
)


def limited(megabytes: int, folder: Path, *words: str) -> tuple[int, str]:
    """Return the exit code and the messages of a command under a limit, which must end within 30 seconds."""
    command = [sys.executable, "-c", RUN, str(megabytes * 1_000_000), *words]
    with (folder / "messages").open("w+") as told:
        done = subprocess.Popen(command, cwd=folder, stdout=told, stderr=told, text=True, start_new_session=True)
        try:
            assert ends_within(done)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(done.pid, signal.SIGKILL)
            done.wait()
        told.seek(0)
        return done.returncode, told.read()


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    pairs = [(user, item) for user in range(60) for item in range(user % 4, 20, 3)]
    (tmp_path / "rows.csv").write_text("user,item\n" + "".join(f"{user},{item}\n" for user, item in pairs))
    return tmp_path


@pytest.mark.parametrize("megabytes", [250, 500, 700, 800, 1100, 1200])
def test_a_limit_below_what_the_libraries_need_is_refused_at_once(rows: Path, megabytes: int) -> None:
    code, told = limited(megabytes, rows, "train", "ease", "--data", "rows.csv", "--out", "model")
    assert code == 2
    assert told.count("\n") == 1
    assert told.startswith("Error: Expected an address space of at least ")
    assert not (rows / "model").exists()


@pytest.mark.parametrize("megabytes", [1750, 1850, 2000, 2200])
def test_memory_that_runs_out_later_ends_in_a_sentence(rows: Path, megabytes: int) -> None:
    code, told = limited(megabytes, rows, "train", "ease", "--data", "rows.csv", "--out", "model")
    assert code in (0, 2)
    assert "Traceback" not in told
    assert (rows / "model").exists() == (code == 0)
    if code == 2:
        assert told.splitlines()[-1].startswith("Error: ")


def test_a_limited_command_keeps_its_exit_code_and_output(rows: Path) -> None:
    assert limited(8000, rows, "train", "ease", "--data", "absent.csv", "--out", "model")[0] == 2
    assert limited(8000, rows, "data", "describe", "rows.csv")[0] == 0


def test_the_death_of_a_limited_command_is_reported() -> None:
    crash = RUN.partition("sys.argv[:2]")[0] + (
        "from recfusion.cli.low_memory import guard_low_memory; guard_low_memory(2); import os; os.abort()"
    )
    done = subprocess.run(
        [sys.executable, "-c", crash, "8000000000"], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr.splitlines()[-1][:41]) == (2, "Error: There is not enough memory for thi")
