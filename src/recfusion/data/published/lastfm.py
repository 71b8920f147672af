"""Reader for the play counts of Last.fm listeners (HetRec 2011)."""

from pathlib import Path

import polars as pl

from recfusion.data.interactions import RawData, ReadReport
from recfusion.data.published.archive import Archive, changed_copy
from recfusion.data.published.checked_tables import Layout, has_file, headed_table

PLAYS, ARTISTS = "user_artists.dat", "artists.dat"
_PLAYS = {"userID": pl.Int64, "artistID": pl.Int64, "weight": pl.Float32}
_ARTISTS = {"id": pl.Int64, "name": pl.String, "url": pl.String, "pictureURL": pl.String}


def read_lastfm(path: Path, name: str) -> RawData:
    """Read play counts and artist names from a folder or zip archive at `path`."""
    source = Archive(path)
    rows = headed_table(_utf8(source.read(PLAYS)), _PLAYS, f"{PLAYS} of '{path}'", "\t")
    artists = headed_table(_utf8(source.read(ARTISTS)), _ARTISTS, f"{ARTISTS} of '{path}'", "\t")
    columns = {"user": "userID", "item": "artistID", "rating": "weight"}
    rows = rows.rename({column: role for role, column in columns.items()})
    if (gaps := rows.null_count().sum_horizontal().item()) or rows.is_empty():
        raise changed_copy(
            f"Expected a user, an artist and a count in each line of {PLAYS} of '{path}', {gaps} lack one"
        )
    items = artists.select(item="id", title="name").drop_nulls("item").unique("item", keep="first", maintain_order=True)
    return RawData(name, rows, items, ReadReport(rows.height, columns))


def _utf8(data: bytes) -> bytes:
    return data.decode("utf-8", errors="replace").replace("\r\n", "\n").encode()


LASTFM = Layout(read_lastfm, has_file(PLAYS))
