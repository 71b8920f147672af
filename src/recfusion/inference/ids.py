"""Item ids as texts: from texts, numbers, or whole floats, which pandas makes of columns with gaps."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from recfusion.core.errors import InputError


def id_texts(given: Any) -> list[str | None]:
    """Return ids as texts, whole floats as whole numbers and missing ids as None; a single text is no list of ids."""
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise InputError(f"Expected ids as a list, tuple, array or series, got {given!r}: write [...].")
    values = given.tolist() if isinstance(given, np.ndarray) else list(given)
    return [_text(value.item() if isinstance(value, np.generic) else value) for value in values]


def _text(value: object) -> str | None:
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() else None if np.isnan(value) else str(value)
    if value is None or (isinstance(value, int | str) and not isinstance(value, bool)):
        return None if value is None else _unicode(str(value))
    raise InputError(f"Expected ids that are numbers or texts, got {value!r} ({type(value).__name__}).")


def _unicode(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:  # bytes of another encoding on a command line, or half a character
        raise InputError(f"Expected ids in Unicode, got {text!r}.") from None
    return text
