"""The catalog: names, places and the embedded set."""

import os
import zipfile
from importlib import resources
from pathlib import Path

import pytest

from recfusion.core.errors import InputError
from recfusion.data.catalog import CATALOG, cache_folder, data_set, locate, read_named


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """Return an empty data folder and an empty cache, and make them the only places looked at."""
    data, cache = tmp_path / "data", tmp_path / "cache"
    data.mkdir()
    cache.mkdir()
    monkeypatch.setenv("RECFUSION_DATA", str(data))
    monkeypatch.setenv("RECFUSION_CACHE", str(cache))
    return data, cache


def write_ml_1m(folder: Path) -> Path:
    with zipfile.ZipFile(folder / "ml-1m.zip", "w") as archive:
        archive.writestr("ml-1m/ratings.dat", "1::10::5::978300760\n")
        archive.writestr("ml-1m/movies.dat", "10::Toy Story (1995)::Animation\n")
    return folder / "ml-1m.zip"


def test_the_catalog_lists_the_sets_by_name() -> None:
    movies = ["ml-latest-small", "ml-100k", "ml-1m", "ml-10m", "ml-20m", "ml-25m", "netflix"]
    assert list(CATALOG) == [*movies, "online-retail", "lastfm-2k", "gowalla"]
    for name, entry in CATALOG.items():
        assert entry.name == name
        assert (entry.url is None) == (entry.md5 is None)
        assert entry.licence.endswith(".")
        assert entry.citation


def test_an_unknown_name_lists_the_known_ones() -> None:
    for function in (data_set, locate, read_named):
        with pytest.raises(InputError, match="Unknown data set 'ml-2m': choose one of ml-latest-small, ml-100k, ml-1m"):
            function("ml-2m")


def test_the_embedded_set_needs_nothing_else(places: tuple[Path, Path]) -> None:
    raw = read_named("ml-latest-small")
    assert (raw.rows.height, raw.rows["user"].n_unique(), raw.rows["item"].n_unique()) == (100_004, 671, 9_066)
    assert raw.rows.columns == ["user", "item", "rating", "time"]
    assert raw.rows.row(0) == (1, 31, 2.5, 1260759144)
    assert raw.items is not None
    assert raw.items.height == 9_125
    assert raw.items.row(0) == (1, "Toy Story (1995)", "Adventure|Animation|Children|Comedy|Fantasy")
    assert raw.items["item"].dtype == raw.rows["item"].dtype
    assert raw.rows.join(raw.items, on="item", how="anti").is_empty()
    assert raw.report.notes == ()
    assert "commercial" in raw.licence
    assert "Harper" in raw.citation
    assert locate("ml-latest-small") is not None


def test_the_embedded_set_is_small_and_carries_its_terms() -> None:
    folder = resources.files("recfusion.data.embedded")
    files = {file.name: len(file.read_bytes()) for file in folder.iterdir() if file.name.startswith("ml-latest-small")}
    assert len(files) == 3
    assert sum(files.values()) < 1_000_000
    assert "Usage License" in folder.joinpath("ml-latest-small-README.txt").read_text(encoding="utf-8")
    assert "ommercial" in folder.joinpath("NOTICE.txt").read_text(encoding="utf-8")


def test_the_embedded_shop_has_quantities_returns_and_words_of_its_products(places: tuple[Path, Path]) -> None:
    raw = read_named("online-retail")
    assert (raw.rows.height, raw.rows["user"].n_unique(), raw.rows["item"].n_unique()) == (404_909, 4_363, 3_676)
    assert raw.rows["rating"].min() == -80_995
    assert raw.items is not None
    assert raw.items.columns == ["item", "title", "price"]
    assert raw.items.null_count().row(0) == (0, 0, 0)
    assert raw.report.columns["rating"] == "Quantity"
    assert raw.report.notes == ()
    assert "CC0" in raw.licence
    folder = resources.files("recfusion.data.embedded")
    assert "404,909 lines stay" in folder.joinpath("NOTICE.txt").read_text(encoding="utf-8")
    assert sum(len(f.read_bytes()) for f in folder.iterdir() if f.name.startswith("online-retail")) < 2_000_000


def test_play_counts_are_read_with_the_artists_names(places: tuple[Path, Path]) -> None:
    folder = places[0] / "hetrec2011-lastfm-2k"
    folder.mkdir()
    (folder / "user_artists.dat").write_bytes(b"userID\tartistID\tweight\r\n2\t51\t13883\r\n3\t51\t1\r\n")
    (folder / "artists.dat").write_bytes(b'id\tname\turl\tpictureURL\n51\tDuran "Duran"\thttp://x\t\n')
    raw = read_named("lastfm-2k")
    assert raw.rows.rows() == [(2, 51, 13883.0), (3, 51, 1.0)]
    assert raw.items is not None
    assert raw.items.rows() == [(51, 'Duran "Duran"')]
    assert raw.report.notes == ("2 rows were read; the publisher counts 92,834",)
    (folder / "user_artists.dat").write_bytes(b"userID\tartistID\n2\t51\n")
    with pytest.raises(InputError, match="Expected the columns userID, artistID, weight in user_artists"):
        read_named("lastfm-2k")


def test_the_data_folder_is_looked_at_before_the_cache(places: tuple[Path, Path]) -> None:
    data, cache = places
    assert locate("ml-1m") is None
    in_cache = write_ml_1m(cache)
    assert locate("ml-1m") == in_cache
    in_data = write_ml_1m(data)
    assert locate("ml-1m") == in_data


def test_several_data_folders_may_be_named(places: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    data, cache = places
    monkeypatch.setenv("RECFUSION_DATA", os.pathsep.join(["", str(cache / "none"), str(data)]))
    assert locate("ml-1m") is None
    archive = write_ml_1m(data)
    assert locate("ml-1m") == archive


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("ml-100k", "ml-100k/u.data"),
        ("ml-1m", "ml-1m/ml-1m/ratings.dat"),
        ("ml-10m", "ml-10m/ratings.dat"),
        ("ml-10m", "ml-10m/ml-10M100K/ratings.dat"),
        ("ml-10m", "ml-10M100K/ratings.dat"),
        ("ml-25m", "ml-25m/ratings.csv"),
        ("netflix", "netflix/combined_data_1.txt"),
        ("netflix", "nf_prize_dataset/download/training_set/mv_0000001.txt"),
        ("netflix", "download/training_set.tar"),
    ],
)
def test_an_unpacked_folder_is_found_by_what_it_holds(places: tuple[Path, Path], name: str, file: str) -> None:
    folder = places[0] / file.partition("/")[0]
    folder.mkdir()
    assert locate(name) is None
    (places[0] / file).parent.mkdir(parents=True, exist_ok=True)
    (places[0] / file).touch()
    assert locate(name) == folder


def test_a_missing_set_says_what_to_run_and_what_to_put_where(places: tuple[Path, Path]) -> None:
    with pytest.raises(InputError) as caught:
        read_named("ml-1m")
    message = str(caught.value)
    assert "'ml-1m' is not on this machine" in message
    assert "`recfusion data fetch ml-1m`" in message
    assert f"put ml-1m.zip or its unpacked folder ml-1m/ into '{places[0]}'" in message


def test_missing_netflix_is_not_offered_for_download(places: tuple[Path, Path]) -> None:
    with pytest.raises(InputError, match=r"put nf_prize_dataset\.tar\.gz") as caught:
        read_named("netflix")
    assert "fetch" not in str(caught.value)


def test_a_changed_archive_is_read_with_a_note(places: tuple[Path, Path]) -> None:
    write_ml_1m(places[0])
    raw = read_named("ml-1m")
    assert raw.rows.rows() == [(1, 10, 5.0, 978300760)]
    assert raw.licence == CATALOG["ml-1m"].licence
    checksum, count = raw.report.notes
    assert checksum.startswith("checksum differs from the publisher's: expected MD5 c4d9eecfca2ab87c1945afe126590906")
    assert count == "1 rows were read; the publisher counts 1,000,209"


def test_the_cache_follows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECFUSION_CACHE", "/own")
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    monkeypatch.setenv("HOME", "/home/someone")
    assert cache_folder() == Path("/own")
    monkeypatch.delenv("RECFUSION_CACHE")
    assert cache_folder() == Path("/xdg/recfusion")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == Path("/home/someone/.cache/recfusion")
