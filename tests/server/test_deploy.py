"""The container recipe, as far as it can be tried without a container: its command, mounts, names and packages."""

import itertools
import json
import re
import shlex
import time
from pathlib import Path

from named_tests import ROOT
from recfusion.data.interactions import Interactions
from running import process
from shop import shop

RECIPE = (ROOT / "deploy" / "Dockerfile").read_text(encoding="utf-8")
READ, ADMIN = "r" * 20, "a" * 20
START = "from recfusion.cli.main import main; main()"


def command_of(recipe: str) -> tuple[list[str], list[str]]:
    """Return the arguments of `docker run` before the image, and the command in the container."""
    lines = re.sub(r"\\\n#?", " ", recipe)
    run = shlex.split(re.search(r"docker run (.*)", lines)[1])  # type: ignore[index]
    entry = json.loads(re.search(r"ENTRYPOINT (\[.*\])", lines)[1])  # type: ignore[index]
    image = run.index("recfusion", run.index("--name") + 2)
    return run[:image], [*entry, *run[image + 1 :]]


def test_a_service_of_the_recipe_sees_the_next_model_and_answers_to_its_name(
    groups: Interactions, tmp_path: Path
) -> None:
    options, command = command_of(RECIPE)
    mounts = dict(value.split(":")[1::-1] for flag, value in itertools.pairwise(options) if flag == "-v")
    assert mounts == {"/models": "./models", "/events": "events"}
    name = options[options.index("--name") + 1]
    models, folder = tmp_path / "models", tmp_path / "models" / "shop"
    models.mkdir()
    shop(groups).save(folder)
    (tmp_path / "events").mkdir()
    inside = {"/models/": f"{models}/", "/events/": f"{tmp_path / 'events'}/", "0.0.0.0": "127.0.0.1"}
    given = [
        next((new + word[len(old) :] for old, new in inside.items() if word.startswith(old)), word) for word in command
    ]
    headers = {"Host": f"{name}:8000", "Authorization": f"Bearer {READ}"}
    with process([START, *given[1:]], READ_KEY=READ, ADMIN_KEY=ADMIN) as (_, client):
        asked = {"history": ["i01"], "k": 1}
        first = client.post("/recommend", asked, headers).json["version"]
        shop(groups, "popularity").save(folder)  # as `train --out` does: a new folder under the old name
        until = time.monotonic() + 60
        while client.post("/recommend", asked, headers).json["version"] == first:
            assert time.monotonic() < until
            time.sleep(0.1)
        assert client.post("/recommend", asked, headers | {"Host": "evil.example"}).status == 421


def test_the_image_has_the_tested_python_and_only_packages_with_hashes() -> None:
    base = re.search(r"ARG BASE=python:(\d+\.\d+)-slim", RECIPE)
    assert base is not None
    assert "--require-hashes" in RECIPE
    installs = re.findall(r"pip install (.*?)(?:\n[A-Z]|\Z)", re.sub(r"\\\n", " ", RECIPE), re.DOTALL)
    assert all("--no-deps" in one for one in installs)
    pins = (ROOT / "requirements" / "serve-hashes.txt").read_text(encoding="utf-8")
    assert f"for Python {base[1]}" in pins
    assert "ARG PINS=serve-hashes.txt" in RECIPE
    more = (ROOT / "requirements" / "serve-nets-hashes.txt").read_text(encoding="utf-8")
    assert [len(re.findall(r"^torch==", each, re.MULTILINE)) for each in (pins, more)] == [0, 1]
    assert [name for name in ("matplotlib", "numba", "pyarrow", "pyspark") if f"\n{name}==" in pins + more] == []
