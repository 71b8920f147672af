"""Files of JSON lines, on systems with and without locks of files."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from recfusion.core.errors import InputError
from recfusion.core.jsonl import JsonLines, json_line

LINES = JsonLines(b'{"note":', "note", "it is lost")

# What Windows lacks is taken away before the module is imported.
_ELSEWHERE = """
import os, sys
from pathlib import Path
sys.modules["fcntl"] = None
for name in ("pread", "O_CLOEXEC"):
    delattr(os, name)
from recfusion.core.jsonl import JsonLines, json_line
lines, path = JsonLines(b'{"note":', "note", "it is lost"), Path(sys.argv[1])
lines.append(path, json_line({"note": 2}), lambda line, where: None)
print([lines.parse(line, "here")["note"] for line in lines.read(path)])
"""


def accept(line: bytes, where: str) -> object:
    return LINES.parse(line, where)


def test_a_system_without_locks_and_positioned_reads_has_the_same_files(tmp_path: Path) -> None:
    path = tmp_path / "notes.jsonl"
    LINES.append(path, json_line({"note": 1}), accept)
    with path.open("ab") as file:
        file.write(b'{"note":')  # torn
    run = subprocess.run([sys.executable, "-c", _ELSEWHERE, str(path)], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout) == (0, "[1, 2]\n"), run.stderr
    assert path.read_bytes() == b'{"note":1}\n{"note":2}\n'


def test_a_last_line_longer_than_one_read_is_found_whole(tmp_path: Path) -> None:
    path = tmp_path / "notes.jsonl"
    long = json_line({"note": "x" * 200_000})
    for line in (json_line({"note": 1}), long, long):
        LINES.append(path, line, accept)
    path.write_bytes(path.read_bytes()[:-1])  # the newline alone is lost: the line is whole
    LINES.append(path, json_line({"note": 3}), accept)
    assert LINES.read(path) == [b'{"note":1}\n', long, long, b'{"note":3}\n']


def test_a_line_that_is_no_json_object_is_refused_with_its_place(tmp_path: Path) -> None:
    for line in (b"[1]", b'{"other":1}', b'{"note":'):
        with pytest.raises(InputError, match="Expected a note as JSON in 'here, line 4'"):
            LINES.parse(line, "here, line 4")


def test_nothing_is_a_number_that_json_does_not_have() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        json_line({"note": float("nan")})


def test_a_line_is_added_under_a_lock_and_is_on_the_disk_before_that_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fcntl = pytest.importorskip("fcntl")
    path, found = tmp_path / "notes.jsonl", list[tuple[bool, bytes]]()

    def is_locked() -> bool:
        with path.open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
            return False

    usual = os.fsync

    def forced(descriptor: int) -> None:
        found.append((is_locked(), path.read_bytes()))
        usual(descriptor)

    monkeypatch.setattr(os, "fsync", forced)
    LINES.append(path, json_line({"note": 1}), accept)
    assert found == [(True, b'{"note":1}\n')]
    assert not is_locked()


_APPEND = """
import sys
from pathlib import Path
from recfusion.core.jsonl import JsonLines, json_line
lines, path, first = JsonLines(b'{"note":', "note", ""), Path(sys.argv[1]), int(sys.argv[2])
print("ready", flush=True)
sys.stdin.readline()
for number in range(first, first + 50):
    lines.append(path, json_line({"note": [number] * 3000}), lines.parse)
"""


def test_lines_of_two_processes_never_interleave(tmp_path: Path) -> None:
    path = tmp_path / "both.jsonl"
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", _APPEND, str(path), str(first)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for first in (100, 200)
    ]
    for writer in writers:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write("go\n")
        writer.stdin.flush()
    for writer in writers:
        writer.communicate()
        assert writer.returncode == 0
    notes = [json.loads(line)["note"] for line in LINES.read(path)]
    assert all(len(set(note)) == 1 and len(note) == 3000 for note in notes)
    numbers = [note[0] for note in notes]
    assert sorted(numbers) == [*range(100, 150), *range(200, 250)]
    assert [number for number in numbers if number < 200] == list(range(100, 150))


def test_packing_keeps_every_line_and_appends_go_beside(tmp_path: Path) -> None:
    path = tmp_path / "notes.jsonl"
    for number in range(3):
        LINES.append(path, json_line({"note": number}), accept)
    with path.open("ab") as file:
        file.write(b'{"note":')  # torn
    assert LINES.pack(path, accept) == tmp_path / "notes.jsonl.xz"
    assert not path.exists()
    LINES.append(tmp_path / "notes.jsonl.xz", json_line({"note": 3}), accept)
    assert path.read_bytes() == json_line({"note": 3})
    assert [LINES.parse(line, "here")["note"] for line in LINES.read(path)] == [0, 1, 2, 3]


def test_lines_that_a_crash_left_in_both_files_are_read_once(tmp_path: Path) -> None:
    path = tmp_path / "notes.jsonl"
    LINES.append(path, json_line({"note": 1}), accept)
    whole = path.read_bytes()
    LINES.pack(path, accept)
    path.write_bytes(whole)
    assert LINES.read(path) == [json_line({"note": 1})]


def test_another_file_is_not_packed(tmp_path: Path) -> None:
    path = tmp_path / "diary.txt"
    path.write_text("dear diary\n")
    with pytest.raises(InputError, match="Expected a note"):
        LINES.pack(path, accept)
    assert [file.name for file in tmp_path.iterdir()] == ["diary.txt"]


_APPEND_MANY = """
import sys
from pathlib import Path
from recfusion.core.jsonl import JsonLines, json_line
lines = JsonLines(b'{"note":', "note", "it is lost")
for number in range(200):
    lines.append(Path(sys.argv[1]), json_line({"note": number}), lambda line, where: None)
"""


def test_lines_that_are_appended_while_others_pack_are_not_lost(tmp_path: Path) -> None:
    path = tmp_path / "notes.jsonl"
    writer = subprocess.Popen([sys.executable, "-c", _APPEND_MANY, str(path)])
    while writer.poll() is None:
        if path.exists():
            LINES.pack(path, accept)
        LINES.read(path)
    assert writer.returncode == 0
    assert [LINES.parse(line, "here")["note"] for line in LINES.read(path)] == list(range(200))
