"""Tests that a list or a document names as path::name: whether they are there."""

import ast
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[1]


def missing(names: Iterable[str]) -> list[str]:
    """Return those of path or path::name of which there is no such file, or no such test in it."""
    return [name for name in names if not _exists(*name.partition("::")[::2])]


def _exists(path: str, test: str) -> bool:
    file = ROOT / path
    if not path.startswith("tests/") or not file.is_file():
        return False
    tree = ast.parse(file.read_text(encoding="utf-8"))
    return not test or test in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
