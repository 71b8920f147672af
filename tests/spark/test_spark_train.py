"""Local thinning on Spark: the very model of one machine, also after a kill."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from conftest import random_csr, require_spark
from recfusion.core.errors import InputError
from recfusion.inference.bundle import Bundle
from recfusion.models.thinning.local import ThinningLocal
from recfusion.models.thinning.neighbours import WHOLE_ITEMS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS: dict[str, Any] = {"l2": 5.0, "nu": 0.3, "kappa": 0.5, "b": 0.5, "c": 0.2, "neighbours": 7, "factors": 4}


@pytest.mark.parametrize(("items", "block_bytes"), [(40, 1000), (WHOLE_ITEMS + 1, 1 << 17)])
def test_the_model_is_that_of_one_machine_bit_by_bit(
    items: int, block_bytes: int, session: "SparkSession", tmp_path: Path
) -> None:
    """Of few items, and of so many that loops are compiled for them."""
    from recfusion.spark.train import SparkSolver

    train = random_csr(120, items, 6 / items, 3)
    local = ThinningLocal(**SETTINGS).fit(train, rng=0)
    solver = SparkSolver(session, tmp_path / "stages", block_bytes=block_bytes)  # some items each
    found = replace(local, solver=solver).fit(train, rng=0)
    assert len(list((tmp_path / "stages").glob("*/solved-*.npz"))) > 3
    for name, array in local.state().items():
        assert np.array_equal(found.state()[name], array), name


def test_what_is_solved_is_not_solved_again(session: "SparkSession", tmp_path: Path) -> None:
    from recfusion.spark.train import SparkSolver

    train = random_csr(120, 40, 0.15, 3)
    model = ThinningLocal(**SETTINGS, solver=SparkSolver(session, tmp_path, block_bytes=1000)).fit(train, rng=0)
    kept = sorted(tmp_path.glob("*/solved-*.npz"))
    for block in kept[:2]:
        block.unlink()
    kept[2].write_bytes(kept[2].read_bytes()[:100])
    times = [block.stat().st_mtime_ns for block in kept[3:]]
    again = replace(model).fit(train, rng=0)
    assert all(block.is_file() for block in kept)
    assert [block.stat().st_mtime_ns for block in kept[3:]] == times
    assert np.array_equal(again.weights_.data, model.weights_.data)
    other = replace(model, l2=6.0).fit(train, rng=0)  # another problem has files of its own
    assert not np.array_equal(other.weights_.data, model.weights_.data)
    assert len(list(tmp_path.iterdir())) == 2


def test_a_problem_without_a_solution_is_one_sentence(session: "SparkSession", tmp_path: Path) -> None:
    from recfusion.spark.train import SparkSolver

    train = random_csr(30, 12, 0.3, 1)
    n = np.bincount(train.indices, minlength=12).astype(np.float32)
    with pytest.raises(InputError, match="raise the penalty"):
        SparkSolver(session, tmp_path)(train, n, -n, 3)


@pytest.mark.skipif(os.name == "nt", reason="kills by a POSIX signal")
def test_a_killed_training_goes_on_and_saves_an_ordinary_folder(tmp_path: Path) -> None:
    require_spark()
    asked = ["thinning-local", "--data", "ml-latest-small", "--out", "model", "--tune-trials", "0", "--all-users"]
    asked += ["--set", "neighbours=40", "--set", "factors=8", "--master", "local[1]"]
    command = [sys.executable, "-c", _SMALL_BLOCKS, "spark", "train", *asked]
    stages = tmp_path / "model.stages"
    process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.DEVNULL, start_new_session=True)
    deadline = time.monotonic() + 300
    while not list(stages.glob("*/solved-*.npz")) and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    kept = {block.name: block.stat().st_mtime_ns for block in stages.glob("*/solved-*.npz")}
    assert kept
    assert not (tmp_path / "model").exists()
    watched = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    _, said = watched.communicate()
    assert watched.returncode == 0, said
    assert not stages.exists()
    plain = [sys.executable, "-m", "recfusion", "train", *asked[:-2]]
    plain[plain.index("model")] = "plain"
    subprocess.run(plain, cwd=tmp_path, check=True, capture_output=True)
    found, local = Bundle.load(tmp_path / "model"), Bundle.load(tmp_path / "plain")
    for name, array in local.model.state().items():
        assert np.array_equal(found.model.state()[name], array), name


_SMALL_BLOCKS = """
import sys
from recfusion.spark import train
train.SparkSolver.__init__.__defaults__ = (1 << 20,)
from recfusion.cli.main import main
sys.argv[0] = "recfusion"
main()
"""
