"""Test every command that writes files against failures of each system call.

`python scripts/faults.py` runs each command once for each of its system calls on its folder and each possible fault of
that call, then once more without a fault, and checks the folder after each run.
"""

import argparse
import gc
import importlib
import itertools
import json
import multiprocessing
import os
import re
import shutil
import signal
import sqlite3
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal, TypeAlias, TypeVar

# A process with threads cannot be forked; libraries read these variables when they are loaded.
os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "POLARS_MAX_THREADS"), "1")
sys.dont_write_bytecode = True

from fault_cases import CASES, EVENTS, INPUTS, Case, Offer, program, serve, write_inputs  # noqa: E402
from faulty_calls import FAULTS, RANDOM, Call, Fault, run_to_the_end, traced, why_not  # noqa: E402

T = TypeVar("T")
Tree: TypeAlias = dict[str, bytes]  # path -> content of all files in a folder, and hidden folders
Verdict: TypeAlias = Literal["old", "new", "between", "torn"]
_DEADLY = ("KILL", "TORN")
_LARGE = ("torch", "recfusion.cli.compare", "recfusion.cli.train", "recfusion.server.service")


@dataclass(frozen=True)
class Known:
    """A case and its outcome without a fault."""

    case: Case
    start: Path  # the folder before the command
    new: Tree
    calls: tuple[Call, ...]


@dataclass(frozen=True)
class Tried:
    """The outcome of a fault at a call."""

    case: str
    fault: Fault
    call: Call
    hit: bool
    verdict: Verdict = "old"
    left: bool = False  # a hidden file or folder was left until the next run
    wrong: tuple[str, ...] = ()


def tree(folder: Path) -> Tree:
    """Return all files below a folder."""
    found: Tree = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_file():
            if not name.startswith(f"{EVENTS}-"):  # SQLite's other files belong to the events file
                found[name] = recorded(path) if name == EVENTS else path.read_bytes()
        elif _is_hidden(name):
            found[f"{name}/"] = b""
    return found


def recorded(path: Path) -> bytes:
    """Return the events in a file, one per line, as the next process would read them, without changing the file."""
    with tempfile.TemporaryDirectory(prefix="faults-") as place:
        for file in path.parent.glob(f"{EVENTS}*"):
            shutil.copy(file, place)
        with suppress(sqlite3.OperationalError):  # no table yet
            with closing(sqlite3.connect(Path(place) / EVENTS)) as found:
                rows = found.execute("SELECT user, item, kind FROM events ORDER BY id").fetchall()
            return "".join(f"{' '.join(row)}\n" for row in rows).encode()
    return b""


def judged(case: Case, old: Tree, new: Tree, found: Tree, *, may_be_cut: bool) -> tuple[Verdict, list[str]]:
    """Return the state of the outputs and the problems of the folder."""
    wrong, states = [], set()
    for output in case.outputs:
        if _part(old, output) == _part(new, output) == _part(found, output):
            continue  # the command does not change it
        state = _state(output, old, new, found, may_be_cut=may_be_cut)
        states.add(state)
        if state == "torn":
            wrong.append(f"{output} is torn")
    mine = (*case.outputs, *case.keeps)
    others = [name for name in sorted(old.keys() | found.keys()) if not _below(name, *mine) and not _is_hidden(name)]
    wrong += [f"{name} was touched" for name in others if old.get(name) != found.get(name)]
    verdict: Verdict = (
        "torn" if "torn" in states else "between" if len(states) > 1 else states.pop() if states else "new"
    )
    return verdict, wrong


def _state(output: str, old: Tree, new: Tree, found: Tree, *, may_be_cut: bool) -> Verdict:
    was, is_, will = (_part(whole, output) for whole in (old, found, new))
    if is_ in (was, will):
        return "old" if is_ == was else "new"
    if was and not is_ and may_be_cut:  # moved away because folders cannot be swapped; the next run restores it
        hidden = {place: _hidden(output, place, found) for place in ("old", "older", "new")}
        return "new" if will == hidden["new"] else "old" if was in (hidden["old"], hidden["older"]) else "torn"
    if output.endswith(("results.jsonl", "tiny.jsonl", "trials.jsonl", "nights.jsonl", EVENTS)):
        lines, before, after = (part.get(output, b"") for part in (is_, was, will))
        if lines.startswith(before) and after.startswith(lines) and (may_be_cut or not lines or lines.endswith(b"\n")):
            return "between"  # some complete lines; the next run removes an incomplete last one
    return "torn"


def _hidden(output: str, place: str, found: Tree) -> Tree:
    """Return the files of a sub-folder of a hidden folder, under the name of the output."""
    parts = {name: name.partition(f"/{place}/") for name in found if _is_hidden(name) and f"/{place}/" in name[:-1]}
    return {f"{output}/{rest}": found[name] for name, (_, _, rest) in parts.items()}


NextRuns: TypeAlias = dict[tuple[str, frozenset[tuple[str, bytes]]], str]  # case and folder -> problem


def try_fault(known: Known, fault: Fault, call: Call, offer: Offer, next_runs: NextRuns) -> Tried:
    """Run a case with a fault at a call, then again without one, and return the problems."""
    case, old = known.case, tree(known.start)
    with _copy(known.start) as (folder, log):
        ended = traced(program(case.command, folder, offer, log, exchanges=case.exchanges), folder, call, fault)
        if not ended.hit:
            return Tried(case.name, fault, call, hit=False)
        after, text = tree(folder), log.read_text()
        verdict, wrong = judged(case, old, known.new, after, may_be_cut=fault in ("KILL", "TORN", "DEAD"))
        wrong += [f"{path} was written to" for path in ended.outside if not path.startswith(f"{folder.parent}/")]
        unchanged = [output for output in case.outputs if _state(output, old, old, after, may_be_cut=True) == "old"]
        wrong += _wrong_end(case, fault, ended.code, verdict, text, unchanged)
        acknowledged = re.findall(r"^acknowledged (\S+)$", text, re.MULTILINE)
        wrong += [
            f"{one} was acknowledged and is lost" for one in acknowledged if one.encode() not in after.get(EVENTS, b"")
        ]
        key = (case.name, frozenset((RANDOM.sub("", name), content) for name, content in after.items()))
        if key not in next_runs:  # it depends only on the folder
            code = alone(program(f"{case.command} {case.again}", folder, offer, log, exchanges=case.exchanges))
            differing = {name for name, _ in tree(folder).items() ^ known.new.items()}
            differ = sorted(name for name in differing if not _below(name, *case.renews))
            next_runs[key] = f"the next run: exit code {code}, {differ} differ, {_last(log.read_text())}"
            next_runs[key] = next_runs[key] if code or differ else ""
        wrong += filter(None, [next_runs[key]])
        return Tried(case.name, fault, call, True, verdict, any(map(_is_hidden, after)), tuple(wrong))


def _wrong_end(
    case: Case, fault: Fault, code: int, verdict: Verdict, text: str, unchanged: Sequence[str]
) -> Iterator[str]:
    """Yield the problems of a command's exit code and output."""
    if fault in _DEADLY:
        if code != -signal.SIGKILL:
            yield f"was not killed but ended with exit code {code}"
        return
    if "Traceback" in text or "panicked" in text:
        yield f"traceback: {_last(text)}"
    elif code == 0 and verdict != "new":
        yield f"exit code 0, but the state is {verdict}"
    elif code not in (0, 2):
        yield f"exit code {code}: {_last(text)}"
    elif code == 2 and (f"\n{text}".count("\nError: ") != 1 or not re.search(r"^Error: .*\.\n\Z", text, re.MULTILINE)):
        yield f"the error is not one sentence: {text[-300:]!r}"
    elif code == 2 and "The old content is unchanged" in text:
        for output in case.outputs:
            if f"{output}'" in text and output not in unchanged:
                yield f"claims to be unchanged, but is not: {_last(text)}"


def alone(run: Callable[[], int]) -> int:
    """Run a function in a separate process and return its exit code."""
    child = os.fork()
    if not child:
        run_to_the_end(run)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def learn(case: Case, inputs: Path, folder: Path, offer: Offer) -> Known:
    """Run a case without a fault and return its calls and result."""
    start = folder / case.name.replace(" ", "-")
    shutil.copytree(inputs, start)
    if case.before:
        _preload(alone, program(case.before, start, offer, folder / "log"), folder / "log")
    with _copy(start) as (copy, log):
        run = program(case.command, copy, offer, log, exchanges=case.exchanges)
        ended = _preload(lambda listed: traced(listed, copy), run, log)
        return Known(case, start, tree(copy), tuple(ended.calls))


def _preload(runner: Callable[[Callable[[], int]], T], run: Callable[[], int], log: Path) -> T:
    """Run a command, which must succeed, and import its modules here, so that later runs need not import them again."""
    names = log.with_name("modules")
    names.unlink(missing_ok=True)

    def listed() -> int:
        code = run()
        if not code:
            names.write_text(json.dumps(list(sys.modules)))
        return code

    ended = runner(listed)
    if not names.exists():
        raise SystemExit(f"A command fails without any fault:\n{log.read_text()}")
    for name in json.loads(names.read_text()):
        with suppress(ImportError):
            importlib.import_module(name)
    return ended


@contextmanager
def _copy(start: Path) -> Iterator[tuple[Path, Path]]:
    """Yield a copy of a folder and the path of a file for the output."""
    with tempfile.TemporaryDirectory(prefix="faults-", ignore_cleanup_errors=True) as place:
        shutil.copytree(start, Path(place).resolve() / "box")
        yield Path(place).resolve() / "box", Path(place) / "log"


def _below(name: str, *places: str) -> bool:
    return any(name == place or name.startswith(f"{place}/") for place in places)


def _part(whole: Tree, output: str) -> Tree:
    return {name: content for name, content in whole.items() if _below(name, output)}


def _is_hidden(name: str) -> bool:
    return any(part.startswith(".") and ".tmp-" in part for part in name.split("/"))


def _last(text: str) -> str:
    return (text.strip().splitlines() or [""])[-1]


def _try_all(points: Sequence[tuple[Known, Fault, Call]], offer: Offer) -> list[Tried]:
    next_runs: NextRuns = {}
    return [try_fault(*point, offer, next_runs) for point in points]


def enumerate_faults(
    cases: Sequence[Case], faults: Sequence[Fault], sample: int | None, jobs: int
) -> tuple[list[Known], list[Tried]]:
    """Try each fault at each call of the cases, or at an evenly spread sample of them, in several processes."""
    with tempfile.TemporaryDirectory(prefix="faults-") as place:
        folder, offer = Path(place).resolve(), serve()
        try:
            for name in _LARGE:  # imported once here instead of by each first command
                importlib.import_module(name)
            inputs = folder / "inputs"
            inputs.mkdir()
            write_inputs(inputs)
            for command in INPUTS:
                _preload(alone, program(command, inputs, offer, folder / "log"), folder / "log")
            known = [learn(case, inputs, folder, offer) for case in cases]
            points = [
                (one, fault, call) for one in known for fault in faults for call in one.calls if call.takes(fault)
            ]
            count = min(len(points), sample or len(points))
            chosen = [points[place * len(points) // count] for place in range(count)]
            shares = [chosen[start::jobs] for start in range(jobs)]
            gc.freeze()  # otherwise each garbage collection in a fork copies all imported objects
            with multiprocessing.get_context("fork").Pool(jobs) as pool:
                tried = pool.map(partial(_try_all, offer=offer), shares)
            return known, sorted(itertools.chain(*tried), key=lambda one: [case.name for case in cases].index(one.case))
        finally:
            os.kill(offer.process, signal.SIGKILL)
            os.waitpid(offer.process, 0)


def print_table(known: Sequence[Known], tried: Sequence[Tried]) -> None:
    heads = ("calls", "points", "not hit", "old", "new", "between", "torn", "left", "wrong")
    print(f"{'command':18}" + "".join(f"{head:>9}" for head in heads))
    total: Counter[str] = Counter()
    for one in known:
        its = [point for point in tried if point.case == one.case.name]
        found: Counter[str] = Counter(point.verdict for point in its if point.hit)
        counts: dict[str, int] = {"calls": len(one.calls), "points": len(its), **found}
        counts |= {"not hit": sum(not point.hit for point in its), "left": sum(point.left for point in its)}
        counts |= {"wrong": sum(bool(point.wrong) for point in its)}
        total.update(counts)
        print(f"{one.case.name:18}" + "".join(f"{counts.get(head, 0):9,}" for head in heads))
    print(f"{'all':18}" + "".join(f"{total[head]:9,}" for head in heads))


def main() -> int:
    names = sorted({case.name.split()[0] for case in CASES})
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--command", action="append", choices=names, help="only this one (repeatable)")
    parser.add_argument("--fault", action="append", choices=FAULTS, help="only this one (repeatable)")
    parser.add_argument("--sample", type=int, help="try only this number of points, evenly spread")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="number of parallel processes")
    options = parser.parse_args()
    if reason := why_not():
        print(f"Cannot run here: {reason}.")
        return 2
    began = time.monotonic()
    cases = [case for case in CASES if case.name.split()[0] in (options.command or names)]
    known, tried = enumerate_faults(cases, options.fault or FAULTS, options.sample, options.jobs)
    print_table(known, tried)
    for one in tried:
        for wrong in one.wrong or (() if one.hit else ("not hit",)):
            print(f"{one.case}, {one.fault} at {one.call}: {wrong}")
    print(f"{len(tried):,} points in {time.monotonic() - began:.0f} s")
    return int(any(one.wrong or not one.hit for one in tried))


if __name__ == "__main__":
    sys.exit(main())
