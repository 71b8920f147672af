"""Searching the settings of anybody's model: a class, an instance, a file; here and in processes."""

import logging
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

import foreign
from foreign import Mine
from recfusion.core.arrays import Csr, FloatArray
from recfusion.core.errors import InputError
from recfusion.data.interactions import Interactions
from recfusion.data.split import split
from recfusion.evaluation.evaluate import evaluate
from recfusion.experiments.tuning.tune import Progress, tune
from recfusion.models import class_loading as places

HISTORIES: list[Csr] = []


@dataclass
class Spy(Mine):
    """A model that notes the histories it is asked for."""

    def score(self, history: Csr) -> FloatArray:
        HISTORIES.append(history)
        return super().score(history)


def test_trials_never_score_a_test_user_and_the_best_scores_each_once(groups: Interactions) -> None:
    HISTORIES.clear()
    at_the_refit: list[int] = []

    def hear(progress: Progress) -> None:
        at_the_refit[:] = [len(HISTORIES)]

    tune(Spy, groups, trials=3, on_progress=hear)
    parts = split(groups, seed=0)
    before, after = HISTORIES[: at_the_refit[0]], HISTORIES[at_the_refit[0] :]
    assert [(history != parts.valid.history).nnz for history in before] == [0] * 3
    assert [(history.shape[0], history.nnz) for history in after] == [
        (fold.history.shape[0], fold.history.nnz) for fold in (parts.valid, parts.test)
    ]
    assert (after[1] != parts.test.history).nnz == 0


def test_somebody_s_class_is_searched_like_ours(groups: Interactions, tmp_path: Path) -> None:
    tuned = tune(Mine, groups, trials=3, folder=tmp_path)
    assert [one.status for one in tuned.trials.values()] == ["ok"] * 3
    assert tuned.trials[0].settings == {}
    assert 0.1 <= tuned.trials[1].settings["power"] <= 2.0
    assert tuned.document["model"] == "Mine"
    assert isinstance(tuned.bundle.model, Mine)
    assert [one.settings for one in tune("foreign:Mine", groups, trials=3).trials.values()] == [
        one.settings for one in tuned.trials.values()
    ]
    again = tune(Mine, groups, trials=3, folder=tmp_path)  # the model folder is trusted: its class is at hand
    assert again.document == tuned.document


def test_a_search_from_an_instance_starts_with_its_settings(groups: Interactions, tmp_path: Path) -> None:
    parts = split(groups, seed=0)
    tuned = tune(Mine(power=0.0), groups, trials=1, folder=tmp_path)
    model = Mine(power=0.0).fit(parts.train)
    assert tuned.trials[0].score == evaluate(model, parts.valid, parts.train).mean()["ndcg@100"]
    assert tuned.settings == {"power": 0.0, "note": ""}
    assert isinstance(tuned.bundle.model, Mine)
    assert tuned.bundle.model.power == 0.0
    more = tune(Mine(power=0.0), groups, trials=2, folder=tmp_path)
    assert more.trials[0] == tuned.trials[0]
    assert 0.1 <= more.trials[1].settings["power"] <= 2.0
    with pytest.raises(InputError, match="other given settings"):
        tune(Mine(power=1.0), groups, trials=2, folder=tmp_path)
    with pytest.raises(InputError, match="Expected settings of the model that JSON can hold"):
        tune(foreign.Needy(when=tmp_path), groups, trials=1)


def test_trials_of_an_edited_class_are_refused(
    groups: Interactions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = Path(foreign.__file__).read_text()
    (tmp_path / "mine.py").write_text(text)
    tune("mine.py:Mine", groups, trials=1, folder=tmp_path / "out")
    (tmp_path / "mine.py").write_text(text + "# another line\n")
    places.load_class.cache_clear()
    places.load_file.cache_clear()
    with pytest.raises(InputError, match="another version of the model's code"):
        tune("mine.py:Mine", groups, trials=2, folder=tmp_path / "out")


def test_a_class_of_a_file_is_tried_in_processes_and_a_function_s_in_this_one(
    groups: Interactions, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    @dataclass
    class Local(Mine):
        """Of a function."""

    shutil.copy(foreign.__file__, tmp_path / "mine.py")
    with caplog.at_level(logging.WARNING):
        tune(f"{tmp_path}/mine.py:Mine", groups, {"note": str(tmp_path / "file")}, trials=2, workers=1)
        assert caplog.messages == []
        tune(Local, groups, {"note": str(tmp_path / "local")}, trials=2, workers=1)
    assert caplog.messages == ["Trials of Local run in this process: other processes cannot import the class."]
    file, local = ((tmp_path / name).read_text().split() for name in ("file", "local"))
    assert local == [str(os.getpid())] * 3
    assert file[0] == file[1] != file[2] == local[0]  # the best is refitted here
