"""Run commands and a service while a resource is exhausted: `python scripts/exhaust.py --json`.

Resources: address space, file descriptors, file size (a full disk), threads, and a clock that runs backwards. A command
must work, or end with exit code 2 and one sentence, and leave a complete file or none. A service must not start, with
such a sentence, or answer every request with what was asked for or with 503, also if the resource is exhausted after
its start. Anything else is counted: a fault (a traceback, another exit code or status, a broken file),
a hang of 30 seconds or an abort (a signal, a connection that is reset).
"""

import argparse
import http.client
import json
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from patience import HANG, ends_within
from running import Client

COMMANDS = {
    "train": "train ease --data rows.csv --out new",
    "recommend": "recommend model --history i01,i02 -k 3",
    "compare": "compare --models ease,popularity --data rows.csv --splits 1 --workers 2 --out store.jsonl",
    "describe": "data describe rows.csv",
    "serve": "serve model --events events/events.sqlite --port",
}
LIMITS = {"memory": "RLIMIT_AS", "files": "RLIMIT_NOFILE", "disk": "RLIMIT_FSIZE"}
RUN = "import sys; sys.argv[0] = 'recfusion'; from recfusion.cli.main import main; main()"
# Time stands still, then jumps back an hour every few calls.
CLOCK = """
import itertools, time
real, calls = time.time, itertools.count()
time.time = lambda: real() - 3600.0 * (next(calls) // 3)
"""
# No thread starts after the first ones.
THREADS = """
import itertools, threading
calls = itertools.count()
for name in ("_start_new_thread", "_start_joinable_thread"):
    if real := getattr(threading, name, None):
        def start(*given, real=real, **named):
            if next(calls) >= {amount}:
                raise RuntimeError("can't start new thread")
            return real(*given, **named)
        setattr(threading, name, start)
"""
# Requests to a service, and the answers to them if nothing is missing.
REQUESTS: tuple[tuple[str, str, Any, int], ...] = (
    ("GET", "/live", None, 200),
    ("POST", "/recommend", {"history": ["i01", "i02"], "why": 2}, 200),
    ("POST", "/events", {"user": "u1", "item": "i03"}, 201),
    ("POST", "/recommend", {"user": "u1", "remember": True}, 200),
    ("POST", "/events/forget", {"user": "u1"}, 200),
    ("POST", "/admin/reload", {}, 200),
    ("GET", "/ready", None, 200),
    ("GET", "/model", None, 200),
)
IDLE = 60  # connections that send nothing, while a service has few file descriptors


@dataclass(frozen=True)
class Case:
    """A command under a limit."""

    resource: str
    amount: int
    command: str
    later: bool = False  # a service gets the limit after its start, beyond what it uses; of memory, one of two workers

    def limit(self) -> None:
        """Set the limit, in the process that runs the command."""
        if self.resource in LIMITS and not self.later:
            resource.setrlimit(getattr(resource, LIMITS[self.resource]), (self.amount, self.amount))

    def limit_service(self, process: int) -> None:
        """Set the limit of a service that runs."""
        workers = [one for one in psutil.Process(process).children() if "spawn_main" in " ".join(one.cmdline())]
        one = workers[0] if workers else psutil.Process(process)
        used = one.memory_info().vms if self.resource == "memory" else 0
        limit = (used + self.amount, resource.RLIM_INFINITY)
        resource.prlimit(one.pid, getattr(resource, LIMITS[self.resource]), limit)

    @property
    def program(self) -> str:
        """The code that runs the command."""
        return {"clock": CLOCK, "threads": THREADS.format(amount=self.amount)}.get(self.resource, "") + RUN


def cases() -> Iterator[Case]:
    amounts = {
        "memory": [megabytes * 10**6 for megabytes in (300, 700, 1200, 1750, 1900, 2300)],
        "files": [6, 12, 24, 48, 100],
        "disk": [0, 500, 5000],
        "threads": [0, 2, 3, 6],
        "clock": [0],
    }
    for kind, each in amounts.items():
        yield from (Case(kind, amount, command) for amount in each for command in COMMANDS)
    later = {"memory": [0, 1 << 20, 1 << 23, 1 << 25], "disk": [0, 500, 20_000]}
    for kind, each in later.items():
        yield from (Case(kind, amount, "serve", later=True) for amount in each)


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
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            client = Client(free.getsockname()[1])
        words = [*COMMANDS[case.command].split(), *([str(client.port)] if case.command == "serve" else [])]
        words += ["--workers", "2"] if case.later and case.resource == "memory" else []
        process = subprocess.Popen(
            [sys.executable, "-c", case.program, *words],
            cwd=folder,
            env=os.environ | {"HOME": place, "PYTHONDONTWRITEBYTECODE": "1"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=case.limit,
            start_new_session=True,
        )
        assert process.stderr is not None
        with process.stderr, ThreadPoolExecutor(1) as reader:
            told = reader.submit(process.stderr.read)
            became, problem = _watched(case, process, client)
        if became == "ended":
            return _judged(case, process.wait(), told.result(), folder)
        return became, f"{problem}: {told.result()[-500:]}"


def _watched(case: Case, process: subprocess.Popen[str], client: Client) -> tuple[str, str]:
    """Wait for the end of a command; return "ended", or the kind of a problem and its details."""
    became = ("ended", "")
    if case.command == "serve":
        became = _asked(case, process, client)
        process.terminate()
    if not ends_within(process):
        became = ("hang", "it does not end")
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    return became


def _asked(case: Case, process: subprocess.Popen[str], client: Client) -> tuple[str, str]:
    """Send requests to a service; return "ended" if each was answered or the service ended by itself, or a problem."""
    until = time.monotonic() + 4 * HANG  # its start
    while process.poll() is None:
        if time.monotonic() > until:
            return "hang", "it does not start"
        with suppress(OSError, http.client.HTTPException):
            client.get("/live")
            break
        time.sleep(0.1)
    else:
        return "ended", ""
    if case.later:
        case.limit_service(process.pid)
    until = time.monotonic() + HANG if case.later and case.resource == "memory" else 0.0  # a dead worker is replaced
    while (found := _pass(case, process, client))[0] == "abort" and time.monotonic() < until:
        time.sleep(0.5)
    return found


def _pass(case: Case, process: subprocess.Popen[str], client: Client) -> tuple[str, str]:
    with ExitStack() as idle:
        if case.resource == "files":
            for _ in range(IDLE):
                idle.enter_context(socket.create_connection(("127.0.0.1", client.port)))
        for method, path, body, status in 3 * REQUESTS:
            began = time.monotonic()
            try:
                reply = client.ask(method, path, body)
            except TimeoutError:
                return "hang", f"{path}: no answer"
            except (OSError, http.client.HTTPException) as error:
                if process.poll() is not None:
                    return "ended", ""
                return "abort", f"{path}: {type(error).__name__}"
            if time.monotonic() - began > HANG:
                return "hang", f"{path}: an answer after {time.monotonic() - began:.0f} s"
            if reply.status not in (status, 202 if status == 200 else status, 409, 503):
                return "fault", f"{path}: {reply.status} {reply.body[:200]!r}"
    return "ended", ""


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
    options.add_argument("resource", nargs="*", help="default: all of memory, files, disk, threads and clock")
    options.add_argument("--command", choices=COMMANDS, help="only this command")
    options.add_argument("--json", action="store_true", help="print the counts as JSON and nothing else")
    options.add_argument("--verbose", action="store_true", help="print every case")
    chosen = options.parse_args()
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as place:
        prepare(Path(place))
        for case in cases():
            if (chosen.resource and case.resource not in chosen.resource) or chosen.command not in (None, case.command):
                continue
            became, problem = outcome(case, Path(place))
            counts[f"{case.resource} {became}"] += 1
            if chosen.verbose or (problem and became != "refused" and not chosen.json):
                when = "later" if case.later else ""
                print(case.resource, case.amount, case.command, when, became, problem, flush=True)
    if chosen.json:
        print(json.dumps(counts))
    else:
        print(dict(counts))
    return int(any(counts[key] for key in counts if key.split()[1] in ("fault", "hang", "abort")))


if __name__ == "__main__":
    sys.exit(main())
