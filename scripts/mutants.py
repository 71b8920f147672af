"""Check that the tests detect known mistakes ("mutants").

`python scripts/mutants.py` makes each mistake of mutants.toml in a copy of the tree, one at a time, and runs the tests
that must fail then. A mutant that survives needs a better test. `--check` only reports mutants that no longer apply,
and `--relocate` writes the new address of mutants with unchanged code that was moved.

A mutant is an edit of the syntax tree inside one function, so comments, docstrings and formatting may change:

    [[mutant]]
    what = "all users have the same weight"
    where = "recfusion.models.thinning.deep:ThinningDeep.fit"   # module:function, module:Class or module
    replace = "lengths**-self.b"                                # an expression, or one or more statements
    with = "lengths**0.0"                                       # the same kind; an empty text removes statements
    tests = ["tests/models/thinning/test_thinning_deep.py::test_name"]

The code to replace must occur exactly once. Local variables may have been renamed: a name that does not occur in the
function matches any local variable.
"""

import argparse
import ast
import copy
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeAlias

ROOT = Path(__file__).parents[1]
MUTANTS = ROOT / "scripts" / "mutants.toml"
SECONDS = 900  # tests that hang for longer have detected the mutant
COPIED = ("src", "tests", "studies", "scripts", "pyproject.toml")
Fate: TypeAlias = Literal["killed", "SURVIVED", "NO LONGER APPLIES", "TESTS DO NOT RUN"]
Code: TypeAlias = Sequence[ast.AST]
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


class DoesNotApplyError(Exception):
    """A mutant does not match the code; the message says what was looked for and where."""


@dataclass(frozen=True)
class Mutant:
    """One mistake: the code to replace, its replacement, and the tests that must fail."""

    what: str
    where: str
    replace: str
    replacement: str
    tests: tuple[str, ...]


@dataclass(frozen=True)
class Match:
    """A place in a syntax tree that holds the code to replace."""

    parent: ast.AST
    field: str
    start: int | None  # in a list of nodes
    length: int
    renamed: dict[str, str]  # local variables of the mutant -> those of the code

    def put(self, nodes: Code) -> None:
        """Put other nodes in this place."""
        if self.start is None:
            setattr(self.parent, self.field, nodes[0])
        else:
            getattr(self.parent, self.field)[self.start : self.start + self.length] = nodes


def read_mutants(path: Path = MUTANTS) -> list[Mutant]:
    """Return the mutants of a TOML file."""
    rows = tomllib.loads(path.read_text(encoding="utf-8"))["mutant"]
    return [Mutant(row["what"], row["where"], row["replace"], row["with"], tuple(row["tests"])) for row in rows]


def module_file(tree: Path, module: str) -> Path:
    """Return the file of a module of src, or of a study: "studies.NAME"."""
    base = tree.joinpath(*module.split(".") if module.startswith("studies.") else ("src", *module.split(".")))
    return base / "__init__.py" if base.is_dir() else base.with_suffix(".py")


def parse_edit(replace: str, replacement: str) -> tuple[Code, Code]:
    """Return both sides of an edit as nodes: one expression each, or statements."""
    old, new = ast.parse(replace).body, ast.parse(replacement).body
    if len(old) == len(new) == 1 and isinstance(old[0], ast.Expr) and isinstance(new[0], ast.Expr):
        return [old[0].value], [new[0].value]
    return old, new or [ast.Pass()]


def find_scopes(module: ast.Module, name: str) -> list[ast.AST]:
    """Return the functions or classes of a qualified name (a property's setter has the same name as its getter)."""
    found: list[ast.AST] = [module]
    for part in name.split(".") if name else []:
        found = [node for scope in found for node in _definitions(scope) if getattr(node, "name", "") == part]
    return found


def _definitions(scope: ast.AST) -> Iterator[ast.AST]:
    for node in ast.iter_child_nodes(scope):
        if isinstance(node, _SCOPES):
            yield node
        else:
            yield from _definitions(node)


def find_matches(scope: ast.AST, wanted: Code) -> list[Match]:
    """Return every place of a scope that holds the wanted code."""
    used = {node.id for node in ast.walk(scope) if isinstance(node, ast.Name)} | _arguments(scope)
    local = {n.id for n in ast.walk(scope) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    local |= _arguments(scope)
    found = []
    for parent in ast.walk(scope):
        for field, value in ast.iter_fields(parent):
            starts = range(len(value) - len(wanted) + 1) if isinstance(value, list) else (None,)
            for start in starts:
                nodes = [value] if start is None else value[start : start + len(wanted)]
                renamed: dict[str, str] = {}
                if _equal(wanted, nodes, used, local, renamed):
                    found.append(Match(parent, field, start, len(wanted), renamed))
    return found


def _arguments(scope: ast.AST) -> set[str]:
    return {node.arg for node in ast.walk(scope) if isinstance(node, ast.arg)} - {"self", "cls"}


def _equal(wanted: Any, node: Any, used: set[str], local: set[str], renamed: dict[str, str]) -> bool:
    """Return whether code is the wanted one, up to the names of local variables."""
    if isinstance(wanted, list):
        same = isinstance(node, list) and len(wanted) == len(node)
        return same and all(_equal(a, b, used, local, renamed) for a, b in zip(wanted, node, strict=True))
    if type(wanted) is not type(node):
        return False
    if isinstance(wanted, ast.Name):
        is_renamed = wanted.id not in used and node.id in local
        return wanted.id == node.id or (is_renamed and renamed.setdefault(wanted.id, node.id) == node.id)
    if isinstance(wanted, ast.AST):
        fields = [field for field in wanted._fields if field not in ("ctx", "kind", "type_comment")]
        return all(_equal(getattr(wanted, f, None), getattr(node, f, None), used, local, renamed) for f in fields)
    return bool(wanted == node)


def mutate(mutant: Mutant, tree: Path) -> str:
    """Return the source of the mutant's module with the mistake in it."""
    module, _, name = mutant.where.partition(":")
    file = module_file(tree, module)
    if not file.is_file():
        raise DoesNotApplyError(_message(mutant, f"there is no module {module}", tree))
    code = ast.parse(file.read_text(encoding="utf-8"))
    old, new = parse_edit(mutant.replace, mutant.replacement)
    scopes = find_scopes(code, name)
    if not scopes:
        raise DoesNotApplyError(_message(mutant, f"{module} has no function or class {name}", tree))
    matches = [match for scope in scopes for match in find_matches(scope, old)]
    if len(matches) != 1:
        raise DoesNotApplyError(_message(mutant, f"{mutant.where} holds it {len(matches)} times instead of once", tree))
    new = copy.deepcopy(new)
    for node in (inner for outer in new for inner in ast.walk(outer)):
        if isinstance(node, ast.Name):
            node.id = matches[0].renamed.get(node.id, node.id)
    matches[0].put(new)
    return ast.unparse(ast.fix_missing_locations(code)) + "\n"


def _message(mutant: Mutant, problem: str, tree: Path) -> str:
    elsewhere = find_elsewhere(mutant, tree)
    hint = f" The same code is in {', '.join(elsewhere)}." if elsewhere else " No other function holds this code."
    return (
        f"the mutant '{mutant.what}' looks for\n    {mutant.replace}\nbut {problem}.{hint} Edit scripts/mutants.toml."
    )


def find_elsewhere(mutant: Mutant, tree: Path) -> list[str]:
    """Return the innermost functions of any module that hold the code to replace, exactly as it is."""
    old, _ = parse_edit(mutant.replace, mutant.replacement)
    places = _places_by_type(tree)[type(old[0])]
    return sorted({where for where, nodes, i in places if _equal(old, nodes[i : i + len(old)], set(), set(), {})})


@cache
def _places_by_type(tree: Path) -> dict[type[ast.AST], list[tuple[str, list[Any], int]]]:
    """Return the places of all nodes of all modules by their type: innermost function, sibling nodes and position."""
    places: dict[type[ast.AST], list[tuple[str, list[Any], int]]] = defaultdict(list)

    def add(module: str, name: str, parent: ast.AST) -> None:
        for _, value in ast.iter_fields(parent):
            siblings = value if isinstance(value, list) else [value]
            for start, node in enumerate(siblings):
                if isinstance(node, ast.AST):
                    places[type(node)].append((f"{module}:{name}" if name else module, siblings, start))
                    inner = f"{name}.{node.name}".lstrip(".") if isinstance(node, _SCOPES) else name
                    add(module, inner, node)

    for file in sorted((tree / "src").rglob("*.py")):
        parts = file.relative_to(tree / "src").with_suffix("").parts
        module = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        add(module, "", ast.parse(file.read_text(encoding="utf-8")))
    return places


def copy_tree(target: Path) -> None:
    """Copy the files that the tests need, without compiled ones, which could hide a mutant of the same age and size."""
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, target / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        else:
            shutil.copy(ROOT / name, target / name)


def run_tests(tree: Path, tests: Sequence[str]) -> int | None:
    """Return pytest's exit code for a tree, or None if it did not end in time."""
    environment = {**os.environ, "PYTHONPATH": str(tree / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
    try:
        run = subprocess.run(command, cwd=tree, env=environment, capture_output=True, check=False, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return None
    return run.returncode


def fate(mutant: Mutant, tree: Path) -> Fate:
    """Run the tests of a mutant in a copy of the tree, restore the copy, and return the outcome."""
    try:
        mutated = mutate(mutant, tree)
    except DoesNotApplyError as error:
        print(error)
        return "NO LONGER APPLIES"
    file = module_file(tree, mutant.where.partition(":")[0])
    before = file.read_text(encoding="utf-8")
    file.write_text(mutated, encoding="utf-8")
    try:
        code = run_tests(tree, mutant.tests)
    finally:
        file.write_text(before, encoding="utf-8")
    if code == 0:
        return "SURVIVED"
    return "killed" if code in (None, 1) else "TESTS DO NOT RUN"  # an import error, for example, proves nothing


def check(mutants: Sequence[Mutant], relocate: bool) -> int:
    """Report the mutants that no longer apply; with `relocate`, write the new address of moved code."""
    text, failures = MUTANTS.read_text(encoding="utf-8"), 0
    for mutant in mutants:
        try:
            mutate(mutant, ROOT)
        except DoesNotApplyError as error:
            elsewhere = find_elsewhere(mutant, ROOT)
            if relocate and len(elsewhere) == 1:
                head = f"what = {json.dumps(mutant.what, ensure_ascii=False)}\nwhere = "
                text = text.replace(f'{head}"{mutant.where}"', f'{head}"{elsewhere[0]}"')
                print(f"moved to {elsewhere[0]}: {mutant.what}")
            else:
                failures += 1
                print(error)
    MUTANTS.write_text(text, encoding="utf-8")
    print(f"{failures} of {len(mutants)} mutants do not apply")
    return 1 if failures else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    only = "only mutants with this text in their description or address; may be repeated"
    parser.add_argument("--only", action="append", metavar="TEXT", help=only)
    parser.add_argument("--trust-tests", action="store_true", help="do not first check that the tests pass unchanged")
    parser.add_argument("--check", action="store_true", help="run no tests, only list mutants that no longer apply")
    parser.add_argument("--relocate", action="store_true", help="like --check, and correct addresses of moved code")
    options = parser.parse_args()
    wanted = options.only or [""]
    chosen = [one for one in read_mutants() if any(text in one.what or text in one.where for text in wanted)]
    if options.check or options.relocate:
        return check(chosen, options.relocate)
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        tree = Path(folder)
        copy_tree(tree)
        tests = sorted({test for one in chosen for test in one.tests})
        if not options.trust_tests and run_tests(tree, tests) != 0:
            print("The tests fail without any mutant, or there are none: fix that first.")
            return 2
        counts: Counter[Fate] = Counter()
        for mutant in chosen:
            began = time.monotonic()
            end = fate(mutant, tree)
            counts[end] += 1
            print(f"{end:17} {time.monotonic() - began:4.0f} s  {mutant.where}: {mutant.what}", flush=True)
    print(", ".join(f"{count} {end}" for end, count in counts.items()))
    return 0 if set(counts) == {"killed"} else 1


if __name__ == "__main__":
    sys.exit(main())
