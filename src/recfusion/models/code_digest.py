"""A digest of the code that a fit depends on, and the git commit of that code. Results record both.

The digest covers the module of the model's class and all modules that it imports, directly or not, from the packages in
PACKAGES, with imports inside functions. It is made from the syntax tree without docstrings, comments and import lines,
so that rewording, formatting or moving a module does not change it. The modules of a mixture's members count too.

Not covered: `core` and `data` (the protocol records the prepared data), and the module of metrics, because adding a
metric must not make all stored results stale.
"""

import ast
import hashlib
import inspect
import json
import os
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeAlias

from recfusion.core.extras import is_installed
from recfusion.evaluation.metrics import MAIN_METRIC
from recfusion.models.base import Recommender
from recfusion.models.class_loading import source_digest
from recfusion.models.registry import OURS, Entry, known_models
from recfusion.models.thinning.plan import NETWORKS, WITHOUT_TORCH

CodeState: TypeAlias = Literal["current", "stale", "unknown"]

PACKAGES = ("models", "nets", "diffusion", "training", "evaluation")
_ROOT = Path(__file__).parents[1]
_PREFIXES = tuple(f"recfusion.{package}" for package in PACKAGES)
_NO_PART_OF_A_FIT = {
    *("recfusion.models.registry", "recfusion.models.class_loading", "recfusion.models.code_digest"),
    "recfusion.evaluation.list_metrics",
    "recfusion.evaluation.metrics",
}
_WITH_DOCSTRING = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
_MEMBER_SETTINGS = ("members", "parts")  # a mixture's settings that name other models
_SECONDS = 10  # after which git is given up


def code_state(recorded: str, today: str) -> CodeState:
    """Return whether a recorded digest is that of today's code; "unknown" if either of them is missing."""
    if not recorded or not today:
        return "unknown"
    return "current" if recorded == today else "stale"


def code_digest(entry: Entry, settings: Mapping[str, Any]) -> str:
    """Return the digest of the code that fits a model with these settings.

    The classes of recfusion are not imported for it. For other people's classes it covers their whole file.
    """
    known = known_models()
    parts = [MAIN_METRIC, _own_digest(entry)]
    members = _member_names(settings)
    if {*members} & {*NETWORKS} and not is_installed("torch"):
        parts.append(WITHOUT_TORCH)
    for name in members:
        if name in known:
            member = known[name]
            parts.append(f"{json.dumps(dict(member.settings), sort_keys=True, default=str)} {_own_digest(member)}")
    return _hash("\n".join(parts))


@cache
def source_commit() -> str:
    """Return the git commit of the source tree, with a + for uncommitted changes; empty if it is not in git."""
    try:
        if not git(_ROOT, "ls-files", "--error-unmatch", "__init__.py"):  # installed inside somebody else's repository
            return ""
        commit = git(_ROOT, "rev-parse", "--short=12", "HEAD")
        return commit + "+" * bool(commit and git(_ROOT, "status", "--porcelain", "--", "."))
    except (OSError, subprocess.SubprocessError):
        return ""


def git(folder: Path, *arguments: str) -> str:
    """Return the output of git in a folder; empty if it fails."""
    # Inside a git hook, variables such as GIT_DIR point to another repository.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    command = ["git", "--no-optional-locks", "-C", str(folder), *arguments]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=_SECONDS, check=False)
    return run.stdout.strip() if run.returncode == 0 else ""


def _member_names(settings: Mapping[str, Any]) -> list[str]:
    """Return the models that a mixture's settings name; "thinning-deep#2" is a second "thinning-deep"."""
    names: list[str] = []
    for setting in _MEMBER_SETTINGS:
        value = settings.get(setting)
        names += value.split(",") if isinstance(value, str) else value if isinstance(value, Mapping) else ()
    return sorted({name.partition("#")[0].strip() for name in names})


def _own_digest(entry: Entry) -> str:
    """Return the digest of a model's code without that of its members."""
    if entry.origin == OURS:
        return _closure_digest(frozenset([entry.place.partition(":")[0]]))
    return _foreign_digest(entry.load())


@cache
def _foreign_digest(kind: type[Recommender]) -> str:
    """Return the digest of somebody else's class: its whole file, and the modules of ours that it builds on."""
    roots = {parent.__module__ for parent in kind.__mro__ if parent.__module__.startswith("recfusion.")}
    with suppress(OSError, TypeError, SyntaxError, ValueError):  # a class of a notebook has no file
        roots |= set(_imported(ast.parse(Path(inspect.getfile(kind)).read_bytes())))
    return _hash(source_digest(kind) + _closure_digest(frozenset(roots)))


@cache
def _closure_digest(roots: frozenset[str]) -> str:
    """Return the digest of some modules and of all that they import.

    Modules count by their content and not by their name, so that a file can be moved.
    """
    waiting, seen, digests = list(roots), set(roots), []
    while waiting:
        digest, imported = _module(waiting.pop())
        digests.append(digest)
        fresh = imported - seen
        seen |= fresh
        waiting += fresh
    return _hash("\n".join(sorted(digests)))


@cache
def _module(name: str) -> tuple[str, frozenset[str]]:
    """Return the digest of one module's code, and the modules that it imports from PACKAGES."""
    path = _file(name)
    if path is None:
        return "", frozenset()
    tree = ast.parse(path.read_bytes())
    _Essence().visit(tree)  # in place
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    return _hash(_dump(tree)), frozenset(_imported(tree, package))


def _file(name: str) -> Path | None:
    stem = _ROOT.joinpath(*name.split(".")[1:])
    return next((path for path in (stem.with_suffix(".py"), stem / "__init__.py") if path.is_file()), None)


def _imported(tree: ast.AST, package: str = "") -> Iterator[str]:
    """Yield the modules of PACKAGES that a syntax tree imports; relative imports begin at `package`."""
    for node in ast.walk(tree):
        names: Iterable[str] = ()
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) + 1 - node.level] if node.level else []
            origin = ".".join([*above, *filter(None, [node.module])])
            inner = [f"{origin}.{alias.name}" for alias in node.names]
            names = [name if _file(name) else origin for name in inner if name.startswith("recfusion.")]
        for name in names:
            if name.startswith(_PREFIXES) and name not in _NO_PART_OF_A_FIT:
                yield name


class _Essence(ast.NodeTransformer):
    """Removes docstrings, and imports that only a type checker makes."""

    def visit(self, node: ast.AST) -> ast.AST | None:
        if isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
            return None
        if isinstance(node, _WITH_DOCSTRING) and ast.get_docstring(node, clean=False) is not None:
            del node.body[0]
        return self.generic_visit(node)


def _dump(node: object) -> str:
    """Return a syntax tree as text; unlike `ast.dump`, the same in all versions of Python."""
    if isinstance(node, ast.AST):
        fields = [
            f"{name}={_dump(value)}"
            for name, value in ast.iter_fields(node)
            if name not in ("ctx", "kind", "type_comment") and value is not None and value != []
        ]
        return f"{type(node).__name__}({','.join(fields)})"
    if isinstance(node, list):
        return f"[{','.join(_dump(each) for each in node if not isinstance(each, ast.Import | ast.ImportFrom))}]"
    return repr(node)


def _hash(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
