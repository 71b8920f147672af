"""Time from a command to its answer, in a fresh process each, against `python -c pass` in the same rounds.

    .venv/bin/python benchmarks/start_up.py --out benchmarks/start_up.json

`--program FILE` measures the `recfusion` of another environment. The model is `thinning-linear` of the embedded movies;
imports are those of the modules of `recommend`.
"""

import argparse
import json
import os
import resource
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "POLARS_MAX_THREADS"), "1")
ENVIRONMENT = os.environ | ONE_THREAD


def timed(command: list[str]) -> tuple[float, float]:
    """Return the seconds and the CPU seconds of a command."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, env=ENVIRONMENT, capture_output=True, check=True)
    seconds, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def free_port() -> int:
    """Return a port that no program listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def ready(command: list[str]) -> tuple[float, float]:
    """Return the seconds until a service is ready, and its CPU seconds until it has ended."""
    port = free_port()
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    with subprocess.Popen(
        [*command, "--port", str(port)], env=ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as service:
        seconds = None
        while seconds is None and time.perf_counter() - start < 120:
            with suppress(URLError, OSError), urlopen(f"http://127.0.0.1:{port}/ready", timeout=5):
                seconds = time.perf_counter() - start
            time.sleep(0.01)
        service.terminate()
        service.wait(30)
    if seconds is None:
        sys.exit("The service was not ready within two minutes.")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=Path, default=Path(sys.executable).with_name("recfusion"))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    program, python = str(options.program), str(options.program.with_name("python"))
    with tempfile.TemporaryDirectory() as temporary:
        folder = str(Path(temporary) / "model")
        timed([program, "train", "thinning-linear", "--all-users", "--out", folder])
        cases: dict[str, tuple[Callable[[list[str]], tuple[float, float]], list[str]]] = {
            "python -c pass": (timed, [python, "-c", "pass"]),
            "recfusion --help": (timed, [program, "--help"]),
            "recfusion models": (timed, [program, "models"]),
            "recfusion recommend": (timed, [program, "recommend", folder, "--history", "318,356,296"]),
            "its imports": (timed, [python, "-c", "import recfusion.cli.recommend"]),
            "recfusion serve, until ready": (ready, [program, "serve", folder]),
        }
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in cases}
        for _ in range(options.rounds):
            for name, (measure, command) in cases.items():
                found[name].append(measure(command))
    peer = min(cpu for _, cpu in found["python -c pass"])
    rows = {
        name: {
            "seconds": round(statistics.median(seconds for seconds, _ in values), 3),
            "best_seconds": round(min(seconds for seconds, _ in values), 3),
            "cpu_seconds": round(statistics.median(cpu for _, cpu in values), 3),
            "best_cpu_seconds": round(min(cpu for _, cpu in values), 3),
            "cpu_times_python": round(min(cpu for _, cpu in values) / peer, 1),
        }
        for name, values in found.items()
    }
    document = {"rounds": options.rounds, "load": os.getloadavg()[0], "rows": rows}
    text = json.dumps(document, indent=2)
    print(text)
    if options.out is not None:
        options.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
