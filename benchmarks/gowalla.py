"""Seconds, peak memory, Recall@20 and NDCG@20 on Gowalla's published split, beside SANSA and implicit, in one run.

    python benchmarks/gowalla.py --peer .venv-peers/bin/python --out benchmarks/gowalla.json

Settings are chosen on 10 % of each training history; the final fit is on the whole training file. The table has its CPU
seconds, with one thread each, and those of our searches in a column of their own. Every fit runs in a process of its
own. `thinning-linear` solves for all 40,981 places at once, with the settings that `thinning-local` chose;
`thinning-local, a = 0` has the same settings, and none that `thinning-linear` lacks.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from scale import peak_bytes, run_peer, save_split

from recfusion.core.files import write_json
from recfusion.core.memory import gigabytes
from recfusion.core.rng import stream
from recfusion.data.load import load
from recfusion.data.options import SplitPlan
from recfusion.data.split import split
from recfusion.evaluation.evaluate import evaluate
from recfusion.models.abilities import settled
from recfusion.models.registry import make_model
from recfusion.models.settings import setting_values

METRICS = ("recall@20", "ndcg@20")
MODELS = "thinning-local;thinning-fast;thinning;thinning-local, a = 0;thinning-linear"
SHARED = ("l2", "kappa", "nu", "b", "c")  # settings of thinning-linear and thinning-local
PEERS = ("sansa", "als", "als-large", "cosine")


def run_one(name: str, settings: dict[str, Any]) -> dict[str, Any]:
    """Choose the settings of one of our models, fit it on the whole training file and evaluate it."""
    parts = split(load("gowalla"), SplitPlan(kind="given"), seed=0)
    assert parts.whole is not None
    model, clock = make_model(name, settings), [time.process_time()]
    if not settings:
        model = settled(model.fit(parts.train, parts.valid, rng=stream(0, f"fit {name}")))
    clock.append(time.process_time())
    model.fit(parts.whole, None, rng=stream(0, f"fit {name}"))
    clock.append(time.process_time())
    peak, found = peak_bytes(), evaluate(model, parts.test, parts.whole, METRICS, threads=1)
    values = found.per_user[METRICS[-1]]
    return {
        "cpu_seconds": clock[2] - clock[1],
        "search_cpu_seconds": clock[1] - clock[0],
        "peak_bytes": peak,
        "settings": json.loads(json.dumps({**setting_values(model), **model.chosen()}, default=str)),
        **found.mean(),
        "standard_error": float(values.std() / np.sqrt(len(values))),
    }


def table(rows: dict[str, dict[str, Any]]) -> str:
    """Return the rows as Markdown."""
    lines = [
        "| model | Recall@20 | NDCG@20 | CPU seconds | of the search | peak memory |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for name, row in rows.items():
        search = f"{row['search_cpu_seconds']:.0f}" if row.get("search_cpu_seconds") else ""
        values = " | ".join(f"{row[metric]:.4f}" for metric in METRICS)
        lines.append(f"| {name} | {values} | {row['cpu_seconds']:.0f} | {search} | {gigabytes(row['peak_bytes'])} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=MODELS, help="separated by semicolons")
    parser.add_argument("--peer", help="Python of an environment that has sansa and implicit (sparse_peers.py)")
    parser.add_argument("--peers", default=",".join(PEERS))
    parser.add_argument("--out", type=Path, default=Path("gowalla.json"), help="rows of other models in it are kept")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.one:
        print(json.dumps(run_one(asked.one[0], json.loads(asked.one[1]))))
        return
    rows: dict[str, dict[str, Any]] = json.loads(asked.out.read_text()) if asked.out.exists() else {}

    def keep(name: str, row: dict[str, Any]) -> None:
        rows[name] = row
        write_json(asked.out, rows)
        print(name, row, flush=True)

    if asked.peer:
        parts = split(load("gowalla"), SplitPlan(kind="given"), seed=0)
        with tempfile.TemporaryDirectory() as folder:
            path = save_split(parts.train, parts.valid, parts.test, Path(folder) / "split.npz", 20, parts.whole)
            for name in filter(None, asked.peers.split(",")):
                keep(name if name == "sansa" else f"implicit {name}", run_peer(asked.peer, name, path, METRICS))
    for name in filter(None, asked.models.split(";")):
        given = {}
        if name in ("thinning-linear", "thinning-local, a = 0"):  # a search would invert the matrix in every trial
            given = {key: rows["thinning-local"]["settings"][key] for key in SHARED}
            given |= {} if name == "thinning-linear" else {"a": 0.0}
        command = [sys.executable, __file__, "--one", name.partition(",")[0], json.dumps(given)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        keep(name, json.loads(done.stdout.splitlines()[-1]))
    print(table(rows))


if __name__ == "__main__":
    main()
