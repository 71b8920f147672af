"""Atomic files and folders."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from recfusion.core.errors import InputError
from recfusion.core.files import check_writable, read_json, replacing, replacing_folder, write_json


def test_a_file_appears_only_when_the_block_ends_well(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "file.txt"
    with replacing(target) as beside:
        beside.write_text("new")
        assert not target.exists()
    assert target.read_text() == "new"
    assert list(target.parent.iterdir()) == [target]


def test_a_failed_block_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    target = tmp_path / "file.txt"
    target.write_text("old")

    def fail() -> None:
        with replacing(target) as beside:
            beside.write_text("half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


@pytest.mark.parametrize(
    "error",
    [OSError(28, "No space left on device"), RuntimeError("I/O error: No space left on device (os error 28)")],
)
@pytest.mark.parametrize("writing", [replacing, lambda path: replacing_folder(path, "mark")])
def test_a_full_disk_is_one_sentence_and_leaves_nothing(
    tmp_path: Path, error: Exception, writing: Callable[[Path], AbstractContextManager[Path]]
) -> None:
    with pytest.raises(InputError, match="No space left on device; make room"), writing(tmp_path / "new"):
        raise error
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (
            RuntimeError('I/O error: Input/output error (os error 5) at path "/x"'),
            "Cannot write .*: Input/output error; ",
        ),
        (InputError("Cannot read 'users.csv': Input/output error (os error 5)."), "^Cannot read 'users.csv'"),
    ],
)
def test_a_broken_disk_is_one_sentence_of_whatever_library(tmp_path: Path, error: Exception, words: str) -> None:
    with pytest.raises(InputError, match=words), replacing(tmp_path / "new"):
        raise error


def test_a_folder_is_replaced_whole(tmp_path: Path) -> None:
    target = tmp_path / "model"
    for text in ("first", "second"):
        with replacing_folder(target, "mark") as fresh:
            (fresh / "mark").write_text(text)
            (fresh / f"only {text}").touch()
    assert sorted(path.name for path in target.iterdir()) == ["mark", "only second"]
    assert list(tmp_path.iterdir()) == [target]


def test_a_folder_of_other_files_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(InputError, match="holds other files"), replacing_folder(tmp_path, "mark"):
        pass
    assert (tmp_path / "thesis.txt").read_text() == "years of work"


def test_a_path_below_a_file_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="Cannot write"):
        check_writable(tmp_path / "file" / "below")


def test_json_comes_back_as_it_was_written(tmp_path: Path) -> None:
    document = {"ü": [1, 2.5, None]}
    write_json(tmp_path / "x.json", document)
    assert read_json(tmp_path / "x.json") == document


def test_json_is_not_written_in_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_json(tmp_path / "x.json", {"old": 1})

    def half(self: Path, text: str, encoding: str) -> int:
        self.write_bytes(text.encode(encoding)[:4])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", half)
    with pytest.raises(InputError, match="The old content is unchanged"):
        write_json(tmp_path / "x.json", {"new": 2})
    assert read_json(tmp_path / "x.json") == {"old": 1}


def test_broken_json_is_named(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("{")
    with pytest.raises(InputError, match=r"Expected JSON in .*x\.json"):
        read_json(tmp_path / "x.json")


def test_an_error_is_one_line_that_controls_no_terminal() -> None:
    assert str(InputError("Unknown 'a\nb\x1b[31m'.")) == "Unknown 'a\\nb\\x1b[31m'."
    assert len(str(InputError("x" * 10_000 + "."))) < 2100
