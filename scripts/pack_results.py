"""Compress the stores of results/ and studies/results/ into .jsonl.xz files, which all commands read.

Usage: python scripts/pack_results.py [STORE ...]

Without a STORE, all stores of both folders are packed. New results are appended to a plain file beside the packed one;
run this again to pack them, too.
"""

import sys
from pathlib import Path

from recfusion.core.jsonl import packed_path
from recfusion.experiments.result import pack_store

ROOT = Path(__file__).parents[1]


def size(path: Path) -> int:
    """Return the bytes of a file, 0 if it is missing."""
    return path.stat().st_size if path.is_file() else 0


def main() -> None:
    """Pack the stores and print their sizes."""
    named = [Path(name) for name in sys.argv[1:]]
    for store in named or [*ROOT.glob("results/*.jsonl"), *ROOT.glob("studies/results/*.jsonl")]:
        before = size(store) + (0 if store == packed_path(store) else size(packed_path(store)))
        packed = pack_store(store)
        print(f"{packed.name}: {before:,} -> {size(packed):,} bytes")


if __name__ == "__main__":
    main()
