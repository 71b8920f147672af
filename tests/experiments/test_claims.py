"""Several runs on one store at the same time: each fit is done once, and those of a killed run are taken over."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from recfusion.experiments.result import read_results

pytest.importorskip("fcntl")
SLOW = '''
import os, time
from dataclasses import dataclass
import numpy as np
from recfusion import Recommender
from recfusion.models.settings import learned

@dataclass
class Slow(Recommender):
    """The most popular items, after some seconds."""

    counts_: np.ndarray = learned()

    def fit(self, train, valid=None, *, rng=None):
        with open("fits.log", "a") as log:
            log.write(f"{os.getpid()}\\n")
        time.sleep(float(os.environ["SECONDS"]))
        self.counts_ = np.asarray(train.sum(axis=0), np.float32)
        return self

    def score(self, history):
        return np.tile(self.counts_, (history.shape[0], 1))
'''
FITS = 6


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    pairs = [(user, item) for user in range(60) for item in range(user % 4, 20, 3)]
    (tmp_path / "rows.csv").write_text("user,item\n" + "".join(f"{user},{item}\n" for user, item in pairs))
    (tmp_path / "slow.py").write_text(SLOW)
    return tmp_path


def start(folder: Path, seconds: float, workers: int = 0) -> "subprocess.Popen[str]":
    """Start a comparison whose fits take some seconds."""
    words = f"compare --models slow.py:Slow --data rows.csv --splits {FITS} --out store.jsonl --workers {workers}"
    return subprocess.Popen(
        [sys.executable, "-m", "recfusion", *words.split()],
        cwd=folder,
        env=os.environ | {"SECONDS": str(seconds)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def started_fits(folder: Path) -> list[str]:
    log = folder / "fits.log"
    return log.read_text().split() if log.exists() else []


def wait_for_fits(folder: Path, count: int) -> None:
    end = time.monotonic() + 60
    while len(started_fits(folder)) < count:
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.mark.parametrize("workers", [0, 2])
def test_two_runs_on_one_store_do_every_fit_once(folder: Path, workers: int) -> None:
    runs = [start(folder, 2.0, workers) for _ in range(2)]
    told = [run.communicate(timeout=120) for run in runs]
    assert [run.returncode for run in runs] == [0, 0], told
    fits = started_fits(folder)
    assert len(fits) == FITS
    assert len(set(fits)) > 1  # both took part
    assert len((folder / "store.jsonl").read_text().splitlines()) == FITS
    assert told[0][0] == told[1][0]  # both print the whole table
    assert [path.name for path in folder.iterdir() if "claims" in path.name] == []


def test_the_fit_of_a_killed_run_is_taken_over(folder: Path) -> None:
    first = start(folder, 600)
    wait_for_fits(folder, 1)
    second = start(folder, 0.1)
    wait_for_fits(folder, FITS)
    assert second.poll() is None  # it waits for the fit of the first
    first.kill()
    first.communicate(timeout=60)
    told = second.communicate(timeout=60)
    assert second.returncode == 0, told
    assert len(started_fits(folder)) == FITS + 1
    assert len(read_results(folder / "store.jsonl")) == FITS


def test_a_line_that_was_cut_short_does_not_disturb_the_claims(folder: Path) -> None:
    start(folder, 0).communicate(timeout=60)
    store = folder / "store.jsonl"
    store.write_bytes(store.read_bytes()[:-40])
    (folder / ".store.jsonl.tmp-claims").touch()  # of a killed run
    start(folder, 0).communicate(timeout=60)
    assert len(read_results(store)) == FITS
    assert not (folder / ".store.jsonl.tmp-claims").exists()
