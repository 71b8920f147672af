"""The pool of processes: whatever becomes of a task, the others go on, and no process is left."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from recfusion.core.errors import InputError
from recfusion.core.pool import Failure, Pool, RunTask, SendProgress, TaskEvent

Event = tuple[TaskEvent, str, object]


@dataclass(frozen=True)
class Deeds:
    """A job whose tasks are names of what is to be done."""

    answer: int = 42

    def start(self) -> RunTask:
        begun = [os.getpid()]

        def work(task: str, send: SendProgress) -> object:
            what = task.partition(" ")[0]
            if what == "count":
                for number in range(200):
                    send(number)
                return self.answer
            if what == "die":
                send("the last words")
                os._exit(3)
            if what == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            if what == "refuse":
                raise InputError("Expected more.")
            if what == "break":
                raise KeyError("lost")
            if what == "fill":
                raise MemoryError
            if what == "sleep":
                send(os.getpid())
                time.sleep(600)
            if what == "look":
                blocked = signal.pthread_sigmask(signal.SIG_BLOCK, [])
                waiting = [os.environ[name] for name in ("OMP_WAIT_POLICY", "OPENBLAS_THREAD_TIMEOUT")]
                return os.environ["OMP_NUM_THREADS"], waiting, signal.SIGINT in blocked
            return begun[0]

        return work


def run(
    tasks: Sequence[str],
    workers: int,
    *,
    here: Callable[[str], bool] = lambda task: False,
    on_event: Callable[[TaskEvent, str, object], None] = lambda kind, task, message: None,
    seconds: float = float("inf"),
) -> list[Event]:
    """Return all that a pool tells of these tasks; no process may be left of it."""
    left, events = list(tasks), list[Event]()

    def hear(kind: TaskEvent, task: str, message: object) -> None:
        events.append((kind, task, message))
        on_event(kind, task, message)

    def following() -> str | None:
        return left.pop(0) if left else None

    try:
        Pool(Deeds(), Deeds(), following, hear, workers, 3, runs_here=here, seconds=seconds).run()
    finally:
        assert multiprocessing.active_children() == []
    return events


def ends(events: Sequence[Event]) -> dict[str, Any]:
    return {task: message for kind, task, message in events if kind == "ended"}


def test_whatever_becomes_of_a_task_the_next_one_is_done() -> None:
    events = run(["count", "die", "refuse", "kill", "break", "fill", "pid"], 1)
    found = ends(events)
    assert [task for kind, task, _ in events if kind == "ended"] == list(found)
    assert found["count"] == 42
    assert found["die"] == Failure("Its process was ended with exit code 3.")
    assert found["refuse"] == Failure("Expected more.")
    assert found["kill"] == Failure("Its process was ended by signal 9, possibly out of memory.")
    assert found["break"].reason == "KeyError: 'lost'"
    assert "Traceback" in found["break"].details
    assert found["fill"] == Failure("There is not enough memory for it: use fewer workers or a larger machine.")
    assert found["pid"] not in (None, os.getpid())


def test_what_a_task_tells_arrives_in_order_and_before_its_end() -> None:
    events = run(["count a", "count b", "count c"], 2)
    for task in ("count a", "count b", "count c"):
        its = [(kind, message) for kind, name, message in events if name == task]
        assert its == [("started", None), *(("progress", number) for number in range(200)), ("ended", 42)]


def test_the_last_words_of_a_process_that_dies_are_heard() -> None:
    told = [message for kind, _, message in run(["die"], 1) if kind == "progress"]
    assert told == ["the last words"]


def test_tasks_that_belong_here_are_done_here_and_the_others_elsewhere() -> None:
    found = ends(run(["pid a", "pid here", "pid b", "break here", "pid c"], 1, here=lambda task: "here" in task))
    assert found["pid here"] == os.getpid()
    assert found["break here"].reason == "KeyError: 'lost'"
    assert len({found["pid a"], found["pid b"], found["pid c"]}) == 1  # one process, started once
    assert found["pid a"] != os.getpid()


def test_without_workers_all_is_done_here() -> None:
    assert ends(run(["pid", "refuse", "count"], 0)) == {
        "pid": os.getpid(),
        "refuse": Failure("Expected more."),
        "count": 42,
    }
    assert run([], 0) == run([], 2) == []


def test_a_task_is_asked_for_after_the_ends_before_it_are_known() -> None:
    known: list[str] = []
    asked: list[list[str]] = []
    tasks = ["pid a", "refuse", "pid b"]

    def following() -> str | None:
        asked.append(list(known))
        return tasks.pop(0) if tasks else None

    def hear(kind: TaskEvent, task: str, message: object) -> None:
        if kind == "ended":
            known.append(task)

    Pool(Deeds(), Deeds(), following, hear, workers=1, threads=1).run()
    assert asked == [[], ["pid a"], ["pid a", "refuse"], ["pid a", "refuse", "pid b"]]


def test_those_at_work_when_the_time_is_over_are_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    now: list[float] = [0.0]
    pids: list[int] = []

    def late(kind: TaskEvent, task: str, message: object) -> None:
        if kind == "progress":
            assert isinstance(message, int)
            pids.append(message)
            now[0] = 100.0 * (len(pids) == 2)  # as soon as both are at work

    monkeypatch.setattr("recfusion.core.pool.time", SimpleNamespace(monotonic=lambda: now[0]))
    events = run(["sleep a", "sleep b", "pid"], 2, on_event=late, seconds=99)
    assert [task for kind, task, _ in events if kind == "started"] == ["sleep a", "sleep b"]
    assert ends(events) == {}
    assert not any(psutil.pid_exists(pid) for pid in pids)


def test_no_task_begins_after_the_time_is_over() -> None:
    assert run(["pid"], 0, seconds=0) == run(["pid"], 1, seconds=0) == []


def test_an_interrupt_leaves_no_process() -> None:
    def interrupt(kind: TaskEvent, task: str, message: object) -> None:
        if kind == "progress":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(["sleep"], 1, on_event=interrupt)


def test_a_process_has_its_share_of_threads_which_sleep_while_they_wait_and_leaves_ctrl_c_to_us(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A variable that the user has set stays as it is."""
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    monkeypatch.setenv("OPENBLAS_THREAD_TIMEOUT", "7")
    before = dict(os.environ)
    assert ends(run(["look"], 1)) == {"look": ("3", ["PASSIVE", "7"], True)}
    assert dict(os.environ) == before
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])


_SCRIPT = """
import test_pool
if __name__ == "__main__":
    test_pool.run(["sleep"], 1, on_event=lambda kind, task, told: kind == "progress" and print(told, flush=True))
"""


def test_a_worker_ends_when_the_process_that_started_it_is_killed(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(_SCRIPT)
    path = os.pathsep.join([str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    parent = subprocess.Popen(
        [sys.executable, str(script)], stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": path}
    )
    assert parent.stdout is not None
    worker = psutil.Process(int(parent.stdout.readline()))
    parent.kill()
    parent.wait()
    _, alive = psutil.wait_procs([worker], timeout=60)
    left = [one for one in alive if one.status() != psutil.STATUS_ZOMBIE]
    for one in left:
        one.kill()
    parent.stdout.close()
    assert left == []
