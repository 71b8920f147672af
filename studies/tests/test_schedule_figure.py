"""The figure of learned schedules: its numbers and its labels."""

import sys
from pathlib import Path

import numpy as np
import pytest

from conftest import raw
from drawn import texts
from recfusion.data.interactions import Interactions
from recfusion.data.options import Preparation
from recfusion.data.prepare import prepare
from schedule_figure import STEPS, draw_schedules, main, schedule_courses


@pytest.fixture(scope="module")
def groups() -> Interactions:
    """Three groups of users with items of their own: 60 users and 24 items."""
    pairs = [(user, (user % 3) * 8 + (user + step) % 8) for user in range(60) for step in range(6)]
    return prepare(raw({"user": [user for user, _ in pairs], "item": [item for _, item in pairs]}), Preparation())


def test_rates_start_at_the_fixed_schedule_and_move_and_every_epoch_is_judged(groups: Interactions) -> None:
    (course,) = schedule_courses(groups, epochs=3, processes=("thinning",))
    assert course.betas.shape == (4, STEPS)
    np.testing.assert_allclose(course.betas[0], np.linspace(0.1, 0.5, STEPS))
    assert (np.abs(np.diff(course.betas, axis=0)).max(1) > 0).all()
    assert ((course.betas > 0) & (course.betas < 1)).all()
    assert course.learned.shape == course.fixed.shape == (3,)
    assert not np.allclose(course.learned, course.fixed)


def test_the_same_seed_gives_the_same_course(groups: Interactions) -> None:
    one, other = (schedule_courses(groups, epochs=1, processes=("drift",))[0] for _ in range(2))
    np.testing.assert_array_equal(one.betas, other.betas)
    np.testing.assert_array_equal(one.learned, other.learned)


def test_the_schedule_figure_shows_every_rate_of_every_process(groups: Interactions) -> None:
    courses = schedule_courses(groups, epochs=2, processes=("drift", "thinning"))
    said = texts(draw_schedules(courses, "a_data$set"))
    for process in ("drift", "thinning"):
        assert f"{process}: learned rates" in said
    assert said.count(r"$\beta_{6}$") == 2
    assert "epoch on a_data$set" in said


def test_the_script_draws_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ratings, out = tmp_path / "ratings.csv", tmp_path / "figure.png"
    lines = [f"u{user},i{(user % 3) * 8 + (user + step) % 8}" for user in range(40) for step in range(6)]
    ratings.write_text("\n".join(["user,item", *lines]) + "\n")
    monkeypatch.setattr(sys, "argv", ["schedule_figure.py", "--data", str(ratings), "--epochs", "1", "--out", str(out)])
    main()
    assert out.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
