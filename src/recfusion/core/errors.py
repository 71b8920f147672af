"""The one error that a user can fix, and the one conversion of pydantic errors into it."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_LONGEST = 2000  # characters of a message: more is the input itself


class InputError(ValueError):
    """Something given from outside is wrong.

    The message is one or two sentences: what was expected, what came, and what to do. `field` names the field, option
    or column that it is about, with dots between levels ("reranking.popularity"); None if it is about none of them.
    The command line prints the message and ends with exit code 2; the service answers with message and field. Any
    other exception that escapes is a bug. Quoted input cannot break the line or control a terminal, and long input is
    cut in the middle.
    """

    def __init__(self, message: str, field: str | None = None) -> None:
        text = "".join(sign if sign.isprintable() else ascii(sign)[1:-1] for sign in str(message))
        if len(text) > _LONGEST:
            text = f"{text[: _LONGEST // 2]} ... {text[-_LONGEST // 2 :]}"
        super().__init__(text)
        self.field = field


class WriteError(InputError):
    """A file or folder cannot be written."""


class TaskError(InputError):
    """A task died with its process, not because of its input."""


def choices(what: str, got: object, allowed: object, field: str | None = None) -> InputError:
    """Return the error for a value outside a closed set of choices."""
    names = ", ".join(str(name) for name in allowed)  # type: ignore[attr-defined]
    return InputError(f"Unknown {what} '{got}': choose one of {names}.", field)


@contextmanager
def validating(expected: str, remedy: str = "", *, show: bool = False) -> Iterator[None]:
    """Convert a pydantic error in the block into an InputError about the first field that is wrong.

    The message reads "Expected {expected}: {field}: {problem}; {remedy}.", with the value that came if `show`.
    """
    from pydantic import ValidationError

    try:
        yield
    except ValidationError as error:
        field, problem = first_problem(error.errors()[0], show=show)
        where = f"{field}: " if field else ""
        then = f"; {remedy}" if remedy else ""
        raise InputError(f"Expected {expected}: {where}{problem}{then}.", field or None) from None


def first_problem(wrong: Any, *, show: bool = False) -> tuple[str, str]:
    """Return the field, with dots between its levels, and the problem of one entry of a pydantic error."""
    field = ".".join(str(part) for part in wrong["loc"])
    told = str(wrong["msg"]).removeprefix("Value error, ").replace("a valid tuple", "a list").rstrip(".")
    problem = f"{told[:1].lower()}{told[1:]}"
    return field, f"{problem}, got {str(wrong['input'])[:200]!r}" if show else problem
