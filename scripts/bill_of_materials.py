"""Print the bill of materials: name, version and licence of every installed dependency.

`python scripts/bill_of_materials.py` prints Markdown, `--json` prints CycloneDX 1.5, `--extra spark` adds an extra.
"""

import argparse
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import Distribution, PackageNotFoundError, distribution

from packaging.requirements import Requirement

PACKAGE = "recfusion"


@dataclass(frozen=True)
class Part:
    """An installed package."""

    name: str
    version: str
    licence: str


def parts(package: str = PACKAGE, extras: Iterable[str] = (), without: Iterable[str] = ()) -> list[Part]:
    """Return all direct and indirect dependencies but `without`, sorted by name; raise if one is not installed."""
    found: dict[str, Part] = {}
    pending = [(package, frozenset(extras))]
    asked, left_out = set(pending), {_normal(name) for name in without}
    while pending:
        name, wanted = pending.pop()
        here = distribution(name)
        found[_normal(name)] = Part(here.metadata["Name"], here.version.partition("+")[0], licence(here))
        for text in here.requires or ():
            needed = Requirement(text)
            if _applies(needed, wanted) and _normal(needed.name) not in left_out:
                one = (_normal(needed.name), frozenset(needed.extras))
                if one not in asked:
                    asked.add(one)
                    pending.append(one)
    found.pop(_normal(package))
    return [found[name] for name in sorted(found)]


def licence(package: Distribution) -> str:
    """Return the licence that a package declares: its expression, its classifiers, or the first line of its text."""
    metadata = package.metadata
    for expression in metadata.get_all("License-Expression") or ():
        return expression
    kinds = [kind for kind in metadata.get_all("Classifier") or () if kind.startswith("License :: ")]
    named = [kind.rpartition(" :: ")[2] for kind in kinds if kind != "License :: OSI Approved"]
    if named:
        return " and ".join(named)
    words = "\n".join(metadata.get_all("License") or ()).strip().splitlines()
    return words[0].strip() if words else "not stated"


def as_markdown(listed: Iterable[Part]) -> str:
    """Return a Markdown table."""
    rows = "".join(f"| {one.name} | {one.version} | {one.licence} |\n" for one in listed)
    return f"| package | version | licence |\n|---|---|---|\n{rows}"


def as_cyclonedx(listed: Iterable[Part]) -> str:
    """Return a CycloneDX document."""
    components = [
        {
            "type": "library",
            "name": one.name,
            "version": one.version,
            "licenses": [{"license": {"name": one.licence}}],
        }
        for one in listed
    ]
    own = {"type": "library", "name": PACKAGE, "version": distribution(PACKAGE).version}
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": own},
        "components": components,
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _applies(needed: Requirement, extras: frozenset[str]) -> bool:
    return needed.marker is None or any(needed.marker.evaluate({"extra": extra}) for extra in (*extras, ""))


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="CycloneDX instead of Markdown")
    parser.add_argument("--extra", action="append", default=[], help="an extra of recfusion, such as spark")
    options = parser.parse_args()
    try:
        listed = parts(extras=options.extra)
    except PackageNotFoundError as error:
        parser.exit(2, f"{error.name} is not installed: install recfusion with these extras first.\n")
    print((as_cyclonedx if options.json else as_markdown)(listed), end="")


if __name__ == "__main__":
    main()
