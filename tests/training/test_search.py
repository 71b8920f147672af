"""The search: seeded, inside its ranges, better than chance, and able to go on from any list of trials."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from recfusion.training.search_space import Choice, Interval, Space, ask, search
from recfusion.training.trial import Trial, best_trial

SPACE: Space = {
    "l2": Interval(1.0, 10_000.0, log=True),
    "power": Interval(0.0, 1.0),
    "width": Interval(10, 500, log=True, integer=True),
    "kind": Choice(("a", "b", "c")),
}


def bowl(settings: Mapping[str, Any]) -> float:
    """Return a score with its best at l2 = 100, power = .3, kind b."""
    off = (math.log10(settings["l2"]) - 2) ** 2 + (settings["power"] - 0.3) ** 2 + (settings["kind"] != "b")
    return -off


def run(seed: int, trials: int) -> list[Trial]:
    return search(bowl, SPACE, trials=trials, seed=seed)


def test_the_same_seed_tries_the_same_settings() -> None:
    assert [t.settings for t in run(3, 14)] == [t.settings for t in run(3, 14)]
    assert [t.settings for t in run(3, 14)] != [t.settings for t in run(4, 14)]


def test_settings_stay_inside_their_ranges_and_keep_their_types() -> None:
    for trial in run(0, 20):
        assert 1 <= trial.settings["l2"] <= 10_000
        assert 0 <= trial.settings["power"] <= 1
        assert isinstance(trial.settings["width"], int)
        assert 10 <= trial.settings["width"] <= 500
        assert trial.settings["kind"] in ("a", "b", "c")


def test_every_integer_of_a_range_is_drawn_equally_often() -> None:
    rng = np.random.default_rng(0)
    drawn = np.bincount([Interval(1, 4, integer=True).draw(rng) for _ in range(4000)])
    assert drawn[0] == 0
    assert drawn[1:] == pytest.approx([1000] * 4, abs=100)
    logs = np.bincount([Interval(1, 2, integer=True, log=True).draw(rng) for _ in range(4000)])
    share = math.log(1.5 / 0.5) / math.log(2.5 / 0.5)  # 1 stands for 0.5 to 1.5, 2 for 1.5 to 2.5
    assert logs[1] / 4000 == pytest.approx(share, abs=0.03)


def test_a_search_goes_on_from_the_trials_it_is_given() -> None:
    whole = run(1, 16)
    assert ask(SPACE, whole[:12], seed=1) == whole[12].settings


def test_given_settings_come_first() -> None:
    given = {"l2": 5.0, "power": 0.5, "width": 20, "kind": "c"}
    trials = search(bowl, SPACE, trials=3, seed=0, first=[given])
    assert trials[0].settings == given
    assert len(trials) == 3


def test_a_failed_trial_is_not_learned_from() -> None:
    failed = [Trial(trial.settings, None) for trial in run(0, 12)]
    assert set(ask(SPACE, failed, seed=0)) == set(SPACE)


def test_the_search_beats_chance_in_the_mean_over_seeds() -> None:
    def by_chance(seed: int) -> float:
        rng = np.random.default_rng(seed)
        return max(bowl({name: each.draw(rng) for name, each in SPACE.items()}) for _ in range(30))

    found = [best_trial(run(seed, 30)) for seed in range(6)]
    assert np.mean([one.score or 0.0 for one in found if one is not None]) > np.mean(
        [by_chance(seed) for seed in range(6)]
    )


def test_the_earliest_of_equal_trials_is_the_best() -> None:
    trials = [Trial({"x": 1}, 0.5, number=1), Trial({"x": 2}, 0.5), Trial({"x": 3}, None, number=3, status="failed")]
    for order in (trials, trials[::-1]):
        found = best_trial(order)
        assert found is not None
        assert found.settings == {"x": 2}
    assert best_trial(trials[2:]) is None


def test_a_stopped_trial_is_not_the_best() -> None:
    trials = [Trial({"x": 1}, 0.5), Trial({"x": 2}, 0.9, number=1, status="stopped")]
    assert best_trial(trials) == trials[0]


def test_the_time_that_trials_take_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    quiet = run(0, 12)
    wild = np.random.default_rng(0)
    for clock in ("perf_counter", "monotonic", "time"):
        monkeypatch.setattr(f"time.{clock}", lambda: float(wild.uniform(-1e9, 1e9)))
    assert run(0, 12) == quiet
