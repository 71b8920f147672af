"""The results store: an append-only file of results, one complete line of JSON for each finished fit."""

import logging
from pathlib import Path

from pydantic import ValidationError

from recfusion.core.errors import InputError
from recfusion.core.jsonl import Lines, json_line
from recfusion.data.protocol import Protocol
from recfusion.experiments.result import Result, ResultKey, upgraded

log = logging.getLogger(__name__)

_LINES = Lines(b'{"recfusion_result":', "result", "its fit counts as not run")


def is_store(path: str | Path) -> bool:
    """Return whether a file begins as a store does; an empty one may become one."""
    return _LINES.begins(path)


def read_results(path: str | Path) -> list[Result]:
    """Return the results of a store in their order; a file that is not there is a store without any.

    A torn last line is left out and reported, and so are all but the first of several results with one key.
    """
    results: dict[ResultKey, Result] = {}
    for number, line in enumerate(_LINES.read(Path(path)), start=1):
        found = _parse(line, f"{path}, line {number}")
        if results.setdefault(found.key, found) is not found:
            log.warning(
                "Line %d of '%s' repeats %s, split %d: the first counts.", number, path, found.label, found.seed
            )
    return list(results.values())


def append_result(path: str | Path, result: Result) -> None:
    """Add a result to the store and return when it is on the disk; a torn last line is removed before."""
    _LINES.append(Path(path), json_line(result.model_dump(mode="json")), _parse)


def _parse(line: bytes, where: str) -> Result:
    document = _LINES.parse(line, where)
    if document.get("recfusion_result") == 1:
        document = upgraded(document)
    card = Protocol.parse(document.get("protocol"), where)
    try:
        return Result.model_validate({**document, "protocol": card})
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise InputError(
            f"Expected a result of format 2 in '{where}': {place or 'line'}: {first['msg']}; "
            "remove the line, or name another file."
        ) from None
