"""Test readers, folders, texts and commands with random hostile input: `python scripts/fuzz.py --seconds 600`.

Each case must work or raise an `InputError` of one sentence. Anything else is a finding: another exception, a crash of
the interpreter, a case that takes a minute, unbounded memory, an input line that is neither read nor counted, a list
that breaks its filters. The files of a finding are kept in a folder, and its seed reproduces it.
"""

import argparse
import faulthandler
import json
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

# Libraries read these variables when they are loaded.
os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "POLARS_MAX_THREADS"), "1")

import fuzz_bytes
import fuzz_control
import fuzz_data
import fuzz_folders
import fuzz_texts
import numpy as np
import polars as pl

from recfusion.core.errors import InputError

Target: TypeAlias = Callable[[np.random.Generator, Path], None]
TARGETS: Mapping[str, Target] = {
    **fuzz_data.TARGETS,
    **fuzz_folders.TARGETS,
    **fuzz_texts.TARGETS,
    **fuzz_control.TARGETS,
    **fuzz_bytes.TARGETS,
}
LONGEST_MESSAGE = 3000
SECONDS = 60  # that one case may take
BYTES = 6 << 30  # of address space, libraries and threads included
BATCH = 2000  # cases of one process
_DIED, _HUNG = "the interpreter died", "the case took too long"


def outcome(target: Target, seed: int, folder: Path) -> tuple[str, str]:
    """Return the outcome of a case and its problem (empty if there is none)."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            target(np.random.default_rng(seed), folder)
    except InputError as error:
        return "refused", wrong_sentence(str(error))
    except (Exception, pl.exceptions.PanicException) as error:
        own = [frame for frame in traceback.extract_tb(error.__traceback__) if "recfusion" in frame.filename]
        where = f" ({Path(own[-1].filename).name}:{own[-1].lineno})" if own else ""
        return "failed", f"{type(error).__name__}{where}: {error}"[:400]
    return "worked", ""


def wrong_sentence(text: str) -> str:
    """Return the problem of an error message (empty if there is none)."""
    whole = text.endswith(".") and "\n" not in text and len(text) <= LONGEST_MESSAGE
    return "" if whole else f"not one sentence: {text[:200]!r}"


def fuzz(
    names: Sequence[str], first: int, cases: int, end: float, keep: Path, started: Path | None = None
) -> tuple[Counter[str], list[str]]:
    """Run cases with the seeds from `first` on, targets in turn; return the outcomes and the findings.

    The file `started` holds the current case and the results so far, in case this process crashes.
    """
    counts: Counter[str] = Counter()
    wrong: list[str] = []
    for seed in range(first, first + cases):
        if time.monotonic() > end:
            break
        name = names[seed % len(names)]
        folder = keep / f"{name}-{seed}"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        if started is not None:
            started.write_text(json.dumps([name, seed, counts, wrong]))
        # Signals do not interrupt native loops; this ends the process and keeps the folder.
        faulthandler.dump_traceback_later(SECONDS, exit=True, file=sys.__stderr__ or 2)
        became, problem = outcome(TARGETS[name], seed, folder)
        faulthandler.cancel_dump_traceback_later()
        counts[f"{name} {became}"] += 1
        if problem:
            wrong.append(f"{name}, seed {seed}: {problem}")
        else:
            shutil.rmtree(folder)
    return counts, wrong


def in_processes(names: Sequence[str], first: int, cases: int, seconds: float, keep: Path) -> list[str]:
    """Run cases in successive processes, so that a crash is only a finding; return the findings."""
    end, last = time.monotonic() + seconds, first + cases
    counts: Counter[str] = Counter()
    wrong: list[str] = []
    with tempfile.TemporaryDirectory() as place:
        started, result = Path(place) / "started", Path(place) / "result"
        while first < last and (left := end - time.monotonic()) > 0:
            batch = min(BATCH, last - first)
            given = [*names, "--seed", first, "--cases", batch, "--seconds", left, "--keep", keep, "--inside", place]
            result.unlink(missing_ok=True)
            ended = subprocess.run([sys.executable, __file__, *map(str, given)], check=False)
            if result.exists():
                found, problems = json.loads(result.read_text())
                counts.update(found)
                wrong += problems
                first += batch
            else:
                name, seed, found, problems = json.loads(started.read_text())
                died = ended.returncode < 0  # by a signal; faulthandler ends a slow case with an exit code
                counts.update({**found, f"{name} {'died' if died else 'hung'}": 1})
                wrong += [*problems, f"{name}, seed {seed}: {_DIED if died else _HUNG}"]
                first = seed + 1
    print_table(counts)
    return wrong


def print_table(counts: Counter[str]) -> None:
    """Print the number of cases of each target and outcome."""
    kinds = ("worked", "refused", "failed", "hung", "died")
    print(f"{'target':12}" + "".join(f"{kind:>10}" for kind in kinds))
    for name in dict.fromkeys(key.split()[0] for key in counts):
        print(f"{name:12}" + "".join(f"{counts[f'{name} {kind}']:10,}" for kind in kinds))
    print(f"{counts.total():,} cases")


def limit_memory() -> None:
    """Limit the memory of this process, so that an unbounded allocation fails."""
    try:
        import resource
    except ImportError:  # not available on this system
        return
    resource.setrlimit(resource.RLIMIT_AS, (BYTES, resource.RLIM_INFINITY))


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("target", nargs="*", help=f"default: all of {', '.join(TARGETS)}")
    options.add_argument("--cases", type=int, default=10**9, help="maximal number of cases")
    options.add_argument("--seconds", type=float, default=60.0, help="maximal time")
    options.add_argument(
        "--seed", type=int, default=0, help="seed of the first case; the next cases have the next seeds"
    )
    options.add_argument("--keep", type=Path, default=Path("fuzz-findings"), help="folder for the files of findings")
    options.add_argument("--inside", type=Path, help=argparse.SUPPRESS)
    chosen = options.parse_args()
    if unknown := set(chosen.target) - set(TARGETS):
        options.error(f"unknown target {', '.join(sorted(unknown))}: choose from {', '.join(TARGETS)}")
    names = chosen.target or list(TARGETS)
    logging.disable(logging.WARNING)
    if chosen.inside:
        limit_memory()
        end = time.monotonic() + chosen.seconds
        found = fuzz(names, chosen.seed, chosen.cases, end, chosen.keep, chosen.inside / "started")
        (chosen.inside / "result").write_text(json.dumps(found))
        return 0
    wrong = in_processes(names, chosen.seed, chosen.cases, chosen.seconds, chosen.keep)
    for line in wrong:
        print(line)
    if chosen.keep.is_dir() and not any(chosen.keep.iterdir()):
        chosen.keep.rmdir()
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
