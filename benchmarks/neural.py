"""How long an epoch of MultVAE and RecVAE takes, against RecPack 0.3.6 in the same run, one thread each.

    python benchmarks/neural.py --peer .venv-recpack/bin/python --out benchmarks/neural.json

Set the peer's environment up as `recpack_peer.py` says; ML-1M must be in RECFUSION_DATA or the cache. An epoch of
MultVAE is one pass over the training users. An epoch of RecVAE is four on both sides: three for the encoder and one
for the decoder. Both sides have the same users, the same layers and batches of 500. An epoch ends with its validation,
on the same 603 users on both sides; the training pass is also given by itself. Seconds are CPU seconds of one
thread: other work on the machine is not counted. The two sides take turns; the fastest epoch of each turn counts on
both, and the ratio's range over the turns is given.
"""

import os

os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}  # before numpy and torch

import argparse
import json
import platform
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from foundation import Rounds

import recfusion as rf
from recfusion.core.files import write_json
from recfusion.models.abilities import fit_in_epochs

PEER = Path(__file__).with_name("recpack_peer.py")
# The peer's script reads perf_counter: this runs it with the CPU's clock in that place.
CPU_CLOCK = (
    "import runpy, sys, time; time.perf_counter = time.process_time; sys.argv = sys.argv[1:]; "
    "runpy.run_path(sys.argv[0], run_name='__main__')"
)
BATCH_SIZE = 500
EPOCHS = {"multvae": 8, "recvae": 3}  # in each turn
TURNS = 3


def main() -> None:
    """Time both models on both sides and print the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--peer", required=True, help="Python of the environment that has RecPack")
    parser.add_argument("--out", type=Path, help="JSON file for the figures")
    options = parser.parse_args()
    torch.set_num_threads(1)
    parts = rf.split(rf.load("ml-1m"), seed=0)
    found: dict[str, Any] = {
        "machine": {"cores": os.cpu_count(), "cpu": platform.processor() or platform.machine()},
        "threads": 1,
        "batch_size": BATCH_SIZE,
    }
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "split.npz"
        save_split(parts, file)
        for name in EPOCHS:
            found[f"epoch of {name} on ML-1M"] = compare(name, parts, options.peer, file)
    found["machine"]["load"] = os.getloadavg()[0]
    print(json.dumps(found, indent=2))
    if options.out:
        write_json(options.out, found)


def save_split(parts: rf.Split, file: Path) -> None:
    """Write a split as the peer's script reads it."""
    matrices = {"train": parts.train, "history": parts.test.history, "held_out": parts.test.held_out}
    arrays = {
        f"{name}_{part}": getattr(matrix, part) for name, matrix in matrices.items() for part in ("indptr", "indices")
    }
    np.savez(file, shape=[parts.train.shape[0], parts.test.history.shape[0], parts.train.shape[1]], **arrays)


def compare(name: str, parts: rf.Split, python: str, file: Path) -> dict[str, Any]:
    """Return the seconds of an epoch on both sides, and of its training pass alone, alternating."""
    whole, alone = Rounds("RecPack 0.3.6"), Rounds("RecPack 0.3.6")
    for _ in range(TURNS):
        training, validation = peer_epochs(name, python, file)
        alone.add(min(training), min(own_epochs(name, parts, None)))
        both = [sum(each) for each in zip(training, validation, strict=True)]
        whole.add(min(both), min(own_epochs(name, parts, parts.test)))
    return {"with validation": whole.figures(), "training alone": alone.figures()}


def own_epochs(name: str, parts: rf.Split, judged: rf.Fold | None) -> list[float]:
    """Return the seconds of each epoch of recfusion's model, with its validation on `judged` if given."""
    model = rf.make_model(name, {"max_epochs": EPOCHS[name], "batch_size": BATCH_SIZE})
    epochs = fit_in_epochs(model, parts.train, judged, rng=0)
    seconds = []
    for _ in range(EPOCHS[name]):
        start = time.process_time()
        next(epochs)
        seconds.append(time.process_time() - start)
    return seconds


def peer_epochs(name: str, python: str, file: Path) -> tuple[list[float], list[float]]:
    """Return the seconds of each epoch's training pass and of its validation in RecPack's model."""
    command = [python, "-c", CPU_CLOCK, str(PEER), name, str(file)]
    command += ["--epochs", str(EPOCHS[name]), "--batch-size", str(BATCH_SIZE)]
    printed = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    if printed["threads"] != 1:
        raise SystemExit(f"Expected the peer to run one thread, got {printed['threads']}.")
    return printed["epoch_seconds"], printed["validation_seconds"][: EPOCHS[name]]


if __name__ == "__main__":
    main()
