"""Time RecPack 0.3.6 on a given split, to compare recfusion with it.

This script runs in a virtual environment of its own, because RecPack needs numpy 1.x and pandas 2.x. It does not
import recfusion: the two sides only share files (a split in, item-item weights in or out, JSON out).

Set the environment up once (Python 3.11; with plain PyPI, give pip the CPU index of PyTorch, or it will fetch CUDA):

    python3.11 -m venv .venv-recpack
    .venv-recpack/bin/pip install -r benchmarks/recpack-requirements.txt

Then run one subcommand at a time. Each prints one JSON object on stdout; RecPack's log and warnings go to stderr.

    recpack_peer.py ease SPLIT.npz --l2 500 --repeat 3 [--weights OUT.npy | --weights-in IN.npy]
    recpack_peer.py slim SPLIT.npz --l1 0.0005 --l2 0.00005 [--items 100] [--weights OUT.npy | --weights-in IN.npy]
    recpack_peer.py multvae SPLIT.npz --epochs 20 --lr 0.001
    recpack_peer.py recvae SPLIT.npz --epochs 20 --lr 0.0005
    recpack_peer.py read RATINGS.csv --repeat 5

SPLIT.npz holds three binary CSR matrices as the arrays {train,history,held_out}_{indptr,indices}, and `shape`, which
is [n_train_users, n_test_users, n_items]. A model is fitted on `train`, predicts for the test users from `history`,
and is measured on `held_out`.

What is timed:

- fit_seconds: one call of RecPack's `fit`, for each repeat. Nothing else is inside it. The matrix passed in is of
  int32, which is what RecPack's own InteractionMatrix holds; EASE then solves in float64.
- score_seconds: predicting for all test users, removing the items of their history, and NDCG@100 and calibrated
  recall@20 and @50, for each repeat. predict_seconds is the first two steps of that. Removing is done by the
  prediction step of RecPack's own Pipeline: an item of the history is dropped from the sparse prediction, so it is
  never recommended, even where all other scores are negative.
- epoch_seconds and validation_seconds (multvae, recvae): training alone, and RecPack's evaluation after each epoch,
  which cannot be switched off; `--validation-users` makes it cheap by taking a sample. It looks at the test users,
  but decides nothing: no early stop, and the model of the last epoch is the one kept.

The saved weights are dense float32 with W[i, j] = what item i in the history adds to the score of item j. RecPack
itself scores with float64 weights, so to compare two programs on the very same model, save once and give the file to
both (`--weights-in` here).

The number of threads is left to the environment (OMP_NUM_THREADS, OPENBLAS_NUM_THREADS). Other work on the same cores
slows the training of the two VAEs far more than its share (epochs of 1 s were seen to take 8 s), so look at load_before
and load_after, the machine's one-minute load average, and at how far the epochs differ, before keeping a figure.
OMP_WAIT_POLICY=PASSIVE softens it. The first fit of a VAE also holds about a second of torch loading its own modules,
which is in fit_seconds but not in epoch_seconds.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import sys
import time
from collections.abc import Callable
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_matrix, vstack

PACKAGES = ("recpack", "numpy", "scipy", "pandas", "scikit-learn", "torch")


class Split(NamedTuple):
    """The three binary matrices of a strong-generalisation split."""

    train: csr_matrix
    history: csr_matrix
    held_out: csr_matrix


def load_split(path: Path) -> Split:
    """Read a split from the npz file described at the top of this file."""
    with np.load(path) as file:
        n_train, n_test, n_items = (int(n) for n in file["shape"])

        def matrix(name: str, n_rows: int) -> csr_matrix:
            indptr, indices = file[f"{name}_indptr"], file[f"{name}_indices"]
            return csr_matrix((np.ones(len(indices), dtype=np.int32), indices, indptr), shape=(n_rows, n_items))

        return Split(matrix("train", n_train), matrix("history", n_test), matrix("held_out", n_test))


def timed(function: Callable[[], Any]) -> tuple[float, Any]:
    """Call `function`; give the seconds it took and what it returned."""
    start = time.perf_counter()
    result = function()
    return time.perf_counter() - start, result


def record_seconds(model: Any, method: str) -> list[float]:
    """Replace a method of one object with itself plus a clock; give the list the seconds are put in."""
    seconds: list[float] = []
    original = getattr(model, method)

    def with_clock(*args: Any) -> Any:
        start = time.perf_counter()
        try:
            return original(*args)
        finally:
            seconds.append(time.perf_counter() - start)

    setattr(model, method, with_clock)
    return seconds


def score(model: Any, split: Split, repeat: int) -> dict[str, Any]:
    """Predict and measure `repeat` times with RecPack's own prediction step and metrics."""
    from recpack.matrix import InteractionMatrix
    from recpack.metrics import NDCGK, CalibratedRecallK
    from recpack.pipelines import Pipeline
    from recpack.postprocessing.postprocessors import Postprocessor

    history = InteractionMatrix.from_csr_matrix(split.history)
    held_out = InteractionMatrix.from_csr_matrix(split.held_out)
    pipeline = Pipeline(
        results_directory="",
        algorithm_entries=[],
        metric_entries=[],
        full_training_data=history,
        validation_training_data=None,
        validation_data=None,
        test_data=(history, held_out),
        optimisation_metric_entry=None,
        post_processor=Postprocessor(),
        remove_history=True,
    )
    score_seconds: list[float] = []
    predict_seconds: list[float] = []
    metrics: dict[str, float] = {}
    for _ in range(repeat):
        predicting, prediction = timed(lambda: pipeline._predict_and_postprocess(model, history))
        start = time.perf_counter()
        for name, metric in (
            ("ndcg@100", NDCGK(100)),
            ("calibrated_recall@20", CalibratedRecallK(20)),
            ("calibrated_recall@50", CalibratedRecallK(50)),
        ):
            metric.calculate(split.held_out, prediction)
            metrics[name] = float(metric.value)
        predict_seconds.append(predicting)
        score_seconds.append(predicting + time.perf_counter() - start)
    return {"score_seconds": score_seconds, "predict_seconds": predict_seconds, "metrics": metrics}


def use_weights(model: Any, path: Path) -> None:
    """Give a linear model the item-item weights of a file instead of fitting it."""
    model.similarity_matrix_ = csr_matrix(np.load(path))


def save_weights(model: Any, path: Path) -> None:
    """Save the item-item weights of a linear model as a dense float32 array."""
    np.save(path, model.similarity_matrix_.toarray().astype(np.float32))


def run_ease(args: argparse.Namespace) -> dict[str, Any]:
    """Fit EASE on the training users and measure it on the test users."""
    from recpack.algorithms import EASE

    split = load_split(args.split)
    fit_seconds: list[float] = []
    model = EASE(l2=args.l2)
    if args.weights_in:
        use_weights(model, args.weights_in)
    else:
        for _ in range(args.repeat):
            model = EASE(l2=args.l2)
            fit_seconds.append(timed(partial(model.fit, split.train))[0])
    if args.weights:
        save_weights(model, args.weights)
    settings = {"l2": None if args.weights_in else args.l2}
    return {"fit_seconds": fit_seconds, **settings, **score(model, split, args.repeat)}


def run_slim(args: argparse.Namespace) -> dict[str, Any]:
    """Fit SLIM once, one regression per item, and measure it on the test users."""
    from recpack.algorithms import SLIM

    np.random.seed(args.seed)  # scikit-learn's SGDRegressor draws from numpy's global state
    split = load_split(args.split)
    model = SLIM(l1_reg=args.l1, l2_reg=args.l2)
    settings = {"l1": None, "l2": None} if args.weights_in else {"l1": args.l1, "l2": args.l2}
    if args.items:
        columns = np.linspace(0, split.train.shape[1] - 1, args.items).astype(int)
        seconds, _ = timed(lambda: [model._compute_similarities(split.train, item) for item in columns])
        return {"items": args.items, "items_seconds": seconds, "n_items": split.train.shape[1], **settings}
    fit_seconds: list[float] = []
    if args.weights_in:
        use_weights(model, args.weights_in)
    else:
        fit_seconds.append(timed(lambda: model.fit(split.train))[0])
    if args.weights:
        save_weights(model, args.weights)
    weights = {"weights_per_item": model.similarity_matrix_.nnz / split.train.shape[1]}
    return {"fit_seconds": fit_seconds, **settings, **weights, **score(model, split, args.repeat)}


def run_vae(args: argparse.Namespace) -> dict[str, Any]:
    """Train MultVAE or RecVAE for a number of epochs and measure it on the test users."""
    import torch
    from recpack.algorithms import MultVAE, RecVAE

    split = load_split(args.split)
    n_train, n_test, n_items = (split.train.shape[0], split.history.shape[0], split.train.shape[1])
    below = csr_matrix((n_test, n_items), dtype=np.int32)
    above = csr_matrix((n_train, n_items), dtype=np.int32)
    # RecPack wants training and validation matrices of one shape: each user has a row in all of them.
    train = csr_matrix(vstack([split.train, below]))
    validation = tuple(csr_matrix(vstack([above, part])) for part in (split.history, split.held_out))
    model = {"multvae": MultVAE, "recvae": RecVAE}[args.command](
        batch_size=args.batch_size,
        max_epochs=args.epochs,
        learning_rate=args.lr,
        seed=args.seed,
        keep_last=True,
        validation_sample_size=args.validation_users,
    )
    epoch_seconds = record_seconds(model, "_train_epoch")
    validation_seconds = record_seconds(model, "_evaluate")
    fit_seconds, _ = timed(lambda: model.fit(train, validation))
    return {
        "fit_seconds": [fit_seconds],
        "epoch_seconds": epoch_seconds,
        "validation_seconds": validation_seconds,
        "epochs": args.epochs,
        "lr": args.lr,
        "batch_size": args.batch_size,
        "validation_users": args.validation_users or n_test,
        "seed": args.seed,
        "threads": torch.get_num_threads(),
        **score(model, split, args.repeat),
    }


def run_read(args: argparse.Namespace) -> dict[str, Any]:
    """Read a CSV of ratings with the C engine of pandas."""
    import pandas as pd

    read_seconds: list[float] = []
    rows = 0
    for _ in range(args.repeat):
        seconds, frame = timed(lambda: pd.read_csv(args.csv, engine="c"))
        read_seconds.append(seconds)
        rows = len(frame)
    return {"read_seconds": read_seconds, "best": min(read_seconds), "rows": rows}


def versions() -> dict[str, str]:
    """Give the versions of Python and of each package that has a part in the figures."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found


def positive(text: str) -> int:
    """Read a whole number of at least one from the command line."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number


def parse(argv: list[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Time RecPack on a split; see the top of this file.")
    commands = parser.add_subparsers(dest="command", required=True)

    on_split = argparse.ArgumentParser(add_help=False)
    on_split.add_argument("split", type=Path, help="npz file with the split")
    linear = argparse.ArgumentParser(add_help=False)
    either = linear.add_mutually_exclusive_group()
    either.add_argument("--weights", type=Path, help="save the item-item weights here (dense float32 .npy)")
    either.add_argument("--weights-in", type=Path, help="score with these weights instead of fitting")

    ease = commands.add_parser("ease", parents=[on_split, linear], help="fit and measure EASE")
    ease.add_argument("--l2", type=float, default=500.0)
    ease.add_argument("--repeat", type=positive, default=3, help="how often to fit, and to score")
    ease.set_defaults(run=run_ease)

    slim = commands.add_parser("slim", parents=[on_split, linear], help="fit and measure SLIM")
    slim.add_argument("--l1", type=float, default=0.0005)
    slim.add_argument("--l2", type=float, default=0.00005)
    slim.add_argument("--seed", type=int, default=0)
    slim.add_argument("--items", type=positive, help="only time the regressions of this many items, evenly spread")
    slim.add_argument("--repeat", type=positive, default=1, help="how often to score (it is fitted once)")
    slim.set_defaults(run=run_slim)

    for name, rate in (("multvae", 1e-4), ("recvae", 5e-4)):
        vae = commands.add_parser(name, parents=[on_split], help=f"train and measure {name}")
        vae.add_argument("--epochs", type=positive, default=10)
        vae.add_argument("--lr", type=float, default=rate, help=f"learning rate (RecPack's own: {rate})")
        vae.add_argument("--batch-size", type=positive, default=500)
        vae.add_argument("--validation-users", type=positive, help="sample this many users for RecPack's evaluation")
        vae.add_argument("--seed", type=int, default=0)
        vae.add_argument("--repeat", type=positive, default=1, help="how often to score (it is trained once)")
        vae.set_defaults(run=run_vae)

    read = commands.add_parser("read", help="time pandas reading a CSV")
    read.add_argument("csv", type=Path)
    read.add_argument("--repeat", type=positive, default=5)
    read.set_defaults(run=run_read)
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
    """Run one subcommand and print its figures as JSON."""
    args = parse(argv)
    load = os.getloadavg()[0]
    with contextlib.redirect_stdout(sys.stderr):  # RecPack logs to what is stdout when it is first imported
        figures = args.run(args)
    machine = {"cpus": os.cpu_count(), "load_before": load, "load_after": os.getloadavg()[0]}
    print(json.dumps({"command": args.command, **figures, **machine, "versions": versions()}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
