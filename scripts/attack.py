"""Attack the package in every way that the other scripts know, and count: `python scripts/attack.py --seconds 600`.

Prints cases, faults, hangs and aborts of each class of attack, and ends with an exit code of 1 unless all of the last
three are zero. Files of findings are kept in the folder `fuzz-findings`.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

import fuzz_bytes
import fuzz_control
import fuzz_coverage
import fuzz_data
import fuzz_folders
import fuzz_texts

SCRIPTS = Path(__file__).parent
CLASSES: dict[str, list[str]] = {
    "flipped bits": list(fuzz_bytes.TARGETS),
    "data files": list(fuzz_data.TARGETS),
    "model folders and stores": list(fuzz_folders.TARGETS),
    "experiment and trial files": list(fuzz_texts.TARGETS),
    "requests and commands": list(fuzz_control.TARGETS),
}


def fuzzed(targets: list[str], seconds: int, seed: int) -> list[int]:
    """Return cases, faults, hangs and aborts of targets of fuzz.py."""
    command = [sys.executable, str(SCRIPTS / "fuzz.py"), *targets, "--seconds", str(seconds), "--seed", str(seed)]
    lines = subprocess.run(command, capture_output=True, text=True, check=False).stdout.splitlines()
    rows = [[int(cell.replace(",", "")) for cell in line.split()[1:6]] for line in lines if line.split()[0] in targets]
    totals = [sum(column) for column in zip(*rows, strict=True)]
    print("\n".join(line for line in lines if "seed" in line), end="")
    return [sum(totals), *totals[2:]]


def parsed_corpus() -> list[int]:
    """Return cases and faults of the kept inputs of our parsers."""
    files = [(name, file) for name in fuzz_coverage.TARGETS for file in (fuzz_coverage.CORPUS / name).iterdir()]
    faults = 0
    for name, file in files:
        try:
            fuzz_coverage.parse(name, file.read_bytes())
        except Exception as error:
            faults += 1
            print(f"{name}, {file.name}: {error}")
    return [len(files), faults, 0, 0]


def exhausted() -> list[int]:
    """Return cases, faults, hangs and aborts with exhausted resources."""
    told = subprocess.run(
        [sys.executable, SCRIPTS / "exhaust.py", "--json"], capture_output=True, text=True, check=False
    )
    counts = json.loads(told.stdout)
    bad = [sum(n for key, n in counts.items() if key.endswith(kind)) for kind in ("fault", "hang", "abort")]
    return [sum(counts.values()), *bad]


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--seconds", type=int, default=600, help="time for all random cases together")
    options.add_argument("--seed", type=int, default=0, help="seed of the first random case")
    chosen = options.parse_args()
    each = chosen.seconds // len(CLASSES)
    found = {name: fuzzed(targets, each, chosen.seed) for name, targets in CLASSES.items()}
    found |= {"own parsers (corpus)": parsed_corpus(), "exhausted resources": exhausted()}
    found["all"] = [sum(column) for column in zip(*found.values(), strict=True)]
    print(f"{'attack':28}" + "".join(f"{name:>9}" for name in ("cases", "faults", "hangs", "aborts")))
    for name, row in found.items():
        print(f"{name:28}" + "".join(f"{number:9,}" for number in row))
    return int(any(found["all"][1:]))


if __name__ == "__main__":
    sys.exit(main())
