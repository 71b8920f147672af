"""scripts/archive_results.py: the archive of a version's results is complete and the same for the same commit."""

import hashlib
import json
import os
import runpy
import subprocess
import tarfile
from pathlib import Path

import pytest

from named_tests import ROOT

write_archive = runpy.run_path(str(ROOT / "scripts" / "archive_results.py"))["write_archive"]
CONTENTS = {
    "results/a.md": "table",
    "results/tuning/b.json": "{}",
    "CITATION.cff": "title: x",
    "README.md": "not in it",
}


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    root = tmp_path / "repository"
    for name, text in (CONTENTS | {"pyproject.toml": '[project]\nversion = "1.2.3"\n'}).items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    who = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
    for command in (["init", "-q"], ["add", "."], [*who, "commit", "-q", "-m", "First"]):
        subprocess.run(["git", *command], cwd=root, check=True)
    return root


def test_the_manifest_has_the_sums_of_all_committed_results(repository: Path, tmp_path: Path) -> None:
    with tarfile.open(write_archive(repository, tmp_path / "out")) as archive:
        found = {name: archive.extractfile(name) for name in archive.getnames()}
        texts = {name.removeprefix("recfusion-results-1.2.3/"): file.read() for name, file in found.items() if file}
    manifest = json.loads(texts.pop("MANIFEST.json"))
    assert set(texts) == {"results/a.md", "results/tuning/b.json", "CITATION.cff"}
    assert manifest["sha256"] == {name: hashlib.sha256(text).hexdigest() for name, text in texts.items()}
    assert manifest["version"] == "1.2.3"
    assert manifest["commit"] in manifest["cite"]


def test_the_same_commit_gives_the_same_bytes(repository: Path, tmp_path: Path) -> None:
    first = write_archive(repository, tmp_path / "one").read_bytes()
    os.utime(repository / "results/a.md", (1, 1))
    (repository / "results/a.md").chmod(0o600)
    assert write_archive(repository, tmp_path / "two").read_bytes() == first


def test_uncommitted_results_are_refused(repository: Path, tmp_path: Path) -> None:
    (repository / "results/new.md").write_text("not committed")
    with pytest.raises(SystemExit, match=r"Expected committed results[\s\S]*results/new.md"):
        write_archive(repository, tmp_path / "out")
    assert not (tmp_path / "out").exists()
