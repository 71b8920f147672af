"""Run a service under load, events, reloads, deletions, kills, a full disk and slow clients at the same time.

    python scripts/soak.py --minutes 30 --out benchmarks/soak

writes `soak.json` (counts, and a row per second) and `soak.png` (p99 and memory over time). It ends with exit code 1 if
a request got a wrong answer or none, a list is not the one of the library, an acknowledged event or deletion was lost,
or the service ended badly. The full disk is a limit on the
size of the files that the workers may write (RLIMIT_FSIZE), so this needs Linux.
"""

import argparse
import http.client
import itertools
import json
import os
import random
import resource
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import psutil

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).parent))
from fuzz_service import small_shop

from recfusion.core.errors import InputError
from recfusion.core.files import file_digest, write_json
from recfusion.inference.bundle import Bundle
from recfusion.inference.bundle_files import CONFIG
from recfusion.inference.lists import lists_for_requests
from recfusion.inference.request import ListRequest
from recfusion.server.event_store import Store
from running import Client, Reply, process, worker_ids

START = "from recfusion.cli.main import main; main()"
HANG = 30.0  # seconds
AFTER_KILL = 3.0  # seconds in which connections to a killed worker may break
SLOW = {
    "nothing": b"",
    "half a head": b"GET /live HTTP/1.1\r\nHost: 127.0.0.1\r\nx-",
    "half a body": b"POST /events HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    b"Content-Length: 90\r\n\r\n{",
    "endless head": b"GET /live HTTP/1.1\r\nHost: 127.0.0.1\r\n" + b"x-y: zzzzzzzz\r\n" * 50_000,
}


@dataclass
class Record:
    """What happened so far; lists and counters are only added to, from several threads."""

    began: float = field(default_factory=time.monotonic)
    latencies: dict[int, list[float]] = field(
        default_factory=lambda: defaultdict(list)
    )  # second -> ms of lists and events
    memory: dict[int, float] = field(default_factory=dict)  # second -> MB of all workers
    counts: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    acknowledged: list[tuple[str, str]] = field(default_factory=list)
    forgotten: list[str] = field(default_factory=list)
    kills: list[float] = field(default_factory=list)
    full: list[float] = field(default_factory=list)
    reloads: list[float] = field(default_factory=list)
    disk_is_full: bool = False

    def now(self) -> float:
        return time.monotonic() - self.began


def send(record: Record, client: Client, kind: str, path: str, body: Any, allowed: tuple[int, ...]) -> Reply:
    """Send a request and count its outcome; return the answer, with status 0 if there is none."""
    began, none = time.monotonic(), Reply(0, {}, b"")
    try:
        reply = client.post(path, body)
    except TimeoutError:
        record.counts["hangs"] += 1
        record.faults.append(f"{kind}: no answer")
        return none
    except (OSError, http.client.HTTPException) as error:
        killed = any(abs(record.now() - one) < AFTER_KILL + (time.monotonic() - began) for one in record.kills)
        record.counts["ended by a kill" if killed else "aborts"] += 1
        if not killed:
            record.faults.append(f"{kind}: {type(error).__name__}")
        return none
    took, status = time.monotonic() - began, reply.status
    record.counts[f"{kind} {status}"] += 1
    record.counts["requests"] += 1
    if kind in ("list", "batch", "event"):  # a reload waits for the other worker
        record.latencies[int(record.now())].append(1000 * took)
    if took > HANG:
        record.counts["hangs"] += 1
        record.faults.append(f"{kind}: an answer after {took:.0f} s")
    if status not in allowed:
        record.faults.append(f"{kind}: status {status}")
    return reply


def wrong_list(bundles: Mapping[str, Bundle], body: Mapping[str, Any], answer: Mapping[str, Any]) -> str | None:
    """Return what is wrong with a list; None if it is the one of the library, or may be that of a user with events."""
    found = [item["item"] for item in answer["items"]]
    if answer["version"] not in bundles:
        return "a list of an unknown model"
    if "user" in body:
        repeated = len(found) - len(set(found) - set(body["history"]))
        return f"{len(found)} items, {repeated} of them twice or in the history" if repeated else None
    bundle = bundles[answer["version"]]
    expected = lists_for_requests(bundle, [ListRequest(history=tuple(body["history"]), k=body["k"])])[0]
    if isinstance(expected, InputError) or found != bundle.items["item"][expected.items].to_list():
        return "a list that is not the one of the library"
    return None


def load(record: Record, client: Client, rng: random.Random, bundles: Mapping[str, Bundle]) -> None:
    body: dict[str, Any] = {"history": [f"i{rng.randrange(40)}" for _ in range(5)], "k": 10, "why": rng.choice((0, 3))}
    if rng.random() < 0.5:
        body["user"] = f"u{rng.randrange(200)}"
    if rng.random() < 0.1:
        asked = {"requests": [body | {"k": 30}] * 20}
        send(record, client, "batch", "/recommend/batch", asked, (200, 503))
    else:
        reply = send(record, client, "list", "/recommend", body, (200, 503))
        if reply.status == 200:
            record.counts["checked lists"] += 1
            if problem := wrong_list(bundles, body, reply.json):
                record.counts["wrong lists"] += 1
                record.faults.append(f"list: {problem}")
    time.sleep(0.01)


def event(record: Record, client: Client, numbers: Iterator[int]) -> None:
    """Events of a user and item that occur once, so that each can be found afterwards."""
    number = next(numbers)
    user, item = f"u{number % 200}", f"x{number}"
    if send(record, client, "event", "/events", {"user": user, "item": item}, (201, 503)).status == 201:
        record.acknowledged.append((user, item))
    time.sleep(0.02)


def forget(record: Record, client: Client, numbers: Iterator[int]) -> None:
    user = f"gone-{next(numbers)}-person"
    send(record, client, "event", "/events", {"user": user, "item": "i1"}, (201, 503))
    if send(record, client, "deletion", "/events/forget", {"user": user}, (200, 202, 503)).status in (200, 202):
        record.forgotten.append(user)
    time.sleep(1)


def reload(record: Record, client: Client, folder: Path, others: Iterator[Path]) -> None:
    """Replace the model folder as training does, then ask for a reload; `--watch` may be first."""
    new = folder.with_name("next")
    shutil.rmtree(new, ignore_errors=True)
    shutil.copytree(next(others), new)
    old = folder.with_name("old")
    shutil.rmtree(old, ignore_errors=True)
    folder.rename(old)
    new.rename(folder)
    record.reloads.append(record.now())
    send(record, client, "reload", "/admin/reload", {}, (200, 409, 503) if record.disk_is_full else (200, 503))
    time.sleep(5)


def kill(record: Record, events: Path, rng: random.Random) -> None:
    time.sleep(12)
    alive = [one for one in worker_ids(events) if psutil.pid_exists(one)]
    if len(alive) < 2 or record.disk_is_full:
        return  # the other is still starting
    record.kills.append(record.now())
    with suppress(ProcessLookupError):
        os.kill(rng.choice(alive), signal.SIGKILL)
    record.counts["killed workers"] += 1


def fill_disk(record: Record, workers: Callable[[], list[psutil.Process]]) -> None:
    """No file of the service can grow for some seconds."""
    time.sleep(20)
    record.full.append(record.now())
    record.disk_is_full = True
    unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    limited = workers()
    try:
        for one in limited:
            with suppress(OSError):
                resource.prlimit(one.pid, resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
        time.sleep(4)
    finally:
        for one in limited:
            with suppress(OSError):
                resource.prlimit(one.pid, resource.RLIMIT_FSIZE, unlimited)
        record.disk_is_full = False
    record.counts["full disks"] += 1


def stall(record: Record, port: int, kind: str) -> None:
    """Open a connection, send a part of a request, and wait until the service ends it."""
    began = time.monotonic()
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=2 * HANG) as connection:
        with suppress(OSError):
            connection.sendall(SLOW[kind])
        while connection.recv(1 << 16):
            pass
    record.counts["slow clients"] += 1
    if time.monotonic() - began > HANG:
        record.counts["hangs"] += 1
        record.faults.append(f"a slow client ({kind}) was not disconnected")
    time.sleep(0.5)


def watch(record: Record, workers: Callable[[], list[psutil.Process]]) -> None:
    total = 0.0
    for one in workers():
        with suppress(psutil.Error):
            total += one.memory_info().rss / 1e6
    record.memory[int(record.now())] = round(total, 1)
    time.sleep(1)


def repeated(job: Callable[[], None], until: float, faults: list[str]) -> threading.Thread:
    """Repeat a job in a thread until a time; a job that raises is a fault of this script or of the service."""

    def run() -> None:
        while time.monotonic() < until:
            try:
                job()
            except Exception as error:
                faults.append(f"{type(error).__name__} in the script: {error}")
                time.sleep(1)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread


def check_files(record: Record, events: Path) -> None:
    """Compare the event store with what the service acknowledged."""
    with closing(Store(events)) as store:
        kept = set(store.rows("SELECT user, item FROM events"))
        left = {user for (user,) in store.rows("SELECT DISTINCT user FROM events WHERE user LIKE 'gone-%'")}
    record.counts["lost events"] = len(set(record.acknowledged) - kept)
    record.counts["lost deletions"] = len(left & set(record.forgotten))
    record.counts["acknowledged events"] = len(record.acknowledged)
    stored = b"".join(path.read_bytes() for path in events.parent.glob(f"{events.name}*"))
    record.counts["deleted ids in files"] = sum(user.encode() in stored for user in record.forgotten)


def soak(minutes: float, seed: int = 0) -> Record:
    """Run everything at the same time and return what happened."""
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="soak-") as name:
        place = Path(name)
        made = [small_shop(place / version, l2) for version, l2 in (("a", 10.0), ("b", 50.0))]
        bundles = {file_digest(path / CONFIG)[:12]: Bundle.load(path) for path in made}
        folder, events = place / "models" / "shop", place / "events" / "events.sqlite"
        shutil.copytree(place / "a" / "shop", folder)
        options = ["--workers", "2", "--watch", "--events", str(events)]
        with process([START, "serve", str(folder), *options]) as (service, checking):
            client = Client(checking.port)  # one that does not validate answers, which takes longer than to make them
            parent = psutil.Process(service.pid)

            def workers() -> list[psutil.Process]:
                found = []
                for one in parent.children():
                    with suppress(psutil.Error):  # it was killed
                        if "spawn_main" in " ".join(one.cmdline()):
                            found.append(one)
                return found

            record, numbers = Record(), itertools.count()
            threading.Thread(target=service.stderr.read, daemon=True).start()  # type: ignore[union-attr]
            until = time.monotonic() + 60 * minutes
            others = itertools.cycle([place / "b" / "shop", place / "a" / "shop"])
            jobs: list[Callable[[], None]] = [
                *([lambda: load(record, client, rng, bundles)] * 4),
                *([lambda: event(record, client, numbers)] * 2),
                lambda: forget(record, client, numbers),
                lambda: reload(record, client, folder, others),
                lambda: kill(record, events, rng),
                lambda: fill_disk(record, workers),
                lambda: watch(record, workers),
                *(lambda kind=kind: stall(record, client.port, kind) for kind in SLOW),
            ]
            for thread in [repeated(job, until, record.faults) for job in jobs]:
                thread.join(60 * minutes + 4 * HANG)
                record.counts["hangs"] += thread.is_alive()
            service.terminate()
            record.counts["exit code"] = service.wait(60)
        check_files(record, events)
    return record


def report(record: Record, command: str = "") -> dict[str, Any]:
    """Return counts, totals, and a row per second."""
    wrong = ("hangs", "aborts", "wrong lists", "lost events", "lost deletions", "deleted ids in files", "exit code")
    rows = []
    for second in sorted(record.latencies.keys() | record.memory.keys()):
        found = record.latencies.get(second, [])
        p99 = round(float(np.percentile(found, 99)), 1) if found else None
        rows.append({"second": second, "requests": len(found), "p99_ms": p99, "memory_mb": record.memory.get(second)})
    return {
        "command": command,
        "seconds": round(record.now()),
        "requests": record.counts["requests"],
        "wrong": {name: record.counts[name] for name in wrong} | {"faults": len(record.faults)},
        "faults": record.faults[:20],
        "counts": dict(sorted(record.counts.items())),
        "kills": [round(one) for one in record.kills],
        "full_disks": [round(one) for one in record.full],
        "reloads": [round(one) for one in record.reloads],
        "rows": rows,
    }


def plot(found: dict[str, Any], path: Path) -> None:
    """Draw p99 and memory over time, with kills, full disks and reloads."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (above, below) = plt.subplots(2, sharex=True, figsize=(9, 5))
    seconds = [row["second"] for row in found["rows"]]
    above.plot(seconds, [row["p99_ms"] or np.nan for row in found["rows"]], linewidth=0.8)
    above.set(ylabel="p99 (ms)", yscale="log")
    below.plot(seconds, [row["memory_mb"] or np.nan for row in found["rows"]], linewidth=0.8)
    below.set(ylabel="memory of the workers (MB)", xlabel="seconds", ylim=(0, None))
    for axis in (above, below):
        for name, colour in (("kills", "tab:red"), ("full_disks", "tab:orange"), ("reloads", "lightgrey")):
            for number, when in enumerate(found[name]):
                label = name.replace("_", " ") if number == 0 else None
                axis.axvline(when, color=colour, linewidth=0.8, label=label, zorder=0)
    above.legend(loc="upper right")
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def main() -> None:
    """Run the soak, write its report and print a summary."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="path of the report without its ending")
    arguments = parser.parse_args()
    command = f"python scripts/soak.py --minutes {arguments.minutes:g} --seed {arguments.seed} --out benchmarks/soak"
    found = report(soak(arguments.minutes, arguments.seed), command)
    if arguments.out:
        write_json(arguments.out.with_suffix(".json"), found)
        plot(found, arguments.out.with_suffix(".png"))
    print(json.dumps({name: found[name] for name in ("seconds", "requests", "wrong", "faults", "counts")}, indent=1))
    sys.exit(any(found["wrong"].values()))


if __name__ == "__main__":
    main()
