"""Count the rows of all stores by the code that fitted them, and those with a commit that is not in the git history.

Usage: python scripts/row_code.py
"""

import json
import subprocess
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recfusion.core.jsonl import JsonLines, plain_path
from recfusion.models.code_digest import CodeState, code_digest, code_state
from recfusion.models.registry import MODELS

ROOT = Path(__file__).parents[1]
FOLDERS = (ROOT / "results", ROOT / "studies" / "results")
_LINES = JsonLines(b'{"recfusion_result":', "result", "it is not counted")
_COMMIT = 12  # letters of a commit in a row


@dataclass(frozen=True)
class Row:
    """What a stored result says of its code."""

    label: str
    seed: int
    state: CodeState
    commit: str  # empty in older rows


def rows(store: Path) -> list[Row]:
    """Return the rows of a store, without parsing their values."""
    documents = [_LINES.parse(line, str(store)) for line in _LINES.read(store)]
    return [_row(document) for document in documents]


def _row(document: Mapping[str, Any]) -> Row:
    entry = None if document.get("place") else MODELS.get(document["model"])
    code = document.get("code", "")
    state = code_state(code, code_digest(entry, document["settings"]) if entry and code else "")
    return Row(document["label"], document["seed"], state, document.get("commit", "").rstrip("+"))


def main() -> None:
    """Print the counts of each folder."""
    history = subprocess.run(["git", "-C", str(ROOT), "rev-list", "HEAD"], capture_output=True, text=True, check=True)
    known = {commit[:_COMMIT] for commit in history.stdout.split()}
    for folder in FOLDERS:
        stores = sorted({plain_path(path) for path in folder.glob("*.jsonl*")})
        found = [row for store in stores for row in rows(store)]
        states = Counter(row.state for row in found)
        lost = sum(bool(row.commit) and row.commit not in known for row in found)
        name = folder.relative_to(ROOT)
        print(f"{name}: {len(found):,} rows, {json.dumps(states)}; commit not in the history: {lost}")


if __name__ == "__main__":
    main()
