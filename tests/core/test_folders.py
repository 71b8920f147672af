"""Folders that are replaced whole: by one exchange, after a kill, and when one stands in them."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from recfusion.core import files
from recfusion.core.errors import InputError
from recfusion.core.files import check_replaceable, check_writable_file, replacing, replacing_folder

MARKER = "config.json"


def write(path: Path, text: str) -> None:
    with replacing_folder(path, MARKER) as folder:
        (folder / "weights").write_text(text)
        (folder / MARKER).write_text(text)


@pytest.mark.parametrize("exchanges", [True, False])
def test_a_folder_is_replaced_with_or_without_the_system_s_exchange(
    exchanges: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not exchanges:
        monkeypatch.setattr(files, "_exchanged", lambda one, other: False)
    for text in ("one", "two"):
        write(tmp_path / "model", text)
        assert (tmp_path / "model" / "weights").read_text() == text
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_a_folder_that_cannot_be_put_in_place_brings_the_old_one_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "model", "one")
    rename = Path.replace

    def fail(self: Path, target: Path) -> Path:
        if self.name == "new":
            raise OSError(5, "Input/output error")
        return rename(self, target)

    monkeypatch.setattr(files, "_exchanged", lambda one, other: False)
    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(InputError, match=r"Input/output error; make room .* The old content is unchanged"):
        write(tmp_path / "model", "two")
    assert (tmp_path / "model" / "weights").read_text() == "one"
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_a_working_folder_that_cannot_be_locked_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make = tempfile.mkdtemp

    def spoiled(prefix: str, dir: Path) -> str:
        folder = make(prefix=prefix, dir=dir)
        (Path(folder) / "lock").mkdir()  # cannot be opened as a file
        return folder

    monkeypatch.setattr(tempfile, "mkdtemp", spoiled)
    with pytest.raises(InputError, match="Cannot write to"), replacing(tmp_path / "page.html"):
        pass
    assert list(tmp_path.iterdir()) == []


KILLED = """
import os, signal, sys
from pathlib import Path
from recfusion.core import files
files._exchanged = lambda one, other: False
def kill(self, target):
    if target.name == "model":
        os.kill(os.getpid(), signal.SIGKILL)
    return os.rename(self, target)
with files.replacing_folder(Path("model"), "config.json") as folder:
    (folder / "config.json").write_text("two")
    Path.replace = kill
"""


@pytest.mark.skipif(os.name == "nt", reason="kills by a POSIX signal")
def test_a_run_that_is_killed_between_two_renames_loses_nothing(tmp_path: Path) -> None:
    write(tmp_path / "model", "one")
    code = subprocess.run([sys.executable, "-c", KILLED], cwd=tmp_path, check=False).returncode
    assert code == -9
    assert not (tmp_path / "model").exists()  # the moment that no system without an exchange can avoid
    with pytest.raises(ZeroDivisionError), replacing_folder(tmp_path / "model", MARKER):
        raise ZeroDivisionError  # the next run puts it back even though it comes to nothing itself
    assert (tmp_path / "model" / MARKER).read_text() == "one"
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


FAILS = """
import errno, os, signal, sys
from pathlib import Path
from recfusion.core import files
exchanges, at, fault = sys.argv[1] == "True", int(sys.argv[2]), sys.argv[3]
done, exchange = 0, files._exchanged
def step(act):
    global done
    done += 1
    if done - 1 == at and fault == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if done - 1 == at:
        raise OSError(errno.EIO, "Input/output error")
    return act()
files._exchanged = lambda one, other: step(lambda: exchange(one, other)) if exchanges else False
Path.replace = lambda self, target: step(lambda: os.rename(self, target))
try:
    with files.replacing_folder(Path("model"), "config.json", "model.previous") as folder:
        (folder / "config.json").write_text("two")
except files.WriteError:
    print("refused")
print(done > at)
"""


@pytest.mark.skipif(os.name == "nt", reason="kills by a POSIX signal")
@pytest.mark.parametrize("exchanges", [True, False])
@pytest.mark.parametrize("fault", ["error", "kill"])
def test_a_folder_and_the_one_that_is_kept_change_together_or_not_at_all(
    tmp_path: Path, exchanges: bool, fault: str
) -> None:
    """A model and the one before it: with one fault at each step in turn, no model that should be there is lost."""
    states = set()
    for at in range(9):
        box = tmp_path / str(at)
        write(box / "model.previous", "zero")
        write(box / "model", "one")
        command = [sys.executable, "-c", FAILS, str(exchanges), str(at), fault]
        run = subprocess.run(command, cwd=box, capture_output=True, text=True, check=False)
        assert run.returncode in (0, -9), run.stderr
        if fault == "kill":
            check_replaceable(box / "model", MARKER)  # as the next run does first
        found = tuple((box / name / MARKER).read_text() for name in ("model", "model.previous"))
        assert found == (("one", "zero") if "refused" in run.stdout else found if fault == "kill" else ("two", "one"))
        assert sorted(path.name for path in box.iterdir()) == ["model", "model.previous"]
        states.add(found)
        if run.stdout.endswith("False\n"):  # there is no such step any more
            assert found == ("two", "one")
            break
    else:
        pytest.fail("never ended without a fault")
    assert states == {("one", "zero"), ("two", "one")}


def test_a_kill_while_it_is_written_which_folder_is_kept_leaves_both(tmp_path: Path) -> None:
    write(tmp_path / "model.previous", "zero")
    write(tmp_path / "model", "one")
    killed = """
import os, signal
from pathlib import Path
from recfusion.core import files
def half(path, text, encoding):
    path.touch()
    os.kill(os.getpid(), signal.SIGKILL)
with files.replacing_folder(Path("model"), "config.json", kept="model.previous") as folder:
    (folder / "config.json").write_text("two")
    Path.write_text = half
"""
    assert subprocess.run([sys.executable, "-c", killed], cwd=tmp_path, check=False).returncode == -9
    assert len(list(tmp_path.iterdir())) == 3
    check_replaceable(tmp_path / "model", MARKER)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "model.previous"]
    assert [(tmp_path / name / MARKER).read_text() for name in ("model", "model.previous")] == ["one", "zero"]


def test_an_empty_folder_takes_no_place_of_a_model_that_is_kept(tmp_path: Path) -> None:
    write(tmp_path / "model.previous", "zero")
    (tmp_path / "model").mkdir()
    with replacing_folder(tmp_path / "model", MARKER, "model.previous") as folder:
        (folder / MARKER).write_text("one")
    assert (tmp_path / "model.previous" / MARKER).read_text() == "zero"
    assert (tmp_path / "model" / MARKER).read_text() == "one"


@pytest.mark.skipif(os.name == "nt", reason="needs locks")
def test_what_a_killed_run_left_is_removed_and_what_a_living_one_has_is_not(tmp_path: Path) -> None:
    killed = tmp_path / ".page.html.tmp-dead"
    killed.mkdir()
    (killed / "lock").touch()
    with replacing(tmp_path / "page.html") as first:
        with replacing(tmp_path / "page.html") as second:
            assert not killed.exists()
            assert first.parent.exists()
            second.write_text("second")
        first.write_text("first")
    assert (tmp_path / "page.html").read_text() == "first"
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]


@pytest.mark.skipif(os.name == "nt", reason="needs locks")
def test_what_a_killed_run_left_is_removed_by_one_that_has_nothing_to_write(tmp_path: Path) -> None:
    write(tmp_path / "model", "one")
    (tmp_path / ".model.tmp-dead").mkdir()
    (tmp_path / ".best.json.tmp-dead").mkdir()
    check_replaceable(tmp_path / "model", MARKER)
    check_writable_file(tmp_path / "best.json")
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_the_empty_working_folder_is_filled_and_a_full_one_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    write(Path(), "one")
    assert Path("weights").read_text() == "one"  # by the relative name: it is the same folder
    with pytest.raises(InputError, match=r"holds other files \(it is the current folder\) and is not replaced"):
        write(Path(), "two")
    assert Path("weights").read_text() == "one"
