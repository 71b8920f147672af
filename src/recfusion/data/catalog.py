"""The catalog of named data sets. To add one, add an entry to `_SETS`; a new file layout also needs a reader."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import polars as pl
import polars.selectors as cs

from recfusion.core.errors import InputError, choices
from recfusion.core.parquet import read_parquet
from recfusion.data.interactions import RawData, ReadReport
from recfusion.data.options import PUBLISHED
from recfusion.data.published.archive import md5_of, reading
from recfusion.data.published.checked_tables import Layout
from recfusion.data.published.gowalla import GOWALLA
from recfusion.data.published.lastfm import LASTFM
from recfusion.data.published.movielens import movielens
from recfusion.data.published.netflix import NETFLIX

_PUBLISHER = "https://files.grouplens.org/datasets/movielens/"
_RESEARCH = (
    "Research use with acknowledgement; no commercial use and no redistribution without permission of GroupLens, "
    "University of Minnesota."
)
_HARPER = (
    "F. Maxwell Harper and Joseph A. Konstan. 2015. The MovieLens Datasets: History and Context. ACM Transactions on "
    "Interactive Intelligent Systems (TiiS) 5, 4, Article 19 (December 2015), 19 pages. "
    "DOI=http://dx.doi.org/10.1145/2827872"
)


@dataclass(frozen=True)
class DataSet:
    """One named data set; the defaults are those of MovieLens."""

    name: str
    title: str
    layout: Layout
    ratings: int  # rows according to the publisher
    md5: str | None = None  # of the archive, according to the publisher; None: it cannot be downloaded
    licence: str = _RESEARCH
    citation: str = _HARPER
    archive: str = ""  # file name; by default the name and .zip
    folders: tuple[str, ...] = ()  # other names of the unpacked folder
    absent: str = "its publisher no longer offers it"  # why it cannot be downloaded

    def __post_init__(self) -> None:
        object.__setattr__(self, "archive", self.archive or f"{self.name}.zip")

    @property
    def url(self) -> str | None:
        """The publisher's address, if it can be downloaded."""
        return f"{_PUBLISHER}{self.archive}" if self.md5 else None


def _embedded(*columns: str) -> Layout:
    """Return the layout of a data set in the package; `columns` are the names in its source."""

    def read(folder: Path, name: str) -> RawData:
        files = (folder / f"{name}-{part}.parquet" for part in ("ratings", "items"))
        rows, items = (read_parquet(file).cast({cs.integer(): pl.Int64}) for file in files)
        roles = dict(zip(("user", "item", "rating", "time"), columns, strict=True))
        return RawData(name, rows.cast({"rating": pl.Float32}), items, ReadReport(rows.height, roles))

    return Layout(read, lambda _: True, embedded=True)


_SETS = (
    DataSet(
        *("ml-latest-small", "MovieLens latest small, edition of October 2016 (embedded)"),
        *(_embedded("userId", "movieId", "rating", "timestamp"), 100_004),
        licence="Research use with acknowledgement; may be redistributed under the same conditions; no commercial use "
        "without permission of GroupLens, University of Minnesota.",
    ),
    DataSet("ml-100k", "MovieLens 100K", movielens("u.data"), 100_000, "0e33842e24a9c977be4e0107933c0723"),
    DataSet("ml-1m", "MovieLens 1M", movielens("ratings.dat"), 1_000_209, "c4d9eecfca2ab87c1945afe126590906"),
    DataSet(
        *("ml-10m", "MovieLens 10M", movielens("ratings.dat"), 10_000_054, "ce571fd55effeba0271552578f2648bd"),
        folders=("ml-10M100K",),
    ),
    DataSet("ml-20m", "MovieLens 20M", movielens("ratings.csv"), 20_000_263, "cd245b17a1ae2cc31bb14903e1204af3"),
    DataSet("ml-25m", "MovieLens 25M", movielens("ratings.csv"), 25_000_095, "6b51fb2759a8657d3bfcbfc42b592ada"),
    DataSet(
        *("netflix", "Netflix Prize", NETFLIX, 100_480_507),
        licence="Research use with acknowledgement; no commercial use or redistribution without permission of Netflix.",
        citation="James Bennett and Stan Lanning. 2007. The Netflix Prize. In Proceedings of KDD Cup and Workshop "
        "2007, San Jose, California.",
        archive="nf_prize_dataset.tar.gz",
        folders=("nf_prize_dataset", "download"),
    ),
    DataSet(
        *("online-retail", "Invoice lines of a British online shop, 2010 and 2011 (embedded)"),
        *(_embedded("CustomerID", "StockCode", "Quantity", "InvoiceDate"), 404_909),
        licence="CC0: no rights reserved.",
        citation="Daqing Chen, Sai Laing Sain and Kun Guo. 2012. Data mining for the online retail industry: A case "
        "study of RFM model-based customer segmentation using data mining. Journal of Database Marketing and Customer "
        "Strategy Management 19, 3, 197-208. DOI=http://dx.doi.org/10.1057/dbm.2012.17",
    ),
    DataSet(
        *("lastfm-2k", "Play counts of Last.fm listeners (HetRec 2011)", LASTFM, 92_834),
        licence="Research use with acknowledgement; no commercial use and no redistribution without permission.",
        citation="Iván Cantador, Peter Brusilovsky and Tsvi Kuflik. 2011. Second workshop on information heterogeneity "
        "and fusion in recommender systems (HetRec 2011). In Proceedings of RecSys 2011, Chicago, Illinois.",
        archive="hetrec2011-lastfm-2k.zip",
        folders=("hetrec2011-lastfm-2k",),
        absent="its publisher gives no checksum for it",
    ),
    DataSet(
        *("gowalla", "Check-ins of Gowalla in the published split of LightGCN", GOWALLA, 1_027_370),
        licence="Research use with acknowledgement; no redistribution without permission.",
        citation="Eunjoon Cho, Seth A. Myers and Jure Leskovec. 2011. Friendship and Mobility: User Movement in "
        "Location-Based Social Networks. In Proceedings of KDD 2011, San Diego, California. Split: Xiangnan He et al. "
        "2020. LightGCN. In Proceedings of SIGIR 2020.",
        absent="its authors publish it as train.txt and test.txt beside their code",
    ),
)
CATALOG: Mapping[str, DataSet] = {entry.name: entry for entry in _SETS}


def data_set(name: str) -> DataSet:
    """Return the entry called `name`; raise for an unknown name."""
    if name not in CATALOG:
        raise choices("data set", name, CATALOG, "data")
    return CATALOG[name]


def cache_folder() -> Path:
    """Return the folder for downloads: RECFUSION_CACHE, else `recfusion` in XDG_CACHE_HOME or ~/.cache."""
    elsewhere = f"{os.environ.get('XDG_CACHE_HOME') or '~/.cache'}/recfusion"
    return _expanded(os.environ.get("RECFUSION_CACHE") or elsewhere, "RECFUSION_CACHE")


def data_folders() -> Iterator[Path]:
    """Yield the folders that are searched for local copies: those of RECFUSION_DATA, then the cache."""
    named = [part for part in os.environ.get("RECFUSION_DATA", "").split(os.pathsep) if part]
    yield from (_expanded(part, "RECFUSION_DATA") for part in named)
    yield cache_folder()


def _expanded(folder: str, variable: str) -> Path:
    try:
        return Path(folder).expanduser()
    except RuntimeError:  # no such user, or one without a home
        raise InputError(
            f"Expected a folder, got '{folder}' without a home folder: set {variable} to an absolute path."
        ) from None


def locate(name: str) -> Path | None:
    """Return the archive or folder of a data set on this machine, or None."""
    entry = data_set(name)
    if entry.layout.embedded:
        return Path(__file__).parent / "embedded"
    for folder in data_folders():
        with reading(folder):
            if (folder / entry.archive).is_file():
                return folder / entry.archive
            for unpacked in (folder / name for name in (entry.name, *entry.folders)):
                if unpacked.is_dir() and entry.layout.is_folder(unpacked):
                    return unpacked
    return None


def read_named(name: str) -> RawData:
    """Read a data set from the package or from this machine; nothing is downloaded."""
    entry, path = data_set(name), locate(name)
    if path is None:
        raise InputError(f"The data set '{name}' is not on this machine: {how_to_get(entry)}", "data")
    raw = entry.layout.read(path, name)
    report = replace(raw.report, notes=tuple(_differences(entry, path, raw.rows.height)))
    return replace(raw, report=report, licence=entry.licence, citation=entry.citation)


def read_named_users(name: str) -> pl.DataFrame:
    """Read the table of users that is published with a named data set."""
    path = locate(name)
    found = None if path is None else data_set(name).layout.read_users(path)
    if found is None:
        raise InputError(
            f"Expected a file at --users-file, got '{PUBLISHED}', but '{name}' publishes no table of users (ml-100k "
            "and ml-1m do): name a file.",
            "users_file",
        )
    return found


def how_to_get(entry: DataSet) -> str:
    """Return how to get a missing data set onto this machine, as the end of a sentence."""
    how = f"run `recfusion data fetch {entry.name}`, or" if entry.url else f"{entry.absent}, so"
    place = f"put {entry.archive} or its unpacked folder {entry.name}/ into '{next(data_folders())}'"
    return f"{how} {place}, or into a folder that RECFUSION_DATA names."


def _differences(entry: DataSet, path: Path, rows: int) -> Iterator[str]:
    """Yield a note for each difference between a local copy and the published data set."""
    if entry.md5 is not None and path.is_file() and (got := md5_of(path)) != entry.md5:
        yield f"checksum differs from the publisher's: expected MD5 {entry.md5}, got {got} for {path.name}"
    if rows != entry.ratings:
        yield f"{rows:,} rows were read; the publisher counts {entry.ratings:,}"
