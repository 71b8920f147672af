"""Reads files with one id per line, such as lists of users to forget."""

from pathlib import Path

from recfusion.core.errors import InputError
from recfusion.data.reading.encodings import find_encoding
from recfusion.data.reading.ids import id_text


def read_id_lines(path: Path, field: str) -> list[str]:
    """Return the distinct ids of a file with one per line; `field` names the option or key of the file.

    UTF-8, UTF-16 and Windows-1252 are recognised, empty lines are skipped, and an id may be in double quotes.
    """
    if not path.exists():
        raise InputError(
            f"Expected a file with one id per line at '{path}' ({field}), got nothing: create it, empty if it names "
            "nobody.",
            field,
        )
    try:
        content = path.read_bytes()
    except OSError as error:
        found = "a folder" if path.is_dir() else error.strerror
        raise InputError(f"Expected a file with one id per line at '{path}' ({field}), got {found}.", field) from None
    encoding = find_encoding(content, path, whole=True)
    lines = content.decode(encoding, errors="replace").removeprefix("\ufeff").splitlines()
    ids = (id_text(_unquoted(line.strip())) for line in lines)
    return list(dict.fromkeys(text for text in ids if text))


def _unquoted(text: str) -> str:
    quoted = len(text) > 1 and text[0] == text[-1] == '"'
    return text[1:-1].replace('""', '"') if quoted else text
