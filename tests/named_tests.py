"""Check that tests which a list or a document names as path::name exist."""

import ast
from collections.abc import Iterable
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]


def missing(names: Iterable[str]) -> list[str]:
    """Return the names (path or path::name) without such a file, or without such a test in it."""
    return [name for name in names if not _exists(*name.partition("::")[::2])]


def _exists(path: str, test: str) -> bool:
    file = ROOT / path
    if not path.startswith(("tests/", "studies/tests/")) or not file.is_file():
        return False
    return not test or test in _functions(file)


@cache
def _functions(file: Path) -> set[str]:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
