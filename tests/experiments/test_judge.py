"""The one path from a candidate to a result: who is scored, how often, and what a result says of the machine."""

import json
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fitted import METRICS, fits

import foreign
from foreign import Mine
from recfusion.core.arrays import Csr, FloatArray
from recfusion.core.errors import InputError
from recfusion.core.jsonl import json_line
from recfusion.data.interactions import Interactions
from recfusion.data.load import load
from recfusion.data.options import SplitPlan
from recfusion.data.protocol import Protocol
from recfusion.data.split import split
from recfusion.experiments.candidate import Candidate, candidates
from recfusion.experiments.comparison import compare
from recfusion.experiments.fit import fit_and_judge
from recfusion.experiments.run import run_candidates
from recfusion.models.linear.ease import EASE
from recfusion.training.epoch import Epoch


@dataclass
class Spy(Mine):
    """A model that notes the histories it is asked for."""

    seen: list[Csr] = field(default_factory=list, compare=False)

    def score(self, history: Csr) -> FloatArray:
        self.seen.append(history)
        return super().score(history)


@pytest.mark.parametrize("kind", ["strong", "weak", "temporal"])
def test_every_user_is_scored_once_per_fit(groups: Interactions, kind: str) -> None:
    plan = SplitPlan.model_validate({"kind": kind})
    parts = split(groups, plan)
    model = Spy()
    judged = fit_and_judge(Candidate.of("spy", model), groups, Protocol.of(groups, plan, METRICS), parts)
    n_valid, n_test = len(parts.valid.users), len(parts.test.users)
    assert sum(history.shape[0] for history in model.seen) == n_valid + n_test
    assert len(judged.result.users) == n_test
    assert len(judged.result.examples) == 3  # of the same scores
    model.seen.clear()
    trial = fit_and_judge(Candidate.of("spy", model), None, Protocol.of(groups, plan, METRICS), parts)
    assert sum(history.shape[0] for history in model.seen) == n_valid
    assert (trial.test, trial.result.test, len(trial.result.users)) == (None, {}, 0)


@dataclass
class Wrong(Mine):
    """A model that changes its scores in a wrong way."""

    how: str = "columns"

    def score(self, history: Csr) -> FloatArray:
        right = super().score(history)
        wrong: dict[str, Any] = {
            "columns": right[:, :-1],
            "rows": np.vstack([right, right]),
            "one row": right[0],
            "list": right.tolist(),
            "sparse": history,
            "integers": right.astype(np.int64),
            "texts": right.astype(str),
            "read-only": np.broadcast_to(right[0], right.shape),
        }
        found: FloatArray = wrong[self.how]
        return found


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("columns", r"got the shape \(\d+, 39\)"),
        ("rows", r"got the shape \(\d+, 40\)"),
        ("one row", r"got the shape \(40,\)"),
        ("list", "got list"),
        ("sparse", "got scipy.sparse"),
        ("integers", "got numbers of the type int64"),
        ("texts", "got the type <U"),
        ("read-only", r"got an array that cannot be changed \(copy it\)"),
    ],
)
def test_scores_of_another_form_are_refused_in_words(groups: Interactions, how: str, words: str) -> None:
    plan = SplitPlan()
    with pytest.raises(InputError, match=rf"^Expected score of Wrong .* \(users, items\), here .*{words}"):
        fit_and_judge(Candidate.of("mine", Wrong(how=how)), groups, Protocol.of(groups, plan, METRICS), split(groups))


def test_the_model_that_was_handed_over_stays_as_it_was(groups: Interactions) -> None:
    model = EASE()
    parts = split(groups)
    candidate = Candidate.of("ease", model)
    judged = fit_and_judge(candidate, groups, Protocol.of(groups, SplitPlan(), METRICS), parts)
    assert judged.result.settings == {"l2": None, "tune_trials": 20}
    assert list(judged.result.chosen) == ["l2"]
    with pytest.raises(InputError, match="not fitted yet"):
        model.score(parts.test.history)


def test_a_stopped_fit_is_judged_as_it_is(groups: Interactions) -> None:
    epochs: list[Epoch] = []

    def third(epoch: Epoch) -> bool:
        return epoch.number == 3

    judged = fit_and_judge(
        *(Candidate.of("net", "recfusion", {"max_epochs": 30}), groups),
        *(Protocol.of(groups, SplitPlan(), METRICS), split(groups)),
        on_epoch=epochs.append,
        stop=third,
    )
    assert (judged.stopped, judged.result.epochs, [epoch.number for epoch in epochs]) == (3, 3, [1, 2, 3])
    assert set(judged.result.mean()) == set(METRICS)


def test_no_clock_decides_anything(groups: Interactions, monkeypatch: pytest.MonkeyPatch) -> None:
    models = candidates(
        {
            "ease": EASE(tune_trials=12),
            "thinning-linear": {"tune_trials": 12},
            "mixture": {"members": "ease,slim", "tune_trials": 3},
            "recfusion": {"width": 8, "max_epochs": 4, "patience": 2},
            "random": {},
        }
    )
    plan = SplitPlan(valid=0.3)  # enough validation users for the models' own searches

    def untimed() -> list[Any]:
        ran = run_candidates(groups, [(one, (4,)) for one in models], plan=plan, metrics=METRICS, workers=0)
        timed: Any = {
            "fit_seconds": True,
            "cpu_seconds": True,
            "energy_joules": True,
            "score_seconds": True,
            "finished": True,
            "curve": {"seconds"},
        }
        return [one.model_dump(mode="json", exclude=timed) for one in ran.results]

    quiet = untimed()
    assert [one["trials"] > 0 for one in quiet] == [True, True, True, False, False]
    busy = np.random.default_rng(0)
    for clock in ("perf_counter", "monotonic", "time", "process_time"):
        monkeypatch.setattr(f"time.{clock}", lambda: float(busy.uniform(-1e9, 1e9)))
    assert untimed() == quiet


def test_a_result_names_no_user_unless_ids_are_asked_for(groups: Interactions, tmp_path: Path) -> None:
    store = tmp_path / "s.jsonl"
    named = compare(groups, {"mine": Mine()}, store=store, user_ids=True)
    ids = [example.user for example in named.examples]
    assert len(set(ids)) == 3
    assert set(ids) <= set(groups.users.to_list())
    usual = fits(groups, {"mine": Mine()}, [0])[0]
    assert [example.user for example in usual.examples] == [None] * 3
    document = json_line(usual.model_dump(mode="json")).decode()
    assert not [user for user in groups.users if f'"{user}"' in document]
    assert all(f'"{user}"' in store.read_text() for user in ids)


def test_a_result_holds_no_path_of_the_machine(groups: Interactions, tmp_path: Path) -> None:
    rows = [f"{user},{item}" for user in range(40) for item in range(user % 4, 20, 2)]
    (tmp_path / "shop.csv").write_text("user,item\n" + "\n".join(rows) + "\n")
    shutil.copy(foreign.__file__, tmp_path / "mine.py")
    store = tmp_path / "s.jsonl"
    compare(load(str(tmp_path / "shop.csv")), {"mine": f"{tmp_path}/mine.py:Mine", "ours": "ease"}, store=store)
    text = store.read_text()
    assert str(tmp_path) not in text
    assert str(Path.home()) not in text
    mine, ours = (json.loads(line) for line in text.splitlines())
    assert (mine["place"], mine["model"], len(mine["source"])) == ("mine.py:Mine", "Mine", 16)
    assert (ours["place"], ours["model"], ours["source"]) == ("", "ease", "")
