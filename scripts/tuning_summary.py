"""Summarise searches: a JSON file for each model, and one table of all.

Usage: python scripts/tuning_summary.py [FOLDER ...]

A FOLDER was written by `recfusion tune --out`. Without one, only the table is written again.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from recfusion.core.files import write_json
from recfusion.experiments.tuning.tune import BEST, TRIALS

TITLE = """# Searches for the networks' settings

ML-1M, split 0, Hyperopt's TPE (`recfusion tune`). NDCG@100 in percent on the validation users, of the defaults that the
search began with and of the best trial that ended by itself; then that of the best on the test users, looked at once.
`tuning/MODEL.json` has every trial.

"""
KEPT = Path(__file__).parents[1] / "results" / "tuning"


def summary(folder: Path) -> dict[str, Any]:
    """Return the summary of a search, with a record for each trial."""
    best = read(folder / BEST)
    lines = [json.loads(line) for line in (folder / TRIALS).read_text(encoding="utf-8").splitlines()]
    tried = [
        {
            **{key: trial[key] for key in ("number", "status", "score", "settings")},
            "epochs": len(trial["curve"]["metric"]),
            "seconds": round(trial["seconds"], 1),
        }
        for trial in sorted((line["trial"] for line in lines), key=lambda trial: int(trial["number"]))
    ]
    kept = ("model", "metric", "seed", "trial", "validation", "default", "test", "space")
    given = lines[0]["search"]["fixed"]
    return {
        **{key: best[key] for key in kept},
        "settings": {name: value for name, value in best["settings"].items() if name not in given},
        "given": given,
        "protocol": best["protocol"]["hash"],
        "tried": tried,
    }


def table(summaries: Sequence[Mapping[str, Any]]) -> str:
    """Return the table of all searches as Markdown."""
    head = "| model | trials | stopped early | minutes | defaults | best | test | settings of the best |"
    lines = [head, "|---|" + "---:|" * 6 + "---|"]
    for one in summaries:
        stopped = sum(trial["status"] == "stopped" for trial in one["tried"])
        minutes = sum(trial["seconds"] for trial in one["tried"]) / 60
        found = settings_text(one["settings"]) or "the defaults"
        given = f" (given: {settings_text(one['given'])})" if one["given"] else ""
        lines.append(
            f"| {one['model']} | {len(one['tried'])} | {stopped} | {minutes:.0f} | {100 * one['default']:.2f} "
            f"| {100 * one['validation']:.2f} | {100 * one['test'][one['metric']]['mean']:.2f} "
            f"| {found}{given} |"
        )
    return TITLE + "\n".join(lines) + "\n"


def settings_text(settings: Mapping[str, Any]) -> str:
    """Return settings as text, numbers with three digits."""
    return ", ".join(
        f"{name} {value:.3g}" if isinstance(value, float) else f"{name} {value}" for name, value in settings.items()
    )


def main() -> None:
    """Summarise the named folders, then write the table."""
    for folder in map(Path, sys.argv[1:]):
        found = summary(folder)
        write_json(KEPT / f"{found['model']}.json", found)
    KEPT.with_suffix(".md").write_text(table([read(path) for path in sorted(KEPT.glob("*.json"))]), encoding="utf-8")


def read(path: Path) -> dict[str, Any]:
    """Return a JSON document."""
    document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return document


if __name__ == "__main__":
    main()
