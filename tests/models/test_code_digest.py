"""The digest of the code behind a fit: what changes it, and what does not."""

import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import recfusion
from recfusion.models import code_digest as digests
from recfusion.models.code_digest import PACKAGES, code_digest, code_state, source_commit
from recfusion.models.registry import MODELS, find

SOURCE = Path(recfusion.__file__).parent
Edit = Callable[[str, str, str], None]


def digest(name: str, **settings: Any) -> str:
    return code_digest(MODELS[name], {**MODELS[name].settings, **settings})


def forget() -> None:
    for cached in (digests._module, digests._closure_digest, digests._foreign_digest, digests.source_commit):
        cached.cache_clear()


@pytest.fixture
def edit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Edit]:
    """Replace text in a file of a copied source tree, or append some."""
    for package in PACKAGES:
        shutil.copytree(SOURCE / package, tmp_path / package)
    monkeypatch.setattr(digests, "_ROOT", tmp_path)
    forget()

    def replace(file: str, old: str, new: str) -> None:
        path = tmp_path / file
        text = path.read_text(encoding="utf-8")
        assert old in text
        path.write_text(text.replace(old, new) if old else f"{text}\n{new}\n", encoding="utf-8")
        forget()

    yield replace
    forget()


def first_line(file: str) -> str:
    return (SOURCE / file).read_text(encoding="utf-8").splitlines()[0]


def test_an_edit_of_the_model_or_of_what_it_imports_changes_the_digest(edit: Edit) -> None:
    models = ("popularity", "ease", "recfusion", "thinning-deep")
    before = {name: digest(name) for name in models}

    def changed() -> set[str]:
        return {name for name in models if digest(name) != before[name]}

    edit("models/linear/gram.py", "", "MORE = 1")
    assert changed() == {"ease", "thinning-deep"}
    edit("models/linear/gram.py", "MORE = 1", "")
    assert changed() == set()
    edit("diffusion/gaussian.py", "", "MORE = 1")  # a relative import of the package
    assert changed() == {"recfusion"}
    edit("models/base.py", "", "MORE = 1")
    assert changed() == set(models)


def test_docstrings_comments_formats_and_imports_of_types_do_not_change_it(edit: Edit) -> None:
    file = "models/baselines/popularity.py"
    before = digest("popularity")
    edit(file, first_line(file), '"""Another docstring."""\n# A comment.\nfrom typing import TYPE_CHECKING\n')
    edit(file, "import numpy as np\n", "import numpy as np\n\nif TYPE_CHECKING:\n    from recfusion.nets import mlp\n")
    assert digest("popularity") == before
    edit(file, "", "MORE = 1")
    assert digest("popularity") != before


def test_an_edit_of_an_unrelated_model_does_not_change_it(edit: Edit) -> None:
    before = digest("popularity"), digest("ease")
    edit("models/linear/slim.py", "", "MORE = 1")
    edit("models/registry.py", "OURS =", "MORE = 1\nOURS =")
    assert (digest("popularity"), digest("ease")) == before


def test_a_mixture_depends_on_its_members_and_on_their_settings(edit: Edit, monkeypatch: pytest.MonkeyPatch) -> None:
    def both() -> tuple[str, str]:
        return digest("thinning", members="ease,ials"), digest("thinning", members="ials", parts={"ease#2": {}})

    before, alone = both(), digest("thinning", members="ials")
    edit("models/linear/ease.py", "", "MORE = 1")
    assert all(one != other for one, other in zip(both(), before, strict=True))
    assert digest("thinning", members="ials") == alone
    known = {**MODELS, "ials": find("ease")}
    monkeypatch.setattr(digests, "known_models", lambda: known)
    assert digest("thinning", members="ials") != alone


def test_imports_in_functions_count(edit: Edit) -> None:
    before = digest("popularity")
    edit(
        "models/baselines/popularity.py",
        "    def score(",
        "    def more(self):\n        import recfusion.nets.mlp\n\n    def score(",
    )
    with_import = digest("popularity")
    assert with_import != before
    edit("nets/mlp.py", "", "MORE = 1")
    assert digest("popularity") != with_import


@pytest.mark.parametrize("name", ["popularity", "ease", "thinning", "recfusion", "sasrec"])
def test_the_modules_that_an_import_loads_are_covered(name: str) -> None:
    module = MODELS[name].place.partition(":")[0]
    code = f"import sys, {module}; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    wanted = {one for one in loaded if one.startswith(tuple(f"recfusion.{package}." for package in PACKAGES))}
    seen, waiting = {module}, [module]
    while waiting:
        fresh = digests._module(waiting.pop())[1] - seen
        seen |= fresh
        waiting += fresh
    packages = {one for one in wanted if (SOURCE.parent / Path(*one.split("."))).is_dir()}
    assert wanted - packages - digests._NO_PART_OF_A_FIT == seen - {"recfusion.diffusion"}


def test_all_models_take_well_below_a_second_each() -> None:
    forget()
    began = time.process_time()
    assert len({digest(name) for name in MODELS}) > 20
    assert time.process_time() - began < 3


def test_somebody_s_class_depends_on_its_file_and_on_our_modules(tmp_path: Path, edit: Edit) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "from dataclasses import dataclass\nimport recfusion as rf\n@dataclass\nclass Mine(rf.EASE):\n    pass\n"
    )
    entry = find(f"{file}:Mine")
    before = code_digest(entry, {})
    edit("models/linear/ease.py", "", "MORE = 1")
    assert code_digest(entry, {}) != before


def test_states_of_code() -> None:
    assert code_state("a", "a") == "current"
    assert code_state("a", "b") == "stale"
    assert code_state("", "b") == code_state("a", "") == "unknown"


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    command = ["git", "-C", str(folder), *identity, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_the_commit_marks_changes_and_is_empty_outside_of_a_repository_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "src"
    package.mkdir()
    (package / "__init__.py").touch()
    monkeypatch.setattr(digests, "_ROOT", package)

    def now() -> str:
        source_commit.cache_clear()
        return source_commit()

    assert now() == ""
    git(tmp_path, "init", "-q")
    git(tmp_path, "commit", "-q", "--allow-empty", "-m", "somebody else's")
    assert now() == ""  # the package is no part of this repository
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "ours")
    commit = git(tmp_path, "rev-parse", "--short=12", "HEAD")
    assert now() == commit
    (tmp_path / "notes.txt").touch()
    assert now() == commit
    (package / "__init__.py").write_text("MORE = 1\n")
    assert now() == f"{commit}+"
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "nowhere"))
    assert now() == f"{commit}+"
    monkeypatch.setenv("PATH", "")
    assert now() == ""
    source_commit.cache_clear()
