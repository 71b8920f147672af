"""The longest silence of commands on a terminal: before the first output, and from one output to the next or the end.

    .venv/bin/python benchmarks/silence.py --out benchmarks/silence.json

Each command runs on a pseudo-terminal with the embedded movies. An output is text or a step of a progress display;
`after` is the text before the longest gap. `serve` ends when it is ready. Seconds are medians of the rounds.
"""

import argparse
import json
import os
import pty
import re
import select
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from start_up import free_port

CODES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\s")
LINEAR = ["train", "thinning-linear", "--updatable"]
HISTORY = "318,356,296"


def watched(arguments: list[str], port: int = 0) -> dict[str, Any]:
    """Run a command on a terminal until it ends, or until a service is ready on a port, and return its silences."""
    ours, theirs = pty.openpty()
    environment = os.environ | {"COLUMNS": "120", "TERM": "xterm"}
    command = [sys.executable, "-m", "recfusion", *arguments]
    began, moments, texts = time.monotonic(), [0.0], [""]
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    while True:
        shown = ""
        if select.select([ours], [], [], 0.01)[0]:
            try:
                shown = os.read(ours, 1 << 16).decode(errors="replace")
            except OSError:  # the terminal was closed: the command has ended
                break
        if CODES.sub("", shown):
            moments.append(time.monotonic() - began)
            texts.append(re.sub(CODES.pattern.partition("|")[0], "", shown).split("\n")[-1].strip() or shown.strip())
        if port:
            with suppress(OSError), urlopen(f"http://127.0.0.1:{port}/ready", timeout=1):
                break
    moments.append(time.monotonic() - began)
    if port:
        process.send_signal(signal.SIGINT)
    process.wait()
    os.close(ours)
    if process.returncode and not port:
        sys.exit(f"{' '.join(command)} ended with {process.returncode}: {texts[-1]}")
    gaps = [later - earlier for earlier, later in pairwise(moments)]
    longest = max(range(1, len(gaps)), key=gaps.__getitem__)
    return {"first": gaps[0], "longest": gaps[longest], "after": texts[longest], "seconds": moments[-1]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    found: dict[str, list[dict[str, Any]]] = {}
    load = [os.getloadavg()[0]]
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary)
        (place / "new.csv").write_text(
            "userId,movieId,rating\n" + "".join(f"new,{i},5\n" for i in (1, 260, 296, 318, 356))
        )
        for number in range(options.rounds):
            port, model, default = free_port(), str(place / f"linear{number}"), str(place / f"default{number}")
            for name, arguments in {
                "train thinning": ["train", "thinning", "--out", default],
                "train thinning-linear": [*LINEAR, "--out", model],
                "update": ["update", model, "--rows", str(place / "new.csv"), "--out", f"{model}-new"],
                "recommend, thinning": ["recommend", default, "--history", HISTORY],
                "recommend, thinning-linear": ["recommend", model, "--history", HISTORY],
                "serve, thinning": ["serve", default, "--port", str(port)],
                "serve, thinning-linear": ["serve", model, "--port", str(port)],
            }.items():
                found.setdefault(name, []).append(watched(arguments, port if arguments[0] == "serve" else 0))
                print(name, found[name][-1], file=sys.stderr, flush=True)
    load.append(os.getloadavg()[0])
    rows = {}
    for name, values in found.items():
        middle = sorted(values, key=lambda each: each["longest"])[len(values) // 2]
        medians = {key: statistics.median(each[key] for each in values) for key in ("first", "longest", "seconds")}
        rows[name] = {**{key: round(value, 2) for key, value in medians.items()}, "after": middle["after"]}
    text = json.dumps({"rounds": options.rounds, "load": load, "rows": rows}, indent=2, ensure_ascii=False)
    print(text)
    if options.out is not None:
        options.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
