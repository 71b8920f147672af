"""Attack the package in every way that the other scripts know, and count: `python scripts/attack.py --seconds 600`.

Prints cases, faults, hangs and aborts of each class of attack, and ends with an exit code of 1 unless all of the last
three are zero. `--out benchmarks/attack.json` stores them with their commands; `--only "flipped bits"` runs one class
and keeps the others of that file. Files of findings are kept in the folder `fuzz-findings`.
"""

import argparse
import importlib.util
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import fuzz_bytes
import fuzz_control
import fuzz_coverage
import fuzz_data
import fuzz_folders
import fuzz_texts

from recfusion.core.files import write_json

SCRIPTS = Path(__file__).parent
COUNTS = ("cases", "faults", "hangs", "aborts")
RESOURCES = ("memory", "files", "disk", "threads", "clock")
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
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    rows, findings = table_rows(done.stdout, targets), [line for line in done.stdout.splitlines() if ", seed " in line]
    totals = [sum(column) for column in zip(*rows, strict=True)] or [0] * 5
    if not sum(totals) or (done.returncode and not findings):
        totals[2] += 1  # the script itself failed
        findings.append(f"fuzz.py ended with exit code {done.returncode}: {done.stderr[-500:]}")
    print("".join(f"{line}\n" for line in findings), end="")
    return [sum(totals), *totals[2:]]


def table_rows(printed: str, targets: Sequence[str]) -> list[list[int]]:
    """Return the numbers of each target in the table that fuzz.py prints: worked, refused, failed, hung and died."""
    cells = [line.split() for line in printed.splitlines()]
    return [[int(one.replace(",", "")) for one in row[1:6]] for row in cells if len(row) == 6 and row[0] in targets]


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


def guided(seconds: int, seed: int) -> list[int]:
    """Return cases, faults, hangs and aborts of our parsers, guided by coverage; no cases without atheris."""
    if importlib.util.find_spec("atheris") is None:
        return [0] * 4
    each = max(1, seconds // len(fuzz_coverage.TARGETS))
    with tempfile.TemporaryDirectory() as corpus:
        command = [sys.executable, str(SCRIPTS / "fuzz_coverage.py"), "--corpus", corpus]
        command += ["--seconds", str(each), "--seed", str(seed + 1)]  # libFuzzer draws a seed for 0
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    ends = re.findall(r"^\w+ +(\d+|\?) cases, exit code (-?\d+)$", done.stdout, re.MULTILINE)
    if done.returncode:
        print(done.stdout[-3000:])
    codes = [int(code) for _, code in ends]
    hangs = codes.count(70)  # libFuzzer's exit code for a case that takes too long
    lost = len(fuzz_coverage.TARGETS) - len(ends)
    cases = sum(int(n) for n, _ in ends if n.isdecimal())
    return [cases, len(codes) - codes.count(0) - hangs + lost, hangs, 0]


def requested(cases: int, seed: int) -> list[int]:
    """Return cases and faults of requests to a service, drawn from its OpenAPI document."""
    counts = _json_of("fuzz_service.py", "--cases", str(cases), "--seed", str(seed))
    return [counts["cases"], counts["faults"], 0, 0]


def independent(seed: int) -> list[int]:
    """Return cases, faults, hangs and aborts of checks that share no code with the other scripts."""
    counts = _json_of("independent.py", "--seed", str(seed))
    return [counts[name] for name in COUNTS]


def exhausted(resource: str) -> list[int]:
    """Return cases, faults, hangs and aborts with an exhausted resource."""
    counts = _json_of("exhaust.py", resource)
    bad = [sum(n for key, n in counts.items() if key.endswith(kind)) for kind in ("fault", "hang", "abort")]
    return [sum(counts.values()), *bad]


def _json_of(script: str, *words: str) -> dict[str, int]:
    """Return the counts that a script prints; print its messages."""
    done = subprocess.run(
        [sys.executable, SCRIPTS / script, "--json", *words], capture_output=True, text=True, check=False
    )
    if done.returncode:
        print(done.stderr[-3000:])
    found: dict[str, int] = json.loads(done.stdout)
    return found


def attacks(seconds: int, requests: int, seed: int) -> dict[str, Callable[[], list[int]]]:
    """Return every attack by its name."""
    found = {name: partial(fuzzed, targets, seconds, seed) for name, targets in CLASSES.items()}
    return {
        **found,
        "own parsers (kept inputs)": parsed_corpus,
        "own parsers (guided)": partial(guided, seconds, seed),
        "independent checks": partial(independent, seed),
        "requests to a service": partial(requested, requests, seed),
        **{f"exhausted {resource}": partial(exhausted, resource) for resource in RESOURCES},
    }


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--only", action="append", help="only this attack; may be repeated")
    options.add_argument("--seconds", type=int, default=100, help="time for each attack with random files")
    options.add_argument("--requests", type=int, default=4000, help="random requests to a service")
    options.add_argument("--seed", type=int, default=0, help="seed of the first random case")
    options.add_argument("--out", type=Path, help="JSON file for the counts")
    chosen = options.parse_args()
    every = attacks(chosen.seconds, chosen.requests, chosen.seed)
    if unknown := set(chosen.only or ()) - every.keys():
        options.error(f"unknown attack {', '.join(sorted(unknown))}: choose from {', '.join(every)}")
    given = f"--seconds {chosen.seconds} --requests {chosen.requests} --seed {chosen.seed}"
    rows = json.loads(chosen.out.read_text())["attacks"] if chosen.out and chosen.out.exists() else {}
    rows = {name: rows[name] for name in every if name in rows}
    for name in chosen.only or every:
        command = f'python scripts/attack.py --only "{name}" {given} --out benchmarks/attack.json'
        rows[name] = dict(zip(COUNTS, every[name](), strict=True)) | {"command": command}
        if chosen.out:
            totals = {count: sum(row[count] for row in rows.values()) for count in COUNTS}
            write_json(chosen.out, {"all": totals, "attacks": rows})
    print(f"{'attack':28}" + "".join(f"{name:>9}" for name in COUNTS))
    for name, row in rows.items():
        print(f"{name:28}" + "".join(f"{row[count]:9,}" for count in COUNTS))
    return int(any(row[count] for row in rows.values() for count in COUNTS[1:]))


if __name__ == "__main__":
    sys.exit(main())
