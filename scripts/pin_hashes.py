"""Add the SHA-256 of every pinned package to requirements/constraints-hashes.txt.

`python scripts/pin_hashes.py` asks pip which files it would install on this system for the pins of
requirements/constraints.txt. Hashes of other systems are kept until the pinned version changes.
"""

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
PINS, HASHES = ROOT / "requirements" / "constraints.txt", ROOT / "requirements" / "constraints-hashes.txt"
HEAD = """\
# The pins of constraints.txt with the SHA-256 of the tested files, written by scripts/pin_hashes.py. Run it on another
# system to add the hashes of that system. To install only these files into a fresh environment:
#   pip install --no-deps --require-hashes -r requirements/constraints-hashes.txt
#   pip install --no-deps --no-build-isolation .
"""


def read_pins(text: str) -> list[str]:
    """Return the pins (name==version) in the text of a constraints file."""
    return re.findall(r"^[\w.-]+==[\w.+-]+", text, re.MULTILINE)


def read_hashes(text: str) -> dict[str, set[str]]:
    """Return the hashes of each pin."""
    blocks = re.split(r"\n(?=\w)", text)
    return {pin: set(re.findall(r"sha256:([0-9a-f]{64})", block)) for block in blocks for pin in read_pins(block)}


def hashes_from_pip(pins: Iterable[str]) -> dict[str, str]:
    """Return name -> SHA-256 of the file that pip would install here."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = ["-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed", "--no-deps", *pins]
        subprocess.run([sys.executable, *command, "--report", str(report)], check=True)
        found = json.loads(report.read_text(encoding="utf-8"))["install"]
    return {_normal(one["metadata"]["name"]): one["download_info"]["archive_info"]["hashes"]["sha256"] for one in found}


def document(pins: Iterable[str], known: Mapping[str, set[str]], here: Mapping[str, str]) -> str:
    """Return the text of the hashes file: each pin with the known hashes and that of this system."""
    lines = []
    for pin in pins:
        mine = here.get(_normal(pin.partition("==")[0]))
        hashes = sorted(known.get(pin, set()) | ({mine} if mine else set()))
        lines.append(" \\\n".join([pin, *(f"    --hash=sha256:{each}" for each in hashes)]))
    return HEAD + "\n".join(lines) + "\n"


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


if __name__ == "__main__":
    wanted = read_pins(PINS.read_text(encoding="utf-8"))
    before = read_hashes(HASHES.read_text(encoding="utf-8")) if HASHES.exists() else {}
    HASHES.write_text(document(wanted, before, hashes_from_pip(wanted)), encoding="utf-8")
    print(f"{len(wanted)} pins in {HASHES.name}")
