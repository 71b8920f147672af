"""ARCHITECTURE.md describes the packages that exist, and the root folder holds only what belongs there."""

import re
import subprocess

import pytest

from named_tests import ROOT

SOURCE = ROOT / "src" / "recfusion"
TEXT = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
ROOT_FILES = {
    "README.md",
    "LICENSE",
    "CHANGELOG.md",
    "CITATION.cff",
    "CONTRIBUTING.md",
    "ARCHITECTURE.md",
    "pyproject.toml",
}
BLOCKS = re.findall(r"^```\w*\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE)
CODE = re.compile(r"`([^`\n]+)`")
MODULE = re.compile(
    r"(?:src/)?(?:recfusion[./])?[a-z_0-9]+(?:/[a-z_0-9]+)*(?:/|\.py)$"
)  # data/split.py, models/linear/


def named_paths() -> set[str]:
    """Return the packages and modules that the text names, relative to src/recfusion: `data/`, `data/split.py`."""
    named = {name for name in CODE.findall(TEXT) if MODULE.match(name)}
    named |= {word for block in BLOCKS for word in re.findall(r"\b[a-z_0-9/]+(?:/|\.py)(?=\s|$)", block)}
    return {re.sub(r"^(src/)?recfusion[./]", "", name) for name in named}


def exists(name: str) -> bool:
    """Return whether a path names a file or folder of the package (also by its end) or of the repository."""
    if (SOURCE / name).exists() or (ROOT / name).exists():
        return True
    return any(
        path.as_posix().endswith(f"/{name.rstrip('/')}") for path in SOURCE.rglob(name.rstrip("/").split("/")[-1])
    )


def packages() -> set[str]:
    """Return every package below src/recfusion that has modules of its own, as `models/linear`."""
    found = {path.parent.relative_to(SOURCE).as_posix() for path in SOURCE.rglob("*.py")} - {"."}
    return {name for name in found if any(path.name != "__init__.py" for path in (SOURCE / name).glob("*.py"))}


def test_every_package_and_module_that_the_text_names_exists() -> None:
    named = named_paths()
    assert named
    assert sorted(name for name in named if not exists(name)) == []


def test_the_text_names_every_package() -> None:
    words = set(re.findall(r"[a-z_0-9]+", " ".join([*BLOCKS, *CODE.findall(TEXT)])))
    assert sorted(name for name in packages() if name.split("/")[-1] not in words) == []


def test_the_root_folder_holds_no_other_files() -> None:
    try:
        tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("this is not a git checkout")
    files = {name for name in tracked.splitlines() if "/" not in name and not name.startswith(".")}
    assert files == ROOT_FILES
