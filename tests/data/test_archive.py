"""The view of folders and zip archives, and the walk through tar archives."""

import gzip
import io
import tarfile
import zipfile
from pathlib import Path

import pytest

from recfusion.core.errors import InputError
from recfusion.data.published.archive import Archive, md5_of, open_bytes, reading, tar_files

UNSAFE = [
    "/etc/passwd",
    "../up.txt",
    "a/../../up.txt",
    "..\\up.txt",
    "a\\..\\up.txt",
    "C:\\x.txt",
    "C:x.txt",
    "\\\\host\\x",
]


def make_zip(path: Path, files: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


def make_tar(members: list[tarfile.TarInfo | tuple[str, bytes]]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for member in members:
            if isinstance(member, tarfile.TarInfo):
                archive.addfile(member)
            else:
                info = tarfile.TarInfo(member[0])
                info.size = len(member[1])
                archive.addfile(info, io.BytesIO(member[1]))
    return buffer.getvalue()


def test_a_zip_and_its_unpacked_folder_look_the_same(tmp_path: Path) -> None:
    files = {"set/b.txt": b"b", "a.txt": b"a", "set/in/c.txt": b"c"}
    zipped = Archive(make_zip(tmp_path / "x.zip", files))
    for name, content in files.items():
        (tmp_path / "x" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "x" / name).write_bytes(content)
    folder = Archive(tmp_path / "x")
    assert zipped.names() == folder.names() == ["a.txt", "set/b.txt", "set/in/c.txt"]
    assert zipped.read("c.txt") == folder.read("c.txt") == b"c"
    assert zipped.open("set/b.txt") == b"b"
    assert folder.open("b.txt") == tmp_path / "x" / "set" / "b.txt"


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    archive = Archive(make_zip(tmp_path / "x.zip", {"xratings.dat": b""}))
    with pytest.raises(InputError, match=r"Expected a file 'ratings\.dat' in .*x\.zip"):
        archive.read("ratings.dat")


def test_a_missing_archive_is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="Cannot read"):
        Archive(tmp_path / "none.zip").names()


@pytest.mark.parametrize("name", UNSAFE)
def test_a_zip_with_an_unsafe_name_is_refused(tmp_path: Path, name: str) -> None:
    path = make_zip(tmp_path / "x.zip", {"fine.txt": b"", name: b""})
    with pytest.raises(InputError, match="unsafe name"):
        Archive(path).read("fine.txt")


@pytest.mark.parametrize("name", UNSAFE)
def test_a_tar_with_an_unsafe_name_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match="unsafe name"):
        list(tar_files(io.BytesIO(make_tar([(name, b"")])), tmp_path))


def test_a_name_with_dots_inside_is_no_danger(tmp_path: Path) -> None:
    assert Archive(make_zip(tmp_path / "x.zip", {"a..b/..c": b"1"})).read("..c") == b"1"


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE])
def test_a_tar_with_a_link_or_device_is_refused(tmp_path: Path, kind: bytes) -> None:
    link = tarfile.TarInfo("link")
    link.type, link.linkname = kind, "fine.txt"
    with pytest.raises(InputError, match="link or device 'link'"):
        list(tar_files(io.BytesIO(make_tar([("fine.txt", b""), link])), tmp_path))


def test_a_zip_with_a_link_is_refused(tmp_path: Path) -> None:
    info = zipfile.ZipInfo("link")
    info.external_attr = 0o120777 << 16
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        archive.writestr(info, "/etc/passwd")
    with pytest.raises(InputError, match="holds the link 'link'"):
        Archive(tmp_path / "x.zip").names()


def test_a_zip_with_an_empty_name_is_refused(tmp_path: Path) -> None:
    path = make_zip(tmp_path / "x.zip", {"a": b"", "fine.txt": b""})
    content = path.read_bytes()
    place = content.index(b"PK\x01\x02")  # the name has a length of 0, and the comment one of 1
    path.write_bytes(content[: place + 28] + bytes(4) + b"\x01\x00" + content[place + 34 :])
    with pytest.raises(InputError, match="unsafe name ''"):
        Archive(path).names()


@pytest.mark.parametrize("content", [b"", b"<html>not a zip</html>", b"PK\x03\x04 cut"])
def test_something_else_than_a_zip_is_called_damaged(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.zip").write_bytes(content)
    with pytest.raises(InputError, match="damaged or incomplete"):
        Archive(tmp_path / "x.zip").names()


def test_a_flipped_byte_in_a_zip_is_called_damaged(tmp_path: Path) -> None:
    path = tmp_path / "x.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("a.txt", b"hello world")
    path.write_bytes(path.read_bytes().replace(b"hello", b"jello", 1))
    with pytest.raises(InputError, match="damaged or incomplete"):
        Archive(path).read("a.txt")


def test_an_encrypted_zip_is_refused(tmp_path: Path) -> None:
    path = make_zip(tmp_path / "x.zip", {"a.txt": b"hello"})
    content = bytearray(path.read_bytes())
    content[content.index(b"PK\x01\x02") + 8] |= 1
    path.write_bytes(content)
    with pytest.raises(InputError, match="is encrypted"):
        Archive(path).read("a.txt")


def test_a_truncated_gzip_is_called_damaged(tmp_path: Path) -> None:
    path = tmp_path / "x.tar.gz"
    path.write_bytes(gzip.compress(make_tar([("a.txt", bytes(range(256)) * 100)]))[:60])
    with pytest.raises(InputError, match="damaged or incomplete"), open_bytes(path) as stream:
        list(tar_files(stream, path))


def test_other_errors_pass_through(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), reading(tmp_path):
        raise ZeroDivisionError


def test_the_checksum_is_the_md5(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"abc")
    assert md5_of(tmp_path / "x") == "900150983cd24fb0d6963f7d28e17f72"
