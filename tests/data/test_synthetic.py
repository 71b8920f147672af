"""Made-up data: the same bytes for the same seed, the promised margins, and layouts that our own readers accept."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from recfusion.core.errors import InputError
from recfusion.data.catalog import read_named
from recfusion.data.load import load
from recfusion.data.synthetic import Chunk, Size, activity, chunks, make_world
from recfusion.data.synthetic_files import Form, generate

SIZE = Size(users=600, items=300, interactions=9_000)


def together(size: Size, seed: int, rows: int = 2_000) -> Chunk:
    """Return all rows of a seed at once."""
    parts = list(chunks(size, seed, rows=rows))
    assert len(parts) > 1
    user, item, time, liked = (
        np.concatenate([getattr(part, name) for part in parts]) for name in ("user", "item", "time", "liked")
    )
    return Chunk(user, item, time, liked, parts[0].rng)


@pytest.mark.parametrize("form", ["csv", "parquet", "ml-25m", "netflix"])
def test_the_same_seed_writes_the_same_bytes_and_another_seed_others(form: Form, tmp_path: Path) -> None:
    for name, seed in (("one", 1), ("again", 1), ("other", 2)):
        generate(SIZE, seed, form, tmp_path / name)
    files = {path.name: path.read_bytes() for path in (tmp_path / "one").iterdir()}
    assert {path.name: path.read_bytes() for path in (tmp_path / "again").iterdir()} == files
    assert all((tmp_path / "other" / name).read_bytes() != content for name, content in files.items())


def test_counts_are_exact_and_no_pair_comes_twice() -> None:
    found = together(SIZE, 0)
    assert len(found.user) == SIZE.interactions
    assert set(found.user) == set(range(SIZE.users))
    assert len(np.unique(found.user * SIZE.items + found.item)) == SIZE.interactions
    assert np.array_equal(np.bincount(found.user), activity(SIZE, 0))


def test_dense_data_with_histories_of_half_the_items_is_made_too() -> None:
    dense = Size(users=40, items=40, interactions=400)
    counts = activity(dense, 3)
    assert counts.sum() == 400
    assert counts.max() <= 20
    assert len({(u, i) for chunk in chunks(dense, 3) for u, i in zip(chunk.user, chunk.item, strict=True)}) == 400


def test_activity_is_log_normal_and_popularity_follows_zipf() -> None:
    size = Size(users=20_000, items=2_000, interactions=400_000)
    logs = np.log(activity(size, 0))
    assert logs.std() == pytest.approx(1.1, abs=0.1)
    assert abs(float(((logs - logs.mean()) ** 3).mean())) / logs.std() ** 3 < 0.3
    counts = np.sort(np.bincount(together(size, 0, rows=100_000).item, minlength=size.items))[::-1]
    ranks = np.arange(1, size.items + 1) + 10
    middle = slice(100, 1500)
    slope = np.polyfit(np.log(ranks[middle]), np.log(counts[middle]), 1)[0]
    assert -1.05 < slope < -0.75  # -1, but nobody has an item twice, which holds the head down


def test_users_return_to_their_topics_and_to_neighbours() -> None:
    """Pairs of a user's items lie in one topic, and side by side, far more often than pairs of two users' items."""
    size = Size(users=2_000, items=2_000, interactions=40_000)
    world, rows = make_world(size, 0), together(size, 0, rows=10_000)
    place = np.empty(size.items, np.int64)
    place[world.item] = np.arange(size.items)
    at = place[rows.item]
    topic = np.searchsorted(world.topics, at, side="right")
    own = np.flatnonzero(rows.user[:-1] == rows.user[1:])
    others = np.random.default_rng(0).permutation(len(at))
    same_topic, by_chance = (topic[own] == topic[own + 1]).mean(), (topic == topic[others]).mean()
    near, near_by_chance = (np.abs(at[own] - at[own + 1]) <= 12).mean(), (np.abs(at - at[others]) <= 12).mean()
    assert same_topic > 3 * by_chance
    assert near > 5 * near_by_chance


def test_times_ascend_within_a_user() -> None:
    rows = together(SIZE, 0)
    same = rows.user[1:] == rows.user[:-1]
    assert (np.diff(rows.time)[same] >= 0).all()


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_tables_load_with_text_ids_times_and_item_columns(form: Form, tmp_path: Path) -> None:
    generate(SIZE, 0, form, tmp_path / "made")
    data = load(tmp_path / "made" / f"interactions.{form}", items=tmp_path / "made" / f"items.{form}")
    assert data.steps[0].interactions == SIZE.interactions
    assert data.users.dtype == pl.String
    assert data.times is not None
    assert {"title", "category", "price", "stock"} <= set(data.item_table.columns)
    assert data.item_table["title"].null_count() == 0


@pytest.mark.parametrize(("form", "name"), [("ml-25m", "ml-25m"), ("netflix", "netflix")])
def test_published_layouts_are_read_as_the_published_sets_are(
    form: Form, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    generate(SIZE, 0, form, tmp_path / name)
    monkeypatch.setenv("RECFUSION_DATA", str(tmp_path))
    raw = read_named(name)
    (rows,) = chunks(SIZE, 0)
    assert raw.rows.height == SIZE.interactions
    pairs = set(zip(rows.user + 1, rows.item + 1, strict=True))
    assert set(zip(raw.rows["user"], raw.rows["item"], strict=True)) == pairs
    assert raw.rows["rating"].is_between(0.5, 5).all()
    assert raw.items is not None
    assert raw.items.height == SIZE.items


def test_a_stop_in_the_middle_leaves_what_was_there(tmp_path: Path) -> None:
    generate(SIZE, 0, "csv", tmp_path / "made")
    before = (tmp_path / "made" / "interactions.csv").read_bytes()

    def stop(_: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        generate(SIZE, 1, "csv", tmp_path / "made", on_rows=stop)
    assert [path.name for path in tmp_path.iterdir()] == ["made"]
    assert (tmp_path / "made" / "interactions.csv").read_bytes() == before


@pytest.mark.parametrize("size", [Size(2, 100, 50), Size(100, 100, 99), Size(100, 100, 2_501), Size(-5, 100, 50)])
def test_sizes_that_cannot_be_are_refused(size: Size, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="Expected"):
        generate(size, 0, "csv", tmp_path / "made")
    assert not list(tmp_path.iterdir())
