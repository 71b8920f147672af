"""Files with one id per line, as people and spreadsheets write them."""

from pathlib import Path

import pytest

from recfusion.core.errors import InputError
from recfusion.data.reading.id_lines import read_id_lines


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252"])
def test_ids_are_read_in_every_encoding_of_exports(tmp_path: Path, encoding: str) -> None:
    text = 'müller@example.org\r\n\r\n "max@example.org" \r\n318.0\r\nmüller@example.org\r\n'
    (tmp_path / "ids.txt").write_bytes(text.encode(encoding))
    assert read_id_lines(tmp_path / "ids.txt", "forget") == ["müller@example.org", "max@example.org", "318"]


def test_an_empty_file_names_nobody(tmp_path: Path) -> None:
    (tmp_path / "ids.txt").touch()
    assert read_id_lines(tmp_path / "ids.txt", "forget") == []


def test_no_file_or_a_folder_is_refused_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="got nothing: create it, empty if it names nobody"):
        read_id_lines(tmp_path / "ids.txt", "forget")
    with pytest.raises(InputError, match=r"\(forget\), got a folder"):
        read_id_lines(tmp_path, "forget")
    (tmp_path / "ids.txt").write_bytes(b"\x00\x01\x02\x03")
    with pytest.raises(InputError, match="binary data"):
        read_id_lines(tmp_path / "ids.txt", "forget")
