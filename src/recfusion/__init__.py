"""Diffusion recommenders for binary feedback, with their baselines, under one explicit protocol.

    import recfusion as rf

    data = rf.load("ml-latest-small")                                  # or a file, or a frame of any library
    rf.compare(data, {"mine": MyModel(), "ease": rf.EASE()}, splits=3)  # intervals, paired tests
    bundle = rf.train("thinning-linear", data)                         # a model with its items' names, for use
    rf.recommend(bundle, {"somebody new": [318, 356, 296]})

The names in __init__.pyi are loaded when they are first used, so that `import recfusion` costs nothing.
"""

from importlib import import_module
from pathlib import Path
from typing import Any

_DECLARED = Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8").splitlines()
# Each line reads "from MODULE import NAME as NAME".
_HOMES = {line.split()[3]: line.split()[1] for line in _DECLARED if line.startswith("from ")}
__all__ = [*sorted(_HOMES), "__version__"]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("recfusion")
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'recfusion' has no attribute '{name}'")
    try:
        return import_module(f"{home}.{name}") if home == __name__ else getattr(import_module(home), name)
    except ModuleNotFoundError as error:
        from recfusion.core.extras import missing_package

        raise missing_package(error, f"recfusion.{name}") or error from None


def __dir__() -> list[str]:
    return __all__
