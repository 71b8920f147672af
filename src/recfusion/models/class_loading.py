"""Import model classes by place, "package.module:Class" or "file.py:Class", if a user or an installed package asks."""

import hashlib
import importlib
import importlib.util
import inspect
import sys
from functools import cache
from pathlib import Path
from types import ModuleType

from recfusion.core.errors import InputError
from recfusion.core.extras import missing_package
from recfusion.models.base import Recommender

_OF_FILE = "recfusion_file_"  # prefix of the modules that are loaded from files


@cache
def load_class(place: str) -> type[Recommender]:
    """Return the class at "package.module:Class" or "file.py:Class"."""
    where, _, name = place.rpartition(":")
    module = load_file(Path(where).absolute()) if where.endswith(".py") else _import(where)
    kind = getattr(module, name, None)
    if kind is None:
        known = ", ".join(sorted(n for n, found in vars(module).items() if _is_recommender(found))) or "none"
        raise InputError(f"Expected a class '{name}' in '{Path(where).name}', got none; models there: {known}.")
    require_recommender(kind, place)
    return kind


@cache
def load_file(path: Path) -> ModuleType:
    """Load a Python file as a module, with a name that worker processes give it too."""
    if not path.is_file():
        raise InputError(f"Expected a Python file at '{path}', got nothing: check the path.")
    name = f"{_OF_FILE}{path.stem}_{hashlib.blake2b(str(path).encode(), digest_size=4).hexdigest()}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # another person's file may raise anything
        del sys.modules[name]
        raise _cannot_import(path.name, error) from None
    return module


def home_file(kind: type) -> Path | None:
    """Return the file that `load_file` loaded a class from."""
    module = sys.modules.get(kind.__module__)
    known = kind.__module__.startswith(_OF_FILE) and module is not None and module.__file__
    return Path(known) if known else None


def is_importable(kind: type) -> bool:
    """Return whether a worker process can import a class; it cannot if a notebook or function defines it."""
    if kind.__module__ == "__main__" or "<locals>" in kind.__qualname__:
        return False
    try:
        return home_file(kind) is not None or importlib.util.find_spec(kind.__module__) is not None
    except (ImportError, ValueError):
        return False


def require_recommender(found: object, place: str) -> None:
    """Raise unless a class inherits from Recommender, is a dataclass, and has fit and score."""
    if not isinstance(found, type) or not _is_recommender(found):
        raise InputError(f"Expected a class that inherits from recfusion.Recommender at '{place}', got {found!r}.")
    if "__dataclass_fields__" not in vars(found):
        raise InputError(f"Expected the model {found.__name__} to be a dataclass: write @dataclass above it.")
    if inspect.isabstract(found):
        missing = ", ".join(sorted(getattr(found, "__abstractmethods__", ())))
        raise InputError(f"The model {found.__name__} lacks what every model has: {missing}.")


@cache
def source_digest(kind: type[Recommender]) -> str:
    """Return a digest of the file of a class, or of its source or bytecode if there is no file."""
    try:
        text = Path(inspect.getfile(kind)).read_bytes()
    except (OSError, TypeError):  # defined in a notebook or a shell
        try:
            text = inspect.getsource(kind).encode()
        except (OSError, TypeError):
            codes = [getattr(member, "__code__", None) for _, member in sorted(vars(kind).items())]
            text = repr([(c.co_code, c.co_consts, c.co_names) for c in codes if c is not None]).encode()
    return hashlib.blake2b(text, digest_size=8).hexdigest()


def _import(where: str) -> ModuleType:
    try:
        return importlib.import_module(where)
    except (Exception, SystemExit) as error:  # another person's module may raise anything
        raise _cannot_import(where, error) from None


def _is_recommender(found: object) -> bool:
    return isinstance(found, type) and issubclass(found, Recommender)


def _cannot_import(what: str, error: BaseException) -> InputError:
    if missing := missing_package(error, f"The model code in '{what}'"):
        return missing
    message = " ".join(str(error).split())
    return InputError(f"Cannot import '{what}' ({type(error).__name__}: {message}): check that Python can run it.")
