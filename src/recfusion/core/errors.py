"""The one error that a user can put right."""

_LONGEST = 2000  # signs of a message: more is the input itself


class InputError(ValueError):
    """Something given from outside is wrong.

    Its message is one whole sentence or two: what was expected, what came, and what to do. The command line prints
    it as it stands and ends with exit code 2; anything else that escapes is a bug of ours. What it quotes cannot
    break the line or control a terminal, and a quotation without end is cut in the middle.
    """

    def __init__(self, message: str) -> None:
        text = "".join(sign if sign.isprintable() else ascii(sign)[1:-1] for sign in str(message))
        if len(text) > _LONGEST:
            text = f"{text[: _LONGEST // 2]} ... {text[-_LONGEST // 2 :]}"
        super().__init__(text)


class WriteError(InputError):
    """A file or folder cannot be written."""


def choices(what: str, got: object, allowed: object) -> InputError:
    """Return the error for a value outside a closed set of choices."""
    names = ", ".join(str(name) for name in allowed)  # type: ignore[attr-defined]
    return InputError(f"Unknown {what} '{got}': choose one of {names}.")
