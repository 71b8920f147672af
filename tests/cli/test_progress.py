"""What commands show while they train: the part of a mixture, epochs, elapsed time and the time that is left."""

import os
import pty
import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

import recfusion as rf
from recfusion.cli.output import live, seconds_left, training
from recfusion.core.steps import listening
from recfusion.core.steps import log as steps
from recfusion.data.interactions import Interactions
from recfusion.experiments.candidate import Candidate
from recfusion.experiments.run import Event, run_candidates
from recfusion.training.epoch import Epoch

SMALL = {"members": "ease,item-knn", "use_signals": False}


@contextmanager
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Make standard error a terminal with 120 columns, and yield its other end."""
    ours, theirs = pty.openpty()
    os.set_blocking(ours, False)
    with os.fdopen(theirs, "w") as stream, monkeypatch.context() as patch:
        patch.setenv("COLUMNS", "120")
        patch.setenv("TERM", "xterm")
        patch.setattr(sys, "stderr", stream)
        yield ours
    os.close(ours)


def wait_for(pattern: str, end: int) -> None:
    """Wait until a terminal has shown a text; codes that move its cursor are left out."""
    shown = b""
    for _ in range(600):
        with suppress(BlockingIOError):
            shown += os.read(end, 1 << 16)
        if re.search(pattern, re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.decode(errors="replace"))):
            return
        time.sleep(0.05)
    pytest.fail(f"{pattern} is not in {shown!r}")


def test_a_training_shows_its_part_its_epoch_and_the_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    with terminal(monkeypatch) as end, training("Training thinning on 9 items", 600) as show:
        steps.info("%s, part %d of %d", "ials", 2, 5)
        wait_for(r"0:00:\d\d about (10:00|9:\d\d) left Training thinning: ials, part 2 of 5", end)
        show(Epoch(3, 20, 0.5, 0.25, 0.25, 3, 1.0))
        wait_for("ials, part 2 of 5, epoch 3/20: loss 0.5, validation", end)


def test_a_terminal_counts_on_without_news(monkeypatch: pytest.MonkeyPatch) -> None:
    with terminal(monkeypatch) as end, training("Training ease", 0.5):
        wait_for(r"0:00:0[1-9] 0:0[1-9] over the forecast Training ease", end)
    with terminal(monkeypatch) as end, live("Running") as view:
        view.now(1, 6, "ease/0", 90)
        wait_for(r"1/6 0:00:0[1-9] about 1:2\d left +ease/0", end)


def test_the_time_left_is_told_in_words() -> None:
    assert seconds_left(75) == "about 1:15 left"
    assert seconds_left(-75) == "1:15 over the forecast"


def test_a_mixture_names_each_part_that_it_fits(groups: Interactions) -> None:
    heard: list[str] = []
    with listening(heard.append):
        rf.train("thinning", groups, SMALL, all_users=True)
    parts = ["ease, part 1 of 2", "item-knn, part 2 of 2", "weights of 2 parts"]
    assert heard == [*parts, "evaluation", "fit on all users", *heard[5:]]
    assert "part 1 of" in heard[5]
    steps.info("nobody listens")
    assert heard[-1] != "nobody listens"


@pytest.mark.parametrize("workers", [0, 1])
def test_a_run_tells_the_parts_of_its_fits_and_forecasts_its_end(groups: Interactions, workers: int) -> None:
    events: list[Event] = []
    candidate = Candidate.of("mine", "thinning", SMALL)
    plan = rf.SplitPlan()
    run_candidates(groups, [(candidate, [0])], plan=plan, metrics=["ndcg@10"], workers=workers, on_event=events.append)
    told = [list(event.status.steps.values()) for event in events if event.kind == "step"]
    assert told[:2] == [["ease, part 1 of 2"], ["item-knn, part 2 of 2"]]
    assert events[0].status.seconds_left is not None  # the forecast of a model that was never fitted
    assert events[-1].status.steps == {}
