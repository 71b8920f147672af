"""Run commands while a resource is exhausted: `python scripts/exhaust.py --json`.

Resources: address space (without which no thread starts either), file descriptors, file size (a full disk), and a
clock that runs backwards. A command must work, or end with exit code 2 and one sentence, and leave a complete file or
none. Anything else is counted: a fault (a traceback, another exit code, a broken file), a hang (over `SECONDS`) or an
abort (a signal).
"""

import argparse
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

SECONDS = 120  # generous, for a machine with other work; an undisturbed command takes about five
COMMANDS = {
    "train": "train ease --data rows.csv --out new",
    "recommend": "recommend model --history i01,i02 -k 3",
    "compare": "compare --models ease,popularity --data rows.csv --splits 1 --workers 2 --out store.jsonl",
    "describe": "data describe rows.csv",
}
RUN = "import sys; sys.argv[0] = 'recfusion'; from recfusion.cli.main import main; main()"
# Time stands still, then jumps back an hour every few calls.
CLOCK = """
import itertools, time
real, calls = time.time, itertools.count()
time.time = lambda: real() - 3600.0 * (next(calls) // 3)
"""


@dataclass(frozen=True)
class Case:
    """A command under a limit."""

    resource: str
    amount: int
    command: str

    def limit(self) -> None:
        """Set the limit, in the process that runs the command."""
        kinds = {"memory": "RLIMIT_AS", "files": "RLIMIT_NOFILE", "disk": "RLIMIT_FSIZE"}
        if self.resource in kinds:
            resource.setrlimit(getattr(resource, kinds[self.resource]), (self.amount, self.amount))


def cases() -> Iterator[Case]:
    amounts = {
        "memory": [megabytes * 10**6 for megabytes in (300, 700, 1200, 1750, 1900, 2300)],
        "files": [6, 12, 24, 48],
        "disk": [0, 500, 5000],
        "clock": [0],
    }
    return (Case(kind, amount, command) for kind, each in amounts.items() for amount in each for command in COMMANDS)


def prepare(folder: Path) -> None:
    """Write a table and a model for the commands."""
    pairs = [(user, item) for user in range(60) for item in range(user % 4, 20, 3)]
    (folder / "rows.csv").write_text("user,item\n" + "".join(f"u{user},i{item:02d}\n" for user, item in pairs))
    command = [sys.executable, "-m", "recfusion", *COMMANDS["train"].replace("new", "model").split()]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)


def outcome(case: Case, sound: Path) -> tuple[str, str]:
    """Return what a case came to (worked, refused, fault, hang or abort), and the details of a problem."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        shutil.copytree(sound, folder, dirs_exist_ok=True)
        code = (CLOCK if case.resource == "clock" else "") + RUN
        process = subprocess.Popen(
            [sys.executable, "-c", code, *COMMANDS[case.command].split()],
            cwd=folder,
            env=os.environ | {"HOME": place, "PYTHONDONTWRITEBYTECODE": "1"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=case.limit,
            start_new_session=True,
        )
        try:
            told = process.communicate(timeout=SECONDS)[1]
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return "hang", process.communicate()[1][-500:]
        return _judged(case, process.returncode, told, folder)


def _judged(case: Case, code: int, told: str, folder: Path) -> tuple[str, str]:
    if code < 0:
        return "abort", told[-500:]
    last = (told.strip().splitlines() or [""])[-1]
    failed_fits = code == 1 and case.command == "compare" and "will be retried" in told
    if (code not in (0, 2) and not failed_fits) or (code == 2 and not told.count("Error: ")):
        return "fault", f"exit code {code}: {told[-700:]}"
    unfinished = [path.name for path in folder.iterdir() if ".tmp-" in path.name]
    if unfinished or ((folder / "new").exists() and not (folder / "new" / "config.json").is_file()):
        return "fault", f"left {unfinished or 'half a model'}"
    return ("worked", "") if code == 0 else ("refused", last)


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("resource", nargs="*", help="default: all of memory, files, disk and clock")
    options.add_argument("--json", action="store_true", help="print the counts as JSON and nothing else")
    options.add_argument("--verbose", action="store_true", help="print every case")
    chosen = options.parse_args()
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as place:
        prepare(Path(place))
        for case in cases():
            if chosen.resource and case.resource not in chosen.resource:
                continue
            became, problem = outcome(case, Path(place))
            counts[f"{case.resource} {became}"] += 1
            if chosen.verbose or (problem and became != "refused" and not chosen.json):
                print(case.resource, case.amount, case.command, became, problem, flush=True)
    if chosen.json:
        print(json.dumps(counts))
    else:
        print(dict(counts))
    return int(any(counts[key] for key in counts if key.split()[1] in ("fault", "hang", "abort")))


if __name__ == "__main__":
    sys.exit(main())
