"""Mistakes that tests must notice: `python scripts/mutants.py` makes each of mutants.toml in a copy of the tree, one at
a time, and runs the tests that stand against it. A mutant that survives asks for a test; one more is one more table."""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

ROOT = Path(__file__).parents[1]
SECONDS = 900  # after which tests that hang on a mutant have noticed it
COPIED = ("src", "tests", "scripts", "pyproject.toml")
Fate: TypeAlias = Literal["killed", "SURVIVED", "NO LONGER APPLIES", "TESTS DO NOT RUN"]


@dataclass(frozen=True)
class Mutant:
    """One mistake: a text of a file, what stands there instead, and the tests that must fail then."""

    what: str
    file: str
    text: str
    instead: str
    tests: tuple[str, ...]

    def applies(self, tree: Path) -> bool:
        """Return whether its text stands in its file, and once only."""
        return (tree / self.file).is_file() and (tree / self.file).read_text(encoding="utf-8").count(self.text) == 1


def read_mutants(path: Path = ROOT / "scripts" / "mutants.toml") -> list[Mutant]:
    """Return the mutants of a list."""
    rows = tomllib.loads(path.read_text(encoding="utf-8"))["mutant"]
    return [Mutant(**{**row, "tests": tuple(row["tests"])}) for row in rows]


def copy_tree(target: Path) -> None:
    """Copy what tests need; nothing compiled, as a mutant may be as long and as old as the text it stands for."""
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, target / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        else:
            shutil.copy(ROOT / name, target / name)


def run_tests(tree: Path, tests: Sequence[str]) -> int | None:
    """Return pytest's exit code on a tree; None where it did not end in time."""
    environment = {**os.environ, "PYTHONPATH": str(tree / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
    try:
        run = subprocess.run(command, cwd=tree, env=environment, capture_output=True, check=False, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return None
    return run.returncode


def fate(mutant: Mutant, tree: Path) -> Fate:
    """Return what becomes of a mutant in a copy of the tree, which is then as it was."""
    if not mutant.applies(tree):
        return "NO LONGER APPLIES"
    file = tree / mutant.file
    before = file.read_text(encoding="utf-8")
    file.write_text(before.replace(mutant.text, mutant.instead), encoding="utf-8")
    try:
        code = run_tests(tree, mutant.tests)
    finally:
        file.write_text(before, encoding="utf-8")
    if code == 0:
        return "SURVIVED"
    return "killed" if code in (None, 1) else "TESTS DO NOT RUN"  # a mutant must be a mistake, not a syntax error


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="only mutants whose description or file holds this text")
    parser.add_argument("--trust-tests", action="store_true", help="do not first check that the tests pass as it is")
    options = parser.parse_args()
    chosen = [one for one in read_mutants() if options.only in one.what or options.only in one.file]
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        tree = Path(folder)
        copy_tree(tree)
        tests = sorted({test for one in chosen for test in one.tests})
        if not options.trust_tests and run_tests(tree, tests) != 0:
            print("The tests fail without any mutant, or there are none: mend that first.")
            return 2
        found: Counter[Fate] = Counter()
        for mutant in chosen:
            began = time.monotonic()
            end = fate(mutant, tree)
            found[end] += 1
            print(f"{end:17} {time.monotonic() - began:4.0f} s  {mutant.file}: {mutant.what}", flush=True)
    print(", ".join(f"{count} {end}" for end, count in found.items()))
    return 0 if set(found) == {"killed"} else 1


if __name__ == "__main__":
    sys.exit(main())
