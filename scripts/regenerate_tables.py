"""Write every committed table of results/ and studies/results/ and the leaderboard again, or only compare them.

Usage: python scripts/regenerate_tables.py [--check]

With --check nothing is written; the exit code is 1 if a table differs.
"""

import runpy
import sys
from collections.abc import Mapping
from pathlib import Path

from recfusion.core.jsonl import plain_path
from recfusion.experiments.comparison import Comparison
from recfusion.experiments.result import read_results
from recfusion.paper.tables import TABLES
from recfusion.report.tables import results_markdown

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results"


def stores() -> list[Path]:
    """Return the stores, plain or packed, that have a table beside them."""
    found = sorted(
        {plain_path(path) for folder in (RESULTS, ROOT / "studies/results") for path in folder.glob("*.jsonl*")}
    )
    return [store for store in found if table_path(store).is_file()]


def table_path(store: Path) -> Path:
    """Return the path of a store's table."""
    return store.with_suffix(".md")


def table(store: Path) -> str:
    """Return the tables of a store as Markdown, as `recfusion report STORE --out NAME.md` writes them."""
    return results_markdown(Comparison.of(read_results(store), table=store.stem if store.stem in TABLES else None))


def texts() -> Mapping[Path, str]:
    """Return the text of every table by its path."""
    tuning = runpy.run_path(str(Path(__file__).with_name("tuning_summary.py")))
    searches = tuning["table"]([tuning["read"](path) for path in sorted(tuning["KEPT"].glob("*.json"))])
    leaders = runpy.run_path(str(Path(__file__).with_name("leaderboard.py")))["texts"]()
    return {table_path(store): table(store) for store in stores()} | {RESULTS / "tuning.md": searches} | leaders


def main() -> None:
    """Write or check the tables."""
    check, differing = sys.argv[1:] == ["--check"], []
    if sys.argv[1:] and not check:
        sys.exit(__doc__)
    for path, text in texts().items():
        if path.read_text(encoding="utf-8") != text:
            differing.append(path.name)
            if not check:
                path.write_text(text, encoding="utf-8")
        print(f"{path.name}: {'differs' if path.name in differing else 'identical'}")
    if check and differing:
        sys.exit(1)


if __name__ == "__main__":
    main()
