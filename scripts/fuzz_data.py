"""Random data files and archives: readers must read or count every line, or refuse the file."""

import gzip
import io
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np
import polars as pl
from hostile import mutated

from recfusion.data.interactions import Interactions, RawData
from recfusion.data.load import load
from recfusion.data.options import Preparation
from recfusion.data.published.movielens import read_movielens
from recfusion.data.published.netflix import read_netflix
from recfusion.data.reading.columns import sniff_text
from recfusion.data.reading.encodings import find_encoding
from recfusion.data.reading.item_file import read_items

KINDS = (".csv", ".tsv", ".dat", ".jsonl", ".parquet", ".csv.gz", ".jsonl.gz")
SEPARATORS = (",", "\t", ";", "|", "::", " ")
EVERY = Preparation(min_rating=None, min_items_per_user=0, min_users_per_item=0)


def seed_file(rng: np.random.Generator, kind: str) -> bytes:
    """Return a valid small random file of a kind."""
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


def hostile_file(rng: np.random.Generator, folder: Path) -> Path:
    """Write a damaged file."""
    kind = str(rng.choice(KINDS))
    content = mutated(rng, seed_file(rng, kind))
    if rng.integers(40) == 0:
        content = content.decode("latin-1").encode(str(rng.choice(["utf-16", "utf-8", "utf-32"])))
    if kind.endswith(".gz"):
        content = gzip.compress(content, 1) + gzip.compress(content, 1) * int(rng.integers(2))
        content = mutated(rng, content) if rng.integers(3) == 0 else content
    path = folder / f"case{kind}"
    path.write_bytes(content)
    return path


def data(rng: np.random.Generator, folder: Path) -> None:
    """Read a file of interactions."""
    read_whole(hostile_file(rng, folder))


def read_whole(path: Path, reader: Callable[..., Interactions] = load) -> None:
    """Read a file and raise unless every line was read or counted."""
    found = reader(path, EVERY, max_bad_share=1.0)
    report = found.report
    if report.rows != found.steps[0].interactions + report.missing + report.unparsable:
        raise AssertionError(f"{report} does not add up to {found.steps[0].interactions} rows")
    lines = _lines(path)
    if lines is not None and lines != report.rows + report.blank:
        raise AssertionError(f"{lines} lines, but {report.rows} rows and {report.blank} blank ones")


def items(rng: np.random.Generator, folder: Path) -> None:
    """Read a file of items."""
    read_items(hostile_file(rng, folder), "item")


def _lines(path: Path) -> int | None:
    """Return the number of lines below the header of a text, or of lines of JSON; None for Parquet."""
    if path.suffix == ".parquet":
        return None
    content = path.read_bytes()
    content = gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content
    layout = None if ".jsonl" in path.suffixes else sniff_text(path, None)
    encoding = find_encoding(content, path) if layout is None else layout.encoding
    text = content if encoding == "utf-8" else content.decode(encoding, errors="replace").encode()
    lines = text.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    lines = lines if lines[-1] else lines[:-1]
    return len(lines) - (0 if layout is None else layout.skip_lines)


NAMES = ("../x", "/etc/passwd", "C:\\x", "a/../../x", "a\0b", "\ud800", "x" * 300, ".", "ml/u.data", "ml/ratings.dat")
LAYOUTS: dict[Any, dict[str, bytes]] = {
    "u.data": {"u.data": b"1\t2\t5\t978300760\n" * 5, "u.item": b"2|Heat (1995)|x||y" + b"|0" * 18 + b"|1\n"},
    "ratings.dat": {"ratings.dat": b"1::2::5::978300760\n" * 5, "movies.dat": b"2::Heat (1995)::Drama|War\n"},
    "ratings.csv": {
        "ratings.csv": b"userId,movieId,rating,timestamp\n" + b"1,2,4.5,978300760\n" * 5,
        "movies.csv": b'movieId,title,genres\n2,"Heat, The (1995)",Drama|War\n',
    },
}
PRIZE = {
    "movie_titles.txt": b"1,2003,Dinosaur Planet\n2,NULL,Isle, of Man\n",
    "training_set/mv_0000001.txt": b"1:\n7,5,2005-01-01\n8,3,2005-12-31\n",
    "training_set/mv_0000002.txt": b"2:\n7,1,1999-11-11\n",
}


def archives(rng: np.random.Generator, folder: Path) -> None:
    """Read published data from an archive or a folder."""
    prize = rng.integers(3) == 0
    layout = list(LAYOUTS)[rng.integers(len(LAYOUTS))]
    files = dict(PRIZE if prize else LAYOUTS[layout])
    for name in list(files):
        if rng.integers(2):
            files[name] = mutated(rng, files[name], 3)
    if rng.integers(3) == 0:
        files[NAMES[rng.integers(len(NAMES))]] = mutated(rng, b"1\t2\t3\t4\n")
    path = folder / ("nf_prize_dataset.tar.gz" if prize else "ml.zip")
    content = _tar(rng, files) if prize else _zip(rng, files)
    path.write_bytes(mutated(rng, content, 4) if rng.integers(2) else content)
    found = read_netflix(path, "netflix") if prize else read_movielens(path, "ml", layout)
    _check_rows(found)


def _check_rows(found: RawData) -> None:
    for column in ("user", "item", "rating"):
        if found.rows[column].null_count():
            raise AssertionError(
                f"{found.rows[column].null_count()} of {len(found.rows)} cells of {column} are missing"
            )


def _zip(rng: np.random.Generator, files: dict[str, bytes]) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED if rng.integers(2) else zipfile.ZIP_STORED) as packed:
        for name, content in files.items():
            info = zipfile.ZipInfo(name.encode("utf-8", "replace").decode())
            info.external_attr = int(rng.choice([0o100644, 0o120777])) << 16 if rng.integers(20) == 0 else 0
            packed.writestr(info, content)
    return file.getvalue()


def _tar(rng: np.random.Generator, files: dict[str, bytes]) -> bytes:
    """Return a gzipped tar; rarely, the training set is a tar inside it, as in the published archive."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz" if rng.integers(8) else "w") as packed:
        for name, content in files.items():
            info = tarfile.TarInfo(name.encode("utf-8", "replace").decode())
            info.size = len(content)
            if rng.integers(20) == 0:
                info.type = bytes(rng.choice([tarfile.SYMTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE]))
            packed.addfile(info, io.BytesIO(content))
    return file.getvalue()


TARGETS = {"data": data, "items": items, "archives": archives}
