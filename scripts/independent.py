"""Check promises from outside, with generators that share no code with the fuzzers: `python scripts/independent.py`.

Tables: pairs and lines of random CSV files against Python's own csv module. Folders: a flipped bit of a model folder is
an error or changes no list. Bytes: random bytes and requests over raw sockets to two workers, never a 5xx. Kills: every
acknowledged event is in the file of events after `kill -9` of workers. Folders are read in a process of their own, so
that a crash is only counted.
"""

import argparse
import csv
import io
import json
import os
import random
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
import urllib.request
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import psutil

import recfusion as rf

HANG = 30.0  # seconds
FLIPS = """
import json, logging, random, shutil, sys
from pathlib import Path
import recfusion as rf
from recfusion.core.errors import InputError
logging.disable()
sound, place, rng, cases = Path(sys.argv[1]), Path(sys.argv[2]), random.Random(int(sys.argv[3])), int(sys.argv[4])
history, faults = ["i1", "i2"], []
best = rf.recommend(rf.Bundle.load(sound), {"u": history}, k=5).to_frame()
for _ in range(cases):
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(sound, place)
    file = rng.choice([one for one in sorted(place.iterdir()) if one.name != "README.md"])  # the card has no digest
    content = bytearray(file.read_bytes())
    bit = rng.randrange(8 * len(content))
    content[bit // 8] ^= 1 << bit % 8
    file.write_bytes(content)
    try:
        if not rf.recommend(rf.Bundle.load(place), {"u": history}, k=5).to_frame().equals(best):
            faults.append(f"bit {bit} of {file.name} changes a list")
    except InputError as error:
        if not str(error).endswith(".") or "\\n" in str(error):
            faults.append(f"bit {bit} of {file.name}: no sentence")
    except BaseException as error:
        faults.append(f"bit {bit} of {file.name}: {type(error).__name__}")
print(json.dumps(faults))
"""
Counts = Counter[str]


def tables(rng: random.Random, place: Path, cases: int) -> Iterator[str]:
    """Yield the problems of random tables: pairs that Python's csv module did not write, or uncounted lines."""
    for case in range(cases):
        numbers, blanks = rng.random() < 0.5, 0
        out, expected, rows, missing = io.StringIO(), set[tuple[str, str]](), 0, 0
        writer = csv.writer(out, delimiter=rng.choice(",;\t"), lineterminator=rng.choice(["\n", "\r\n"]))
        writer.writerow(["user", "item"])
        for _ in range(rng.randrange(5, 60)):
            pair = [str(rng.randrange(30)) if numbers else f"{rng.choice('abçd')}-{rng.randrange(9)}" for _ in range(2)]
            pair = ["" if rng.random() < 0.05 else text for text in pair]
            if pair == ["", ""]:
                blanks += 1  # an empty row
            else:
                rows, missing = rows + 1, missing + ("" in pair)
            if "" not in pair:
                expected.add((pair[0], pair[1]))
            forms = ("{}", " {}", "{} ", "{}.0") if numbers else ("{}", " {}", "{} ")
            writer.writerow([rng.choice(forms).format(text) if text else text for text in pair])
            if rng.random() < 0.1:
                out.write("\n")
                blanks += 1
        file = place / f"{case}.csv"
        file.write_text(out.getvalue(), encoding="utf-8", newline="")
        preparation = rf.Preparation(min_rating=None, min_items_per_user=0, min_users_per_item=0)
        try:
            data = rf.load(file, preparation, max_bad_share=1.0)
        except Exception as error:
            if expected:
                yield f"table {case}: {type(error).__name__}: {error}"
            continue
        users, items = data.matrix.nonzero()
        users_of, items_of = data.users.to_list(), data.items.to_list()
        found = {(str(users_of[u]), str(items_of[i])) for u, i in zip(users, items, strict=True)}
        if found != expected:
            yield f"table {case}: other pairs: {sorted(found ^ expected)[:5]}"
        told = (data.report.rows, data.report.missing, data.report.blank)
        if told != (rows, missing, blanks):
            yield f"table {case}: {rows} rows, {missing} incomplete, {blanks} blank, but {told} are reported"


@contextmanager
def service(model: Path, events: Path) -> Iterator[tuple[psutil.Process, int]]:
    """Run the command `serve` with two workers."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    words = ["serve", str(model), "--workers", "2", "--events", str(events), "--port", str(port)]
    running = subprocess.Popen(
        [sys.executable, "-m", "recfusion", *words], stderr=subprocess.DEVNULL, start_new_session=True
    )
    try:
        until = time.monotonic() + 120
        while not _lives(port):
            if running.poll() is not None or time.monotonic() > until:
                raise SystemExit("the service did not start")
            time.sleep(0.1)
        yield psutil.Process(running.pid), port
    finally:
        with suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGKILL)
        running.wait()


def _lives(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/live", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def _request(rng: random.Random) -> bytes:
    """Return the bytes of a random request, more or less valid."""
    words = ["{", "}", "[", "]", '"history"', '"i1"', '"k"', ":", ",", "1", "-1", "1e999", "null", '"\\ud800"', "\x00"]
    body = "".join(rng.choice(words) for _ in range(rng.randrange(12)))
    body = rng.choice([body, '{"history": ["i1"], "k": 3}', '{"user": "u", "item": "i1"}', '{"requests": [{}]}'])
    paths = ["/recommend", "/events", "/events/batch", "/items", "/similar", "/model", "/ready", "/static/%00", "/%zz"]
    line = f"{rng.choice(['GET', 'POST', 'PUT', 'DELETE', 'HEAD', 'BREW'])} {rng.choice(paths)}"
    line += rng.choice(["", "?k=1", "?" + "a" * rng.randrange(3000), "?\x7f"]) + rng.choice([" HTTP/1.1", " HTTP/1.0"])
    headers = ["Host: 127.0.0.1", rng.choice(["Content-Type: application/json", "Content-Type: text/plain", "X: y"])]
    length = rng.choice([len(body.encode())] * 6 + [0, 10**9, -1])
    headers.append(rng.choice([f"Content-Length: {length}"] * 4 + ["Transfer-Encoding: chunked"]))
    headers += rng.choices(
        ["Origin: http://[", "Origin: null", "Cookie: a=b", "Authorization: Bearer \xff", ": x"], k=2
    )
    text = "\r\n".join([line, *headers[: rng.randrange(2, 6)], "", body]).encode("utf-8", "replace")
    if rng.random() < 0.2:
        place = rng.randrange(len(text))
        text = text[:place] + rng.randbytes(rng.randrange(4)) + text[place + rng.randrange(3) :]
    return text


def raw_bytes(rng: random.Random, port: int, cases: int, counts: Counts) -> Iterator[str]:
    """Yield the problems of random bytes sent to a service: an answer with 5xx, or none to a client that waits."""
    for case in range(cases):
        sent = b"".join(_request(rng) for _ in range(rng.choice([1, 1, 1, 3])))
        got, began = b"", time.monotonic()
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=HANG) as connection:
                connection.sendall(sent)
                connection.shutdown(socket.SHUT_WR)
                while piece := connection.recv(1 << 16):
                    got += piece
        except TimeoutError:
            counts["hangs"] += 1
            yield f"bytes {case}: no end after {HANG:.0f} s: {sent[:200]!r}"
        except OSError:
            pass  # the service closed a connection whose bytes it did not want
        if time.monotonic() - began > HANG:
            counts["hangs"] += 1
        if b"HTTP/1.1 5" in got:
            yield f"bytes {case}: {got[:100]!r} for {sent[:300]!r}"


def kills(rng: random.Random, parent: psutil.Process, port: int, events: Path, cases: int) -> Iterator[str]:
    """Yield the acknowledged events that are not in the file after kills of workers."""
    acknowledged, rounds = set[str](), max(1, cases // 6)
    for case in range(cases):
        item = f"kill-{case}"
        body = json.dumps({"user": "u", "item": item}).encode()
        asked = urllib.request.Request(
            f"http://127.0.0.1:{port}/events", body, {"Content-Type": "application/json"}, method="POST"
        )
        with suppress(OSError), urllib.request.urlopen(asked, timeout=HANG) as answer:
            if answer.status == 201:
                acknowledged.add(item)
        if case % rounds == rounds // 2:
            with suppress(psutil.Error):  # one has ended and is being replaced
                workers = [one for one in parent.children() if "spawn_main" in " ".join(one.cmdline())]
                if len(workers) == 2:
                    rng.choice(workers).kill()
    with closing(sqlite3.connect(events)) as file:
        kept = {item for (item,) in file.execute("SELECT item FROM events")}
    yield from (f"the event {item} is lost" for item in sorted(acknowledged - kept))
    if len(acknowledged) < cases // 2:
        yield f"only {len(acknowledged)} of {cases} events were acknowledged"


def folders(seed: int, model: Path, place: Path, cases: int, counts: Counts) -> list[str]:
    """Return the problems of model folders with a flipped bit."""
    command = [sys.executable, "-c", FLIPS, str(model), str(place), str(seed), str(cases)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=HANG * cases)
    except subprocess.TimeoutExpired:
        counts["hangs"] += 1
        return ["a folder: no end"]
    if done.returncode:
        counts["aborts"] += 1
        return [f"a folder: exit code {done.returncode}: {done.stderr[-300:]}"]
    return list(json.loads(done.stdout))


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--scale", type=float, default=1.0, help="factor of the numbers of cases")
    options.add_argument("--json", action="store_true", help="print the counts as JSON")
    chosen = options.parse_args()
    numbers = {"tables": 500, "folders": 150, "bytes": 1500, "kills": 300}
    cases = {name: max(6, round(chosen.scale * number)) for name, number in numbers.items()}
    rng, counts = random.Random(chosen.seed), Counter[str]()
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory(prefix="independent-") as name:
        place = Path(name)
        found = list(tables(rng, place, cases["tables"]))
        rows = place / "rows.csv"
        rows.write_text("user,item\n" + "".join(f"u{n % 60},i{n * 7 % 41}\n" for n in range(1500)))
        model = rf.train(rf.EASE(l2=10.0), rf.load(rows), all_users=True).save(place / "model")
        found += folders(chosen.seed, model, place / "flipped", cases["folders"], counts)
        with service(model, place / "events" / "events.sqlite") as (parent, port):
            found += raw_bytes(rng, port, cases["bytes"], counts)
            found += kills(rng, parent, port, place / "events" / "events.sqlite", cases["kills"])
        shutil.rmtree(place / "flipped", ignore_errors=True)
    for line in found[:20]:
        print(line, file=sys.stderr)
    faults = len(found) - counts["hangs"] - counts["aborts"]
    told = {"cases": sum(cases.values()), "faults": faults, "hangs": counts["hangs"], "aborts": counts["aborts"]}
    print(json.dumps(told | {"parts": cases}) if chosen.json else f"{told} of {cases}")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
