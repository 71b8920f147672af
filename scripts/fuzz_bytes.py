"""Files of every binary and JSON format with a few flipped bits or overwritten bytes, digests corrected.

Such a file is like the sound one in almost all of its bytes, so it gets past the first checks of a native parser.
"""

import gzip
import io
import lzma
import shutil
import sqlite3
import zipfile
from contextlib import closing
from functools import cache
from pathlib import Path

import numpy as np
import polars as pl
import torch
from fuzz_data import EVERY, LAYOUTS
from fuzz_folders import MODELS, place_folder, reseal, sound_folder, sound_results, use

from recfusion.core.errors import InputError
from recfusion.data.load import load
from recfusion.data.published.movielens import read_movielens
from recfusion.data.reading.item_file import read_items
from recfusion.experiments.result import read_results
from recfusion.inference.bundle import Bundle
from recfusion.inference.bundle_files import CONFIG, FILES
from recfusion.server.event_store import Event, Store
from recfusion.training.checkpoint import TrainState, load_checkpoint, save_checkpoint

EDGES = (0x00, 0x7F, 0x80, 0xFF)


def flipped(rng: np.random.Generator, content: bytes) -> bytes:
    """Return the content with one to three flipped bits, or one to eight bytes of an extreme value; seldom as it is."""
    if rng.integers(12) == 0:
        return content  # a check that refuses everything would go unnoticed
    changed = bytearray(content)
    start = int(rng.integers(len(changed)))
    if rng.integers(4) == 0:
        width = int(rng.integers(1, 9))
        changed[start : start + width] = bytes([EDGES[rng.integers(4)]]) * len(changed[start : start + width])
        return bytes(changed)
    for _ in range(int(rng.integers(1, 4))):
        changed[start] ^= 1 << int(rng.integers(8))
        start = int(rng.integers(len(changed)))
    return bytes(changed)


@cache
def _parquet(compression: str) -> bytes:
    file, numbers = io.BytesIO(), range(60)
    columns = {"user": [f"u{n % 9}" for n in numbers], "item": [n % 13 for n in numbers]}
    frame = pl.DataFrame({**columns, "rating": [1.0 + n % 5 for n in numbers], "tags": [["a", "b"]] * 60})
    frame.write_parquet(file, compression=compression, row_group_size=25)  # type: ignore[arg-type]
    return file.getvalue()


def parquet(rng: np.random.Generator, folder: Path) -> None:
    """Read a Parquet file as interactions or items."""
    path = folder / "case.parquet"
    path.write_bytes(flipped(rng, _parquet(str(rng.choice(["zstd", "snappy", "gzip", "lz4", "uncompressed"])))))
    if rng.integers(2):
        load(path, EVERY, max_bad_share=1.0)
    else:
        read_items(path, "item")


def sealed_folders(rng: np.random.Generator, folder: Path) -> None:
    """Load and use a model folder in which one file changed before its digests were made."""
    path = folder / "model"
    shutil.copytree(sound_folder(list(MODELS)[rng.integers(len(MODELS))]), path)
    file = path / str(rng.choice([*FILES, CONFIG]))
    file.write_bytes(flipped(rng, file.read_bytes()))
    reseal(path)
    use(Bundle.load(path, mapped=bool(rng.integers(2))), rng)


@cache
def _zipped() -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, content in LAYOUTS["ratings.csv"].items():
            packed.writestr(f"ml/{name}", content * 20 if name == "ratings.csv" else content)
    return file.getvalue()


def packed(rng: np.random.Generator, folder: Path) -> None:
    """Read a zip archive, a gzip file or a packed store."""
    kind = int(rng.integers(3))
    if kind == 0:
        (folder / "ml.zip").write_bytes(flipped(rng, _zipped()))
        read_movielens(folder / "ml.zip", "ml", "ratings.csv")
    elif kind == 1:
        content = gzip.compress(b"user,item\n" + b"".join(b"u%d,%d\n" % (n % 9, n % 13) for n in range(90)))
        (folder / "case.csv.gz").write_bytes(flipped(rng, content))
        load(folder / "case.csv.gz", EVERY, max_bad_share=1.0)
    else:
        (folder / "results.jsonl.xz").write_bytes(flipped(rng, lzma.compress(b"".join(sound_results()), preset=1)))
        read_results(folder / "results.jsonl")


@cache
def _events() -> bytes:
    path = Path(place_folder().name) / "events.db"
    with closing(Store(path)) as store, store.writing():
        store.add(Event(f"u{n % 7}", f"i{n % 20:02d}", "have" if n % 3 else "click", 1.5e9 + n) for n in range(80))
        store.change({"i01": {"stock": 3, "title": "New"}, "i02": {"price": 2.5}})
        store.add_shown({(20_000, "model", "", n): 5 for n in range(10)}, {(20_000, "i01"): 4})
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA journal_mode = DELETE")
    return path.read_bytes()


def events(rng: np.random.Generator, folder: Path) -> None:
    """Open a file of events and read its tables."""
    path = folder / "events.db"
    path.write_bytes(flipped(rng, _events()))
    try:
        with closing(Store(path, create=False)) as store:
            for columns in ("user, item, kind, time FROM events", "item, name, value FROM changes"):
                store.rows(f"SELECT {columns}")
            store.is_forgotten("u1")
    except sqlite3.Error as error:  # the service answers 503, the command line prints a sentence
        raise InputError(f"The database is damaged ({str(error).splitlines()[0]}).") from None


def _training() -> TrainState:
    net = torch.nn.Linear(3, 2)
    return TrainState(net, torch.optim.AdamW(net.parameters()), torch.Generator())


def checkpoints(rng: np.random.Generator, folder: Path) -> None:
    """Resume from a checkpoint."""
    path = folder / "state.safetensors"
    save_checkpoint(path, _training(), "run")
    path.write_bytes(flipped(rng, path.read_bytes()))
    load_checkpoint(path, _training(), "run")


TARGETS = {
    "parquet": parquet,
    "sealed": sealed_folders,
    "packed": packed,
    "events": events,
    "checkpoints": checkpoints,
}
