"""Seconds and peak memory of reading and preparing a table, today beside an earlier commit in the same run.

    git worktree add ../before e10b194
    recfusion data generate --users 400000 --items 50000 --interactions 5000000 --form csv --out c5
    python -c "import polars; polars.read_parquet('p96/interactions.parquet', n_rows=12570778).write_parquet(
        'p12/interactions.parquet', row_group_size=2**20)"    # of `data generate --preset netflix --form parquet`
    python benchmarks/reading.py c5/interactions.csv ... --before ../before/src --out benchmarks/reading.json

Each reading is a process of its own, in turns; the best time and the highest peak of `--times` count. The peak is that
of the whole process, so the 0.2 GB of the program are in it. CPU seconds say more where others use the machine.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

_ONE = """
import json, sys, time
from pathlib import Path
from recfusion.data.load import load
began, cpu = time.perf_counter(), time.process_time()
data = load(sys.argv[1])
found = {"seconds": time.perf_counter() - began, "cpu_seconds": time.process_time() - cpu}
found["peak_bytes"] = 1024 * int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0])
found |= {"rows": data.report.rows, "interactions": data.n_interactions, "fingerprint": data.fingerprint}
print(json.dumps(found))
"""


def read_once(path: Path, source: Path) -> dict[str, Any]:
    """Read a table in a new process, with the package in the folder `source`."""
    environment = {**os.environ, "PYTHONPATH": str(source.absolute())}
    done = subprocess.run(
        [sys.executable, "-c", _ONE, path], capture_output=True, text=True, env=environment, check=True
    )
    return dict(json.loads(done.stdout.splitlines()[-1]))


def measure(path: Path, versions: dict[str, Path], times: int) -> dict[str, Any]:
    """Return the cost of reading in each version, with fingerprints of the result."""
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in versions}
    for _ in range(times):
        for name, source in versions.items():
            found[name].append(read_once(path, source))
    row: dict[str, Any] = {"file": path.parent.name + "/" + path.name, "file_bytes": path.stat().st_size}
    row["rows"] = found["now"][0]["rows"]
    for name, runs in found.items():
        row[name] = {what: min(run[what] for run in runs) for what in ("seconds", "cpu_seconds")}
        row[name]["peak_bytes"] = max(run["peak_bytes"] for run in runs)
    row["same"] = len({run["fingerprint"] for runs in found.values() for run in runs}) == 1
    return row


def table(rows: list[dict[str, Any]]) -> str:
    """Return the rows as Markdown."""
    lines = [
        "| rows | file | version | seconds | CPU seconds | peak memory | peak / file |",
        "|---:|---:|---|" + "---:|" * 4,
    ]
    for row in rows:
        size = row["file_bytes"]
        for name, one in ((name, row[name]) for name in ("before", "now") if name in row):
            times = f"{one['seconds']:.1f} | {one['cpu_seconds']:.1f}"
            peak = f"{one['peak_bytes'] / 1e9:.2f} GB | {one['peak_bytes'] / size:.1f}"
            lines.append(f"| {row['rows']:,} | {size / 1e9:.2f} GB | {name} | {times} | {peak} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--before", type=Path, help="folder src of an earlier commit")
    parser.add_argument("--times", type=int, default=1)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    versions = {"before": asked.before} if asked.before else {}
    versions["now"] = Path(__file__).parent.parent / "src"
    rows = []
    for path in asked.files:
        rows.append(measure(path, versions, asked.times))
        print(rows[-1], flush=True)
        if asked.out:
            asked.out.write_text(json.dumps({"rows": rows}, indent=1) + "\n")
    print(table(rows))


if __name__ == "__main__":
    main()
