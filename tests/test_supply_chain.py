"""Dependencies: every pin has hashes, and the bill of materials lists every package with its licence."""

import json
import re
import runpy
import tomllib

from named_tests import ROOT

PINNING = runpy.run_path(str(ROOT / "scripts" / "pin_hashes.py"))
BILL = runpy.run_path(str(ROOT / "scripts" / "bill_of_materials.py"))
PINS = PINNING["read_pins"]((ROOT / "requirements" / "constraints.txt").read_text(encoding="utf-8"))


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_every_pin_has_a_hash_and_nothing_else_has() -> None:
    hashes = PINNING["read_hashes"]((ROOT / "requirements" / "constraints-hashes.txt").read_text(encoding="utf-8"))
    assert list(hashes) == PINS, "write it again: scripts/pin_hashes.py"
    assert [pin for pin, found in hashes.items() if not found] == []


def test_hashes_of_other_systems_stay_as_long_as_the_version_does() -> None:
    one, two, old = ("1" * 64, "2" * 64, "3" * 64)
    text = PINNING["document"](["Some_Thing==1.0", "other==2.0"], {"Some_Thing==1.0": {two}, "other==1.9": {old}}, {})
    known = PINNING["read_hashes"](text)
    assert known == {"Some_Thing==1.0": {two}, "other==2.0": set()}
    here = {"some-thing": one, "other": one}
    assert PINNING["read_hashes"](PINNING["document"](known, known, here)) == {
        "Some_Thing==1.0": {one, two},
        "other==2.0": {one},
    }


def test_the_bill_names_every_dependency_with_its_licence() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    listed = BILL["parts"]()
    names = [normal(one.name) for one in listed]
    assert names == sorted(set(names))
    assert {normal(re.split(r"[<>=\[]", text)[0]) for text in project["dependencies"]} < set(names)
    assert "markupsafe" in names  # a dependency of jinja2
    assert "recfusion" not in names
    assert [one.name for one in listed if one.licence == "not stated"] == []
    found = json.loads(BILL["as_cyclonedx"](listed))
    assert [one["name"] for one in found["components"]] == [one.name for one in listed]
    assert BILL["as_markdown"](listed[:1]).splitlines()[2].startswith(f"| {listed[0].name} | {listed[0].version} | ")


def test_the_floors_are_the_lowest_versions_that_the_project_allows() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    (names,) = re.findall(r"\[(.*)\]", extras["all"][0])
    allowed: dict[str, list[tuple[int, ...]]] = {}
    for text in [*project["dependencies"], *(each for name in names.split(",") for each in extras[name])]:
        package, least = re.split("[>=;]+", text)[:2]
        allowed.setdefault(package, []).append(tuple(map(int, least.split("."))))
    lines = (ROOT / "requirements" / "floors.txt").read_text(encoding="utf-8").splitlines()
    pinned = dict(line.split("==") for line in lines if "==" in line)
    least = {package: ".".join(map(str, max(versions))) for package, versions in allowed.items()}
    assert pinned == {package: version for package, version in least.items() if package != "torch"}


def test_the_licences_that_are_listed_are_of_the_pinned_versions() -> None:
    rows = re.findall(
        r"^\| ([\w.-]+) \| (\d\S*) \| \S", (ROOT / "docs" / "reference" / "licences.md").read_text(), re.MULTILINE
    )
    assert len(rows) > 30
    pinned = {normal(pin.partition("==")[0]): pin.partition("==")[2] for pin in PINS}
    assert {name: pinned.get(normal(name)) for name, _ in rows} == dict(rows), "write it: scripts/bill_of_materials.py"


def test_the_packages_of_the_container_have_the_same_hashes_for_three_systems() -> None:
    folder = ROOT / "requirements"
    every = PINNING["read_hashes"]((folder / "constraints-hashes.txt").read_text(encoding="utf-8"))
    for path, extras in PINNING["SERVE"].items():
        serving = PINNING["read_hashes"](path.read_text(encoding="utf-8"))
        needed = {pin: every[pin] for pin in PINNING["needed_to_serve"](PINS, extras)}
        assert serving == needed, "scripts/pin_hashes.py writes it"
        compiled = {pin.partition("==")[0]: len(hashes) for pin, hashes in serving.items()}
        assert all(compiled[name] >= 3 for name in ("numpy", "scipy", "uvloop", "httptools"))
        assert compiled.get("torch", 3) >= 3


def test_the_lock_file_has_the_pinned_versions_with_hashes_and_names_only_the_public_index() -> None:
    text = (ROOT / "requirements" / "pylock.toml").read_text(encoding="utf-8")
    locked = {normal(each["name"]): each for each in tomllib.loads(text)["packages"]}
    pinned = {normal(pin.partition("==")[0]): pin.partition("==")[2] for pin in PINS}
    spark = {"pyspark", "py4j"}  # not installed by the README's test command
    both = {name: each["version"] for name, each in locked.items() if name in pinned}
    assert both == {name: pinned[name] for name in both}, "write it again: scripts/pin_hashes.py"
    assert {*pinned} - {*both} <= spark | {"setuptools"}
    files = [
        file for each in locked.values() for file in [*each["wheels"], *([each["sdist"]] if "sdist" in each else [])]
    ]
    assert all(len(file["hashes"]["sha256"]) == 64 for file in files)
    assert {file["url"].split("/")[2] for file in files} == {"files.pythonhosted.org"}
    assert {*re.findall(r"\w+://[^/]*", text)} == {"https://files.pythonhosted.org"}
    assert not re.search(r"path =|/(home|root|work|opt|tmp)/", text)
