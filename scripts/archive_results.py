"""Write the archive of a version's results: stores, tables, plans, experiments and a manifest with SHA-256 sums.

Usage: python scripts/archive_results.py [FOLDER]

The archive is FOLDER/recfusion-results-VERSION.tar (default: dist). It holds the committed files, in the order of their
names and with the time of the commit, so the same commit gives the same bytes on every machine. The stores in it are
packed already; the archive itself is not compressed, because the bytes of a compressed one depend on a library.
"""

import hashlib
import io
import json
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path

from recfusion.core.files import replacing

ROOT = Path(__file__).parents[1]
CONTENTS = ("results", "studies/results", "src/recfusion/paper/specs", "CITATION.cff", "LICENSE")
MANIFEST = "MANIFEST.json"


def git(root: Path, *arguments: str) -> bytes:
    """Return the output of a git command."""
    return subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, check=True).stdout


def write_archive(root: Path, folder: Path) -> Path:
    """Write the archive of the commit of a repository and return its path."""
    changed = git(root, "status", "--porcelain", "--", *CONTENTS, "pyproject.toml").decode()
    if changed:
        sys.exit(f"Expected committed results, got uncommitted changes; commit them first:\n{changed.rstrip()}")
    commit, seconds = git(root, "log", "-1", "--format=%H %ct").decode().split()
    version = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    names = git(root, "ls-files", "-z", "--", *CONTENTS).decode().split("\0")
    files = {name: git(root, "show", f"HEAD:{name}") for name in sorted(filter(None, names))}
    manifest = {
        "title": f"Results of recfusion {version}",
        "version": version,
        "commit": commit,
        "cite": f"The recfusion authors. Results of recfusion {version}, commit {commit}. See CITATION.cff.",
        "sha256": {name: hashlib.sha256(content).hexdigest() for name, content in files.items()},
    }
    top = f"recfusion-results-{version}"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{top}.tar"
    with replacing(path) as beside, tarfile.open(beside, "w", format=tarfile.USTAR_FORMAT) as archive:
        about = json.dumps(manifest, indent=1).encode() + b"\n"
        for name, content in ((MANIFEST, about), *files.items()):
            entry = tarfile.TarInfo(f"{top}/{name}")
            entry.size, entry.mtime, entry.mode = len(content), int(seconds), 0o644
            archive.addfile(entry, io.BytesIO(content))
    return path


def main() -> None:
    """Write the archive and print its sum."""
    path = write_archive(ROOT, Path(sys.argv[1] if sys.argv[1:] else ROOT / "dist"))
    print(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}")


if __name__ == "__main__":
    main()
