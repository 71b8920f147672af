"""Lists from Spark: those of the local path, also after an interruption."""

from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pytest

from recfusion.core.errors import InputError
from recfusion.data.interactions import Interactions
from recfusion.data.load import load
from recfusion.data.options import Preparation, Source
from recfusion.data.reading.reader import read_table
from recfusion.experiments.train import train
from recfusion.inference.bundle import Bundle
from recfusion.inference.histories import read_histories
from recfusion.inference.lists import ListMaker
from recfusion.inference.recommending import recommend_batches

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def users(groups: Interactions, tmp_path: Path) -> Path:
    """A table of 30 users with histories, one with unknown ids alone and one without any."""
    rows = groups.matrix.tocoo()
    known = [(f"n{row:02d}", f"i{column:02d}") for row, column in zip(*rows.coords, strict=True) if row < 30]
    listed = [*known, ("odd", "i99"), ("odd", "i98"), ("lone", None)]
    path = tmp_path / "users.parquet"
    pl.DataFrame(listed, schema=["user", "item"], orient="row").write_parquet(path)
    return path


def local(model: Path, users: Path, k: int) -> pl.DataFrame:
    bundle = Bundle.load(model)
    known = read_histories(bundle, read_table(users, Source(time="none"), lone_users=True).rows)
    return pl.concat(list(recommend_batches(ListMaker.of(bundle), known, k))).sort("user", "rank")


def test_lists_equal_those_of_the_local_path_and_finished_chunks_are_kept(
    session: "SparkSession", groups: Interactions, users: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from recfusion.spark import recommend
    from recfusion.spark import task_runner as tasks

    model = train("ease", groups, {"l2": 5}).save(tmp_path / "model")
    source, out = Source(data=str(users), time="none"), tmp_path / "lists"
    job = recommend.spark_recommend(session, model, source, out, k=5, chunks=2)
    done, counts = next(job)
    job.close()  # as if it were killed after the first chunk
    assert done == 1
    first = {file.name: file.stat().st_mtime_ns for file in (out / "_stages" / "lists").glob("part-*.parquet")}
    assert first
    with pytest.raises(InputError, match="another job"):
        next(recommend.spark_recommend(session, model, source, out, k=6, chunks=2))

    def nothing_to_do(_session: object, _work: object, given: list[object]) -> list[object]:
        assert not given
        return []

    with monkeypatch.context() as patch:
        patch.setattr(tasks, "run_tasks", nothing_to_do)  # that of pieces, which are there
        *_, (done, counts) = recommend.spark_recommend(session, model, source, out, k=5, chunks=2)
    assert (done, counts) == (2, recommend.ListCounts(users=32, unknown=2, empty=2))
    written = sorted(out.glob("part-*.parquet"))
    assert len(written) > len(first)
    assert all((out / name).stat().st_mtime_ns == time for name, time in first.items())
    found = pl.read_parquet(written).sort("user", "rank")
    assert found.equals(local(model, users, 5))
    assert found["basis"].value_counts().sort("basis")["count"].to_list() == [150, 10]
    assert list(recommend.spark_recommend(session, model, source, out, k=5, chunks=2)) == [(2, counts)]


def test_a_rating_on_the_threshold_counts_as_in_the_local_path(session: "SparkSession", tmp_path: Path) -> None:
    from recfusion.spark.recommend import spark_recommend

    ratings = [0.1, 0.7, 0.9]  # .7 is no float32
    rows = [(user, (user + 3 * step) % 12, ratings[(user + step) % 3]) for user in range(24) for step in range(9)]
    table = tmp_path / "rated.csv"
    pl.DataFrame(rows, schema=["user", "item", "rating"], orient="row").write_csv(table)
    source = Source(data=str(table), time="none")
    data = load(source, Preparation(min_rating=0.7, min_items_per_user=1, min_users_per_item=1))
    model = train("ease", data, {"l2": 5}, all_users=True).save(tmp_path / "model")
    *_, (_, counts) = spark_recommend(session, model, source, tmp_path / "lists", k=4, chunks=1)
    found = pl.read_parquet(sorted((tmp_path / "lists").glob("part-*.parquet"))).sort("user", "rank")
    assert (counts.users, counts.bad) == (24, 0)
    assert counts.disliked == sum(rating < 0.5 for _, _, rating in rows)
    assert found.equals(local(model, table, 4))


def test_grades_times_and_returns_count_as_in_the_local_path(session: "SparkSession", tmp_path: Path) -> None:
    from recfusion.spark.recommend import spark_recommend

    rows = [
        (user, (user + 5 * step) % 12, 1 + (user * step) % 5, 1000 * ((7 * step) % 9) + user)
        for user in range(24)
        for step in range(9)
    ]
    table = pl.DataFrame(rows, schema=["user", "item", "rating", "time"], orient="row")
    table.write_csv(tmp_path / "rated.csv")
    sold = table.select("user", "item", quantity=pl.col("rating") - 2, when="time")
    sold.write_csv(tmp_path / "sold.csv")
    rules = Preparation(min_items_per_user=1, min_users_per_item=1)
    settings = {"tune_trials": 0, "recency": 1.0, "l2": 5.0}
    for name, signals, model in (
        ("rated", "graded,timed", "thinning-signals"),
        ("sold", "graded", "thinning-signals"),
        ("sold", "binary", "thinning-linear"),
    ):
        source = Source(data=str(tmp_path / f"{name}.csv"), time=None if "timed" in signals else "none")
        given = settings if model == "thinning-signals" else {"tune_trials": 0}
        bundle = train(model, load(source, rules), given, all_users=True, signals=signals)
        folder = bundle.save(tmp_path / f"{name} {signals}")
        *_, (_, counts) = spark_recommend(session, folder, source, tmp_path / f"lists {name} {signals}", k=4, chunks=1)
        found = pl.read_parquet(sorted((tmp_path / f"lists {name} {signals}").glob("part-*.parquet")))
        known = read_histories(bundle, read_table(Path(source.data), source, lone_users=True).rows)
        wanted = pl.concat(list(recommend_batches(ListMaker.of(bundle), known, 4)))
        assert found.sort("user", "rank").equals(wanted.sort("user", "rank"))
        assert counts.disliked == known.disliked > 0


def test_a_model_of_times_needs_a_column_of_them(session: "SparkSession", tmp_path: Path) -> None:
    from recfusion.spark.recommend import spark_recommend

    rows = [(user, (user + 5 * step) % 12, 1000 * step + user) for user in range(24) for step in range(9)]
    table = pl.DataFrame(rows, schema=["user", "item", "time"], orient="row")
    data = load(table, Preparation(min_items_per_user=1, min_users_per_item=1), name="timed")
    folder = train("recent-popularity", data, all_users=True, signals="timed").save(tmp_path / "model")
    table.drop("time").write_csv(tmp_path / "users.csv")
    with pytest.raises(InputError, match="Expected a column of times, which this model reads"):
        next(spark_recommend(session, folder, Source(data=str(tmp_path / "users.csv")), tmp_path / "lists"))


def test_a_model_of_somebody_else_makes_lists_where_its_class_is_trusted(
    session: "SparkSession", groups: Interactions, users: Path, tmp_path: Path
) -> None:
    from recfusion.spark import recommend

    file = Path(__file__).parents[1] / "foreign.py"
    model = train(f"{file}:Mine", groups).save(tmp_path / "model")
    source = Source(data=str(users), time="none")
    with pytest.raises(InputError, match="if you trust it"):
        next(recommend.spark_recommend(session, model, source, tmp_path / "lists", k=3))
    trust = (f"{file}:Mine",)
    for _ in recommend.spark_recommend(session, model, source, tmp_path / "lists", k=3, chunks=1, trust=trust):
        pass
    lists = pl.read_parquet(sorted((tmp_path / "lists").glob("*.parquet")))
    assert lists["user"].n_unique() == 32
    assert len(lists) == 96
