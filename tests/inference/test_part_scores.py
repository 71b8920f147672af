"""Candidates with part scores: what each part of a mixture adds to a score, for a second-stage ranker."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from conftest import csr
from recfusion.cli import main as cli
from recfusion.core.errors import InputError
from recfusion.data.interactions import Interactions
from recfusion.data.load import load
from recfusion.experiments.train import train
from recfusion.inference.bundle import Bundle
from recfusion.inference.recommending import recommend
from recfusion.inference.request import Filters, Reranking
from recfusion.models.thinning.mixture import Thinning
from shop import with_rates

SETTINGS = {"members": "thinning-linear,thinning-local", "tune_trials": 0}
PARTS = ["part:thinning-linear", "part:thinning-local"]


@pytest.fixture(scope="module")
def bundle(groups: Interactions) -> Bundle:
    weights = {"thinning-linear": 0.7, "thinning-local": 0.3}
    return train("thinning", groups, SETTINGS | {"weights": weights}, signals="binary")


def sums(frame: pl.DataFrame, parts: Sequence[str]) -> list[float]:
    return frame.select(pl.sum_horizontal(parts).alias("sum"))["sum"].to_list()


def test_the_parts_are_weighted_standard_scores_and_add_up_to_the_score(bundle: Bundle) -> None:
    history = [1, 2, 11]
    found = recommend(bundle, {"u": [f"i{n:02d}" for n in history]}, k=6, parts=True).to_frame()
    assert found["score"].to_list() == pytest.approx(sums(found, PARTS), abs=1e-5)
    assert isinstance(bundle.model, Thinning)
    unseen = np.setdiff1d(np.arange(40), history)
    for name, part in bundle.model.parts_.items():
        scores = part.score(csr([history], 40))[0].astype(float)
        standard = (scores - scores[unseen].mean()) / scores[unseen].std() * bundle.model.weights_[name]
        items = [int(item[1:]) for item in found["item"]]
        assert found[f"part:{name}"].to_list() == pytest.approx(standard[items].tolist(), abs=1e-4)


def test_filters_are_allowed_and_popular_lists_have_no_parts(bundle: Bundle) -> None:
    filters = Filters(deny=["i03"], at_most={"title": 1})
    found = recommend(bundle, {"a": ["i01", "i02"], "b": []}, k=4, filters=filters, parts=True).to_frame()
    known, popular = found.filter(user="a"), found.filter(user="b")
    assert known["score"].to_list() == pytest.approx(sums(known, PARTS), abs=1e-5)
    assert "i03" not in known["item"]
    assert popular.select(pl.col(PARTS).null_count()).row(0) == (4, 4)


def test_new_items_and_users_whom_only_features_describe_have_parts_too(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = [(u, 10 * (u % 2) + i) for u in range(80) for i in rng.permutation(10)[:6]]
    items = pl.DataFrame({"item": range(22), "kind": ["Tea" if n < 10 or n == 20 else "Book" for n in range(22)]})
    pl.DataFrame(rows, schema=["user", "item"], orient="row").write_csv(tmp_path / "data.csv")
    items.write_csv(tmp_path / "items.csv")
    data = load(tmp_path / "data.csv", items=tmp_path / "items.csv")
    bundle = train("thinning", data, SETTINGS, signals="features")
    # Items 20 and 21 are in no history of the fit.
    found = recommend(bundle, {"known": [0, 1, 2], "new item only": [20]}, k=15, parts=True).to_frame()
    parts = [name for name in found.columns if name.startswith("part:")]
    assert "part:thinning-features" in parts
    assert found["score"].to_list() == pytest.approx(sums(found, parts), abs=1e-5)
    others = [name for name in parts if name != "part:thinning-features"]
    new = found.filter(user="known", item=20)
    assert new.select(others).row(0) == (0.0,) * len(others)
    assert new["part:thinning-features"][0] == pytest.approx(new["score"][0])


def test_what_has_no_part_scores_is_refused(bundle: Bundle, groups: Interactions) -> None:
    with pytest.raises(InputError, match="mixture"):
        recommend(train("ease", groups), {"a": ["i01"]}, parts=True)
    with pytest.raises(InputError, match="re-ranking"):
        recommend(bundle, {"a": ["i01"]}, parts=True, reranking=Reranking(popularity=0.5))
    with pytest.raises(InputError, match="bought items"):
        recommend(with_rates(bundle), {"a": ["i01"]}, parts=True, filters=Filters(again="allowed"))


def test_the_command_writes_a_column_per_part(bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, users, out = bundle.save(tmp_path / "model"), tmp_path / "users.csv", tmp_path / "candidates.parquet"
    pl.DataFrame({"user": ["a", "a", "b"], "item": ["i01", "i02", "i15"]}).write_csv(users)
    command = ["recommend", str(folder), "--histories", str(users), "--parts", "-k", "5", "--out", str(out)]
    monkeypatch.setattr("sys.argv", ["recfusion", *command])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert not stop.value.code
    found = pl.read_parquet(out)
    assert found.columns[:4] == ["user", "rank", "item", "score"]
    assert found.columns[-2:] == PARTS
    assert len(found) == 10
    assert found["score"].to_list() == pytest.approx(sums(found, PARTS), abs=1e-5)
