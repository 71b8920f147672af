"""The one error that a user can put right."""


class InputError(ValueError):
    """Something given from outside is wrong.

    Its message is one whole sentence or two: what was expected, what came, and what to do. The command line prints
    it as it stands and ends with exit code 2; anything else that escapes is a bug of ours.
    """


class WriteError(InputError):
    """A file or folder cannot be written."""


def choices(what: str, got: object, allowed: object) -> InputError:
    """Return the error for a value outside a closed set of choices."""
    names = ", ".join(str(name) for name in allowed)  # type: ignore[attr-defined]
    return InputError(f"Unknown {what} '{got}': choose one of {names}.")
