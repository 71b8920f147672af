"""Add the SHA-256 of every pinned package to requirements/constraints-hashes.txt and serve-hashes.txt, and lock them.

`python scripts/pin_hashes.py` asks pip which files it would install for the pins of requirements/constraints.txt: on
this system, and wheels for the Python of this system on Linux (x86-64 and arm64) and macOS (arm64). Hashes of other
systems are kept until the pinned version changes. `serve-hashes.txt` has the packages that a service of closed forms
needs, `serve-nets-hashes.txt` also torch. `pylock.toml` (PEP 751) has the packages of the extra `dev` for every
supported system and Python version; uv writes it, if it is installed.
"""

import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
SYSTEMS = {
    "Linux x86-64": [
        f"{name}_x86_64" for name in ("manylinux_2_28", "manylinux_2_27", "manylinux_2_17", "manylinux2014")
    ],
    "Linux arm64": [
        f"{name}_aarch64" for name in ("manylinux_2_28", "manylinux_2_27", "manylinux_2_17", "manylinux2014")
    ],
    "macOS arm64": [f"macosx_{n}_0_{kind}" for n in (14, 13, 12, 11) for kind in ("arm64", "universal2")]
    + ["macosx_10_9_universal2"],
}
NOT_TO_SERVE = ("hyperopt", "jinja2", "pyarrow")  # only training, reports and tables of users need them
SERVE = {  # the serving sets, with their extras
    ROOT / "requirements" / "serve-hashes.txt": ("serve",),
    ROOT / "requirements" / "serve-nets-hashes.txt": ("serve", "nets"),
}
PINS, HASHES = ROOT / "requirements" / "constraints.txt", ROOT / "requirements" / "constraints-hashes.txt"
VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"
LOCK = ROOT / "requirements" / "pylock.toml"
LOCK_HEAD = "# Written by scripts/pin_hashes.py. To install these files: uv pip sync requirements/pylock.toml\n"
# Wheels of systems and Pythons that are not supported, which would be most of the file.
OTHER_FILES = re.compile(
    r"^    \{ url = .*(-cp3([0-9]|10|15)-(?!abi3)|-pp|-graalpy|cp\d+t-|wasm32|musllinux|ppc64le|s390x|riscv64|armv7l"
    r"|i686|win32|win_arm64|-ios|-android)"
)
HEAD = f"""\
# Pins of constraints.txt with the SHA-256 of their files for Python {VERSION}, written by scripts/pin_hashes.py for
# Linux and macOS. Run it on another system to add its hashes. To install only these files into a fresh environment:
#   pip install --no-deps --require-hashes -r THIS_FILE && pip install --no-deps --no-build-isolation .
"""


def read_pins(text: str) -> list[str]:
    """Return the pins (name==version) in the text of a constraints file."""
    return re.findall(r"^[\w.-]+==[\w.+-]+", text, re.MULTILINE)


def read_hashes(text: str) -> dict[str, set[str]]:
    """Return the hashes of each pin."""
    blocks = re.split(r"\n(?=\w)", text)
    return {pin: set(re.findall(r"sha256:([0-9a-f]{64})", block)) for block in blocks for pin in read_pins(block)}


def hashes_from_pip(pins: Iterable[str], platforms: Iterable[str] = ()) -> dict[str, str]:
    """Return name -> SHA-256 of the file that pip would install here, or of the wheel for other platforms."""
    wanted, options = list(pins), [word for each in platforms for word in ("--platform", each)]
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--no-deps"]
        command += ["--quiet", "--report", str(report)]
        if options:
            command += [*options, "--only-binary=:all:", "--target", folder, "--implementation", "cp"]
            command += ["--python-version", VERSION]
        while not report.exists():
            done = subprocess.run([*command, *wanted], capture_output=True, text=True, check=False)
            missing = re.findall(r"No matching distribution found for (\S+)", done.stderr)
            if done.returncode and not (options and missing):
                sys.exit(done.stderr)
            wanted = [pin for pin in wanted if pin not in missing]  # there is no wheel for the platform
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


def needed_to_serve(pins: Iterable[str], extras: Iterable[str] = ("serve",)) -> list[str]:
    """Return a serving set: the pins that are needed to install the service and to serve, but not to train."""
    sys.path.insert(0, str(Path(__file__).parent))
    from bill_of_materials import parts

    names = {_normal(part.name) for part in parts(extras=extras, without=NOT_TO_SERVE)} | {
        "setuptools"
    }  # which builds the package
    return [pin for pin in pins if _normal(pin.partition("==")[0]) in names]


def write_lock(pins: Iterable[str]) -> None:
    """Write requirements/pylock.toml with uv: the pins, what else other systems need, and the hashes of all files."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as constraints:
        constraints.write("\n".join(pins))
        constraints.flush()
        command = ["uv", "pip", "compile", "pyproject.toml", "--extra", "dev", "--universal", "--no-header", "--quiet"]
        command += ["--default-index", "https://pypi.org/simple", "--python-version", "3.11"]
        command += ["--format", "pylock.toml", "--constraint", constraints.name, "--output-file", str(LOCK)]
        subprocess.run(command, cwd=ROOT, check=True)
    kept = [line for line in LOCK.read_text(encoding="utf-8").splitlines() if not OTHER_FILES.search(line)]
    LOCK.write_text(LOCK_HEAD + "\n".join(kept) + "\n", encoding="utf-8")


if __name__ == "__main__":
    wanted = read_pins(PINS.read_text(encoding="utf-8"))
    known = read_hashes(HASHES.read_text(encoding="utf-8")) if HASHES.exists() else {}
    for system, platforms in {"this system": [], **SYSTEMS}.items():
        found = hashes_from_pip(wanted, platforms)
        known = read_hashes(document(wanted, known, found))
        without = [pin for pin in wanted if _normal(pin.partition("==")[0]) not in found]
        print(
            f"{system}: {len(found)} of {len(wanted)} pins" + (f"; no wheel of {', '.join(without)}" if without else "")
        )
    HASHES.write_text(document(wanted, known, {}), encoding="utf-8")
    for path, extras in SERVE.items():
        path.write_text(document(needed_to_serve(wanted, extras), known, {}), encoding="utf-8")
    if shutil.which("uv"):
        write_lock(wanted)
    else:
        print("requirements/pylock.toml stays as it is: it is written with uv")
