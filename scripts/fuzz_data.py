"""Hostile data files, made by mutation from a seed: reading must give interactions that account for every line, or one
sentence. `python scripts/fuzz_data.py --seconds 60` keeps each file that did otherwise."""

import argparse
import faulthandler
import gzip
import io
import logging
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import numpy as np
import polars as pl

from recfusion.core.errors import InputError
from recfusion.data.interactions import Interactions
from recfusion.data.load import load
from recfusion.data.readers import read_items
from recfusion.data.settings import Preparation
from recfusion.data.sniff import sniff_text

KINDS = (".csv", ".tsv", ".dat", ".jsonl", ".parquet", ".csv.gz", ".jsonl.gz")
SEPARATORS = (",", "\t", ";", "|", "::", " ")
LONGEST_MESSAGE = 3000
SECONDS = 120  # that a single file may take on any machine
TOKENS = (
    *(
        b'"',
        b'""',
        b'\\"',
        b"\n",
        b"\r\n",
        b"\r",
        b"\0",
        b"\xef\xbb\xbf",
        b"\xff",
        b"\xe9",
        b",",
        b";",
        b"\t",
        b"|",
        b"::",
    ),
    *(
        b" ",
        b"\x1f",
        b"\x1e",
        b"9" * 30,
        b"-1",
        b"1e400",
        b"nan",
        b"inf",
        b"0x1F",
        b"null",
        b"[",
        b"{",
        b"}",
        b"]",
        b'{"a":',
    ),
    *(
        b"user",
        b"item",
        b"rating",
        b"*",
        b"^.*$",
        b"2020-01-02",
        b"9999999-99-99",
        b"\x1f\x8b",
        b"x\x9c",
        b"PAR1",
        b"\xf0\x9f",
    ),
)


def seed_file(rng: np.random.Generator, kind: str) -> bytes:
    """Return a sound file of a kind, small and random."""
    rows = int(rng.integers(1, 40))
    text = bool(rng.integers(2))
    frame = pl.DataFrame(
        {
            "user": [f"u{n}" if text else n for n in rng.integers(0, 9, rows)],
            "item": [f'lamp, "no {n}"' if text else n for n in rng.integers(0, 9, rows)],
            "rating": rng.integers(1, 11, rows) / 2,
            "time": rng.integers(0, 2**31, rows),
        }
    )
    file = io.BytesIO()
    if kind == ".parquet":
        frame.write_parquet(file)
    elif kind.startswith(".jsonl"):
        frame.write_ndjson(file)
    else:
        quotes: Literal["always", "necessary"] = "always" if rng.integers(2) else "necessary"
        frame.write_csv(file, include_header=bool(rng.integers(4)), quote_style=quotes)
        return file.getvalue().replace(b",", str(rng.choice(SEPARATORS)).encode())
    return file.getvalue()


def mutated(rng: np.random.Generator, content: bytes) -> bytes:
    """Return the content with a few changes: tokens put in, pieces cut out, doubled or spoiled."""
    for _ in range(int(rng.integers(0, 8))):
        start, end = sorted(int(place) for place in rng.integers(0, len(content) + 1, 2))
        token = TOKENS[rng.integers(len(TOKENS))]
        change = rng.integers(8)
        if change == 0:
            content = content[:start] + content[min(end, start + 20) :]
        elif change == 1:
            content = content[:end] + content[start:end] + content[end:]
        elif change == 2:
            content = content[:start] + bytes(rng.integers(0, 256, 4, dtype=np.uint8)) + content[start + 4 :]
        elif change == 3 and rng.integers(4) == 0:
            content = content[:end]
        elif change == 4:
            content = content[:start] + token * int(rng.choice([2, 10, 70, 1500])) + content[start:]
        else:
            content = content[:start] + token + content[start:]
    if rng.integers(40) == 0:
        content = content.decode("latin-1").encode(str(rng.choice(["utf-16", "utf-8", "utf-32"])))
    return content


def hostile_file(rng: np.random.Generator, folder: Path, name: str) -> Path:
    """Write a file for a reader to fail on."""
    kind = str(rng.choice(KINDS))
    content = mutated(rng, seed_file(rng, kind))
    if kind.endswith(".gz"):
        content = gzip.compress(content, 1) + gzip.compress(content, 1) * int(rng.integers(2))
        content = mutated(rng, content) if rng.integers(3) == 0 else content
    path = folder / f"{name}{kind}"
    path.write_bytes(content)
    return path


def finding(path: Path, reader: Callable[..., Interactions] = load) -> tuple[str, str]:
    """Return what came of reading a file, and what is wrong with that: nothing where it is empty."""
    every = Preparation(min_rating=None, min_items_per_user=0, min_users_per_item=0)
    try:
        found = reader(path, every, max_bad_share=1.0)
    except InputError as error:
        return "refused", _wrong_sentence(error)
    except Exception as error:
        return "failed", f"{type(error).__name__}: {error}"
    except pl.exceptions.PanicException as error:
        return "failed", f"panic: {error}"
    report = found.report
    if report.rows != found.steps[0].interactions + report.missing + report.unparsable:
        return "read", f"{report} does not add up to {found.steps[0].interactions} rows"
    lines = _lines(path)
    if lines is not None and lines != report.rows + report.blank:
        return "read", f"{lines} lines, but {report.rows} rows and {report.blank} blank ones"
    return "read", ""


def item_finding(path: Path) -> tuple[str, str]:
    """Return what came of reading the file as one of items, and what is wrong with that."""
    try:
        read_items(path, "item")
    except InputError as error:
        return "items refused", _wrong_sentence(error)
    except Exception as error:
        return "items failed", f"{type(error).__name__}: {error}"
    except pl.exceptions.PanicException as error:
        return "items failed", f"panic: {error}"
    return "items read", ""


def _wrong_sentence(error: InputError) -> str:
    text = str(error)
    return (
        f"no sentence: {text[:200]!r}" if "\n" in text or len(text) > LONGEST_MESSAGE or not text.endswith(".") else ""
    )


def _lines(path: Path) -> int | None:
    """Return the lines below the header of a text, or those with something in them of JSON; None for Parquet."""
    if path.suffix == ".parquet":
        return None
    content = path.read_bytes()
    content = gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content
    if ".jsonl" in path.suffixes:
        return sum(1 for line in content.split(b"\n") if line.strip())
    lines = content.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    lines = lines if lines[-1] else lines[:-1]
    return len(lines) - sniff_text(path, None).skip_lines


def fuzz(first: int, cases: int, seconds: float, keep: Path | None = None) -> tuple[Counter[str], list[str]]:
    """Read `cases` files from the seed `first` on, for at most `seconds`; return what came of them, and findings."""
    counts: Counter[str] = Counter()
    wrong: list[str] = []
    end = time.monotonic() + seconds
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(first, first + cases):
            if time.monotonic() > end:
                break
            path = hostile_file(np.random.default_rng(seed), Path(folder if keep is None else keep), f"case-{seed}")
            # No signal reaches a loop outside Python; this ends the process, and leaves the file.
            faulthandler.dump_traceback_later(SECONDS, exit=True, file=2)
            outcomes = [finding(path), item_finding(path)]
            faulthandler.cancel_dump_traceback_later()
            counts.update(outcome for outcome, _ in outcomes)
            said = [f"seed {seed} ({path.name}): {what}" for _, what in outcomes if what]
            wrong += said
            if not said:
                path.unlink()
    return counts, wrong


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--cases", type=int, default=10**9, help="how many files at most")
    options.add_argument("--seconds", type=float, default=60.0, help="how long at most")
    options.add_argument("--seed", type=int, default=0, help="seed of the first file; the others count on from it")
    options.add_argument(
        "--keep", type=Path, default=Path("fuzz-findings"), help="folder for files that were not read well"
    )
    chosen = options.parse_args()
    chosen.keep.mkdir(parents=True, exist_ok=True)
    logging.disable(logging.WARNING)
    counts, wrong = fuzz(chosen.seed, chosen.cases, chosen.seconds, chosen.keep)
    print(f"{counts.total() // 2:,} files: {', '.join(f'{name} {count:,}' for name, count in sorted(counts.items()))}")
    for line in wrong:
        print(line)
    if not any(chosen.keep.iterdir()):
        shutil.rmtree(chosen.keep)
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
