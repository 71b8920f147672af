"""Comparing in one call: our models and anybody's, here and in processes, with and without a store."""

import json
import logging
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import pytest
from fitted import METRICS, fits

import foreign
import recfusion as rf
from foreign import Mine
from recfusion.core.arrays import Csr
from recfusion.core.errors import InputError
from recfusion.data.interactions import Interactions
from recfusion.data.load import load
from recfusion.experiments.comparison import Comparison, compare
from recfusion.experiments.result import newest_source, read_results
from recfusion.experiments.run import Event
from recfusion.models import class_loading as places
from recfusion.models.linear.ease import EASE


def means(comparison: rf.Comparison) -> dict[str, float]:
    return {label: model.mean("ndcg@10") for label, model in comparison.models.items()}


def test_an_instance_of_somebody_s_class_stands_beside_our_models(groups: Interactions) -> None:
    found = compare(groups, {"mine": Mine(power=1.0), "ease": EASE(l2=10), "popularity": {}}, [4, 5], metrics=METRICS)
    assert list(found.models) == ["mine", "ease", "popularity"]
    mine = found.models["mine"]
    assert (mine.model, mine.title, mine.place) == ("Mine", "popularity with a power, for tests", "foreign:Mine")
    assert mine.settings == {"power": 1.0, "note": ""}
    assert means(found)["mine"] == means(found)["popularity"]  # whose order it has
    assert found.reference == "ease"
    test = found.test("ndcg@10", "mine", "ease")
    assert test is not None
    assert test.of("mine")[0] == pytest.approx(means(found)["mine"] - means(found)["ease"])


def test_an_instance_gives_the_numbers_of_its_name(groups: Interactions) -> None:
    by_name = compare(groups, {"ease": {"l2": 10}}, [4, 5], metrics=METRICS)
    assert means(compare(groups, {"x": EASE(l2=10)}, [4, 5], metrics=METRICS)) == {"x": means(by_name)["ease"]}
    assert compare(groups, ["ease"], 2, metrics=METRICS).seeds == (0, 1)


def test_files_run_in_other_processes_and_a_function_s_class_in_this_one(
    groups: Interactions, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    @dataclass
    class Local(Mine):
        """Of a function."""

    shutil.copy(foreign.__file__, tmp_path / "mine.py")
    notes = {name: str(tmp_path / name) for name in ("file", "module", "local")}
    models = {
        "file": rf.make_model(f"{tmp_path}/mine.py:Mine", {"note": notes["file"]}),
        "module": Mine(note=notes["module"]),
        "local": Local(note=notes["local"]),
    }
    with caplog.at_level(logging.WARNING):
        found = compare(groups, models, [4], metrics=METRICS, workers=1)
    assert caplog.messages == ["local is fitted in this process: other processes cannot import its class."]
    where = {name: Path(note).read_text().split() for name, note in notes.items()}
    assert where["local"] == [str(os.getpid())]
    assert where["file"] == where["module"] != where["local"]
    assert len(set(means(found).values())) == 1
    assert means(found)["file"] == fits(groups, {"mine": Mine()}, [4])[0].mean()["ndcg@10"]


_NOTEBOOK = """
import logging, sys
from dataclasses import dataclass
import numpy as np
import recfusion as rf

logging.basicConfig(format="%(message)s", stream=sys.stdout)

@dataclass
class Mine(rf.Recommender):
    power: float = rf.setting(0.5, "exponent")
    scores_: np.ndarray = rf.learned()

    def fit(self, train, valid=None, *, rng=None):
        self.scores_ = (np.bincount(train.indices, minlength=train.shape[1]) ** self.power).astype(np.float32)
        return self

    def score(self, history):
        return np.tile(self.scores_, (history.shape[0], 1))

found = rf.compare(rf.load("ml-latest-small"), {"mine": Mine()}, workers=2, store=sys.argv[1])
print(len(rf.read_results(sys.argv[1])[0].source))
"""


def test_a_class_that_was_typed_in_is_fitted_where_it_was_typed(tmp_path: Path) -> None:
    """As in a notebook: the class is of __main__, and no file has its source."""
    run = subprocess.run(
        [sys.executable, "-", str(tmp_path / "s.jsonl")], input=_NOTEBOOK, capture_output=True, text=True, check=False
    )
    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout.splitlines() == ["mine is fitted in this process: other processes cannot import its class.", "16"]


def forget() -> None:
    """Forget what was imported from files, as a new process does."""
    places.load_class.cache_clear()
    places.load_file.cache_clear()


def test_an_edited_model_is_fitted_again_and_the_old_results_stay(
    groups: Interactions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    file, store = tmp_path / "mine.py", tmp_path / "s.jsonl"
    first = Path(foreign.__file__).read_text()
    edited = first.replace("counts**self.power", "-(counts**self.power)")
    found = []
    for text in (first, edited, first):
        file.write_text(text)
        forget()
        found.append(means(compare(groups, {"mine": "mine.py:Mine"}, [4], metrics=METRICS, store=store))["mine"])
    assert found[0] == found[2] != found[1]
    assert caplog.text.count("Stored results of other code are fitted again") == 1  # the second
    one, two = read_results(store)  # the third was not fitted
    assert newest_source([one, two]) == [two]
    file.write_text(edited + "# once more")
    forget()
    kept = compare(groups, {"mine": "mine.py:Mine"}, [4], metrics=METRICS, store=store, keep_stale=True)
    assert means(kept)["mine"] == found[1]
    assert "Stored results of other code are used" in caplog.text
    assert (one.settings, one.place) == (two.settings, two.place)
    assert one.source != two.source
    with pytest.raises(InputError, match="one set of settings for mine"):
        rf.Comparison.of([one, two.model_copy(update={"seed": 5})])


def test_only_what_a_store_lacks_is_fitted(groups: Interactions, tmp_path: Path) -> None:
    store = tmp_path / "s.jsonl"
    compare(groups, {"mine": Mine(), "ease": EASE(l2=10)}, [4], metrics=METRICS, store=store)
    before = store.read_bytes()
    finished: list[str] = []

    def hear(event: Event) -> None:
        if event.kind == "finished":
            finished.append(str(event.task))

    models = {"mine": Mine(), "ease": EASE(l2=11), "other": Mine()}
    found = compare(groups, models, [4, 5], metrics=METRICS, store=store, on_event=hear)
    assert finished == ["ease, split 4", "other, split 4", "mine, split 5", "ease, split 5", "other, split 5"]
    assert store.read_bytes().startswith(before)
    assert len(found.models) == 3


def test_the_same_comparison_gives_the_same_numbers(groups: Interactions) -> None:
    one, two = (compare(groups, {"random": {}, "ease": {"l2": 10}}, [4, 5], metrics=METRICS) for _ in range(2))
    assert means(one) == means(two)
    assert (one.tests, one.differences) == (two.tests, two.differences)


def test_nothing_of_a_comparison_depends_on_the_other_models(groups: Interactions) -> None:
    alone = compare(groups, ["random"], [4], metrics=METRICS)
    together = compare(groups, {"mine": Mine(), "x": "random", "random": {}}, [4], metrics=METRICS)
    assert means(together)["random"] == means(together)["x"] == means(alone)["random"]


@dataclass
class Failing(Mine):
    """A model whose fit raises."""

    kind: str = rf.setting("input", "what is raised")

    def fit(self, train: Csr, valid: rf.Fold | None = None, *, rng: object = None) -> Self:
        if self.kind == "input":
            raise InputError("It needs more users.")
        raise ZeroDivisionError("by nothing")


def test_a_fit_that_fails_ends_the_comparison_with_its_sentence(
    groups: Interactions, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = tmp_path / "s.jsonl"
    with pytest.raises(InputError, match=r"The fit of bad, split 0 failed: It needs more users\."):
        compare(groups, {"bad": Failing(), "mine": Mine()}, store=store)
    assert [one.label for one in read_results(store)] == ["mine"]  # what was paid for is kept
    assert caplog.text == ""
    with pytest.raises(InputError, match="failed: ZeroDivisionError: by nothing"):
        compare(groups, {"bad": Failing(kind="other")})
    assert "Traceback" in caplog.text


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"splits": 0}, "Expected 1 to 10,000 splits in splits, got 0"),
        ({"splits": []}, "Expected a number of splits, or a list of different seeds"),
        ({"splits": [1, 1]}, "Expected a number of splits, or a list of different seeds"),
        ({"splits": [-1]}, "Expected a number of splits, or a list of different seeds"),
        ({"metrics": ["speed@3"]}, "Unknown metric 'speed@3'"),
        ({"metrics": []}, "Expected at least one metric"),
        ({"reference": "slim"}, "Unknown model to test against 'slim': choose one of mine"),
        ({"workers": -1}, "Expected at least one worker, or 0 for this process, got -1"),
        ({"splits": 2.5}, "Expected a number of splits, or a list of different seeds from 0, in splits, got 2.5"),
        ({"splits": "3"}, "Expected a number of splits, or a list of different seeds from 0, in splits, got '3'"),
        ({"splits": [1.0]}, "Expected a number of splits, or a list of different seeds from 0, in splits, got [1.0]"),
    ],
)
def test_what_cannot_be_compared_is_refused_before_anything_is_fitted(
    groups: Interactions, tmp_path: Path, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(InputError) as refused:
        compare(groups, {"mine": Mine(note=str(tmp_path / "note"))}, **options)
    assert words in str(refused.value)
    assert not (tmp_path / "note").exists()


def test_a_store_that_is_none_is_refused_before_anything_is_fitted(groups: Interactions, tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    note = tmp_path / "note"
    for store in (tmp_path, tmp_path / "thesis.txt", tmp_path / "thesis.txt" / "below"):
        with pytest.raises(InputError):
            compare(groups, {"mine": Mine(note=str(note))}, store=store)
    assert not note.exists()


@pytest.mark.slow
def test_the_paper_s_table_comes_out_on_ml_1m(data_folder: object) -> None:
    """Popularity 21.4 and EASE 42.2 in the paper; three splits of ours lie within about a point of them."""
    found = compare(rf.load("ml-1m"), {"popularity": "popularity", "ease": rf.EASE(l2=500.0)}, 3)
    assert found.models["popularity"].mean("ndcg@100") == pytest.approx(0.2144, abs=0.012)
    assert found.models["ease"].mean("ndcg@100") == pytest.approx(0.4224, abs=0.012)
    assert found.paper is not None
    assert json.dumps(found.document()["paper"]["models"]["ease"]["ndcg@100"]) == "0.4224"


def test_a_named_metric_decides_the_order_and_marks_say_who_is_behind(groups: Interactions) -> None:
    found = compare(groups, ["popularity", "ease"], [4], metrics=METRICS, deciding="recall@5")
    assert (found.main_metric, found.document()["deciding"]) == ("recall@5", "recall@5")
    assert Comparison.of(fits(groups, ["ease"])).main_metric == "ndcg@10"
    shown = found._repr_html_()
    assert f"{100 * found.models['ease'].mean('recall@5'):.2f} (" in shown
    assert f"{100 * found.models['popularity'].mean('recall@5'):.2f}* (" in shown
    with pytest.raises(InputError, match="Unknown deciding metric 'map@5'"):
        compare(groups, ["ease"], [4], metrics=METRICS, deciding="map@5")


def test_values_per_user_have_ids_if_the_data_is_given(groups: Interactions) -> None:
    one = fits(groups, ["ease"])[0]
    frame = one.to_frame(groups)
    assert frame["user"].to_list() == [groups.users[int(row)] for row in one.users]
    with pytest.raises(InputError, match="the data of the result"):
        one.to_frame(load("ml-latest-small"))
