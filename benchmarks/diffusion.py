"""What an epoch of RecFusion costs, against a plain dense implementation of the same objective in the same run.

    python benchmarks/diffusion.py --out benchmarks/diffusion.json

The plain one makes the whole matrix dense, simulates the forward chain step by step and calls the network on every
x^t; its mean over t is the objective that ours estimates by one t per user. ML-1M must be in RECFUSION_DATA or the
cache. One thread on both sides, best of several epochs.
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch
from scipy.sparse import vstack

import recfusion as rf
from recfusion.core.files import write_json
from recfusion.models.recfusion.recfusion import RecFusion
from recfusion.nets.mlp import MLP

EPOCHS = 4


def main() -> None:
    """Run all parts and print the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, help="JSON file for the figures")
    parser.add_argument("--memory-part", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.memory_part:
        print(json.dumps(peak_memory(options.memory_part)))
        return
    train = rf.split(rf.load("ml-1m"), seed=0).train
    ours = {steps: our_epoch(train, steps) for steps in (3, 30, 300)}
    plain = {steps: plain_epoch(train, steps) for steps in (3, 30)}
    found: dict[str, Any] = {
        "epoch, T = 3": {"seconds": ours[3], "plain seconds": plain[3], "times as fast": plain[3] / ours[3]},
        "epoch, T = 30": {"seconds": ours[30], "plain seconds": plain[30], "times as fast": plain[30] / ours[30]},
        "T = 300 against T = 3": {"seconds": ours[300], "times the time": ours[300] / ours[3]},
        "peak memory of training, GB": {f"{copies} x the users": _in_process(copies) for copies in (1, 4)},
    }
    print(json.dumps(found, indent=2))
    if options.out:
        write_json(options.out, found)


def our_epoch(train: Any, steps: int) -> float:
    """Return the seconds of the fastest epoch of RecFusion."""
    return min(epoch.seconds for epoch in RecFusion(T=steps, max_epochs=EPOCHS).epochs(train, rng=0))


def plain_epoch(train: Any, steps: int) -> float:
    """Return the seconds of the fastest epoch that simulates the chain and calls the network T times."""
    x = torch.from_numpy(train.toarray())
    net = MLP(x.shape[1])
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, weight_decay=0.0)
    betas = rf.diffusion.make_schedule("quadratic", steps).betas.float()
    seconds = []
    for _ in range(EPOCHS if steps < 30 else 1):
        start = time.perf_counter()
        for rows in torch.split(torch.randperm(len(x)), 200):
            x0 = x[rows]
            xt, loss = x0, torch.zeros(())
            for step, beta in enumerate(betas, 1):
                xt = (1 - beta).sqrt() * xt + beta.sqrt() * torch.randn_like(xt)
                loss = loss + ((net(xt, torch.full((len(xt),), step)) - x0) ** 2).sum(1).mean() / steps
            optimizer.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def peak_memory(copies: int) -> float:
    """Return by how many GB an epoch on `copies` times the users of ML-1M raises the peak memory."""
    train = vstack([rf.split(rf.load("ml-1m"), seed=0).train] * copies, format="csr")
    list(RecFusion(max_epochs=1).epochs(train[:200], rng=0))  # what torch itself takes
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    list(RecFusion(max_epochs=1).epochs(train, rng=0))
    return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 / 1e9


def _in_process(copies: int) -> float:
    command = [sys.executable, __file__, "--memory-part", str(copies)]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


if __name__ == "__main__":
    main()
