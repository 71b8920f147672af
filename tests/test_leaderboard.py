"""scripts/leaderboard.py: ranks, the critical difference and the diagram."""

import runpy
import xml.etree.ElementTree as ET

import numpy as np
import pytest

from named_tests import ROOT

SCRIPT = runpy.run_path(str(ROOT / "scripts" / "leaderboard.py"))


def test_ranks_are_means_over_data_sets_and_ties_share_theirs() -> None:
    means = np.array([[0.3, 0.2, 0.1], [0.3, 0.3, 0.1]])
    assert SCRIPT["mean_ranks"](means).tolist() == [1.25, 1.75, 3.0]


def test_the_critical_difference_is_that_of_the_published_example() -> None:
    assert SCRIPT["critical_difference"](4, 14) == pytest.approx(1.25, abs=0.01)  # Demsar, 2006: q = 2.569


def test_bars_join_runs_within_the_distance_and_none_inside_another() -> None:
    assert SCRIPT["groups"]([1.0, 1.5, 2.2, 4.0], 1.0) == [(1.0, 1.5), (1.5, 2.2)]
    assert SCRIPT["groups"]([1.0, 3.0], 1.0) == []


def test_the_error_of_users_with_several_values_counts_users() -> None:
    users, values = np.array([0, 0, 1, 1]), np.array([1.0, 1.0, 3.0, 3.0])
    assert SCRIPT["clustered_error"](users, values) == pytest.approx(np.sqrt(8) / 4)


def test_the_diagram_is_a_picture_with_every_model() -> None:
    text = SCRIPT["diagram"]({"ease": 1.0, "slim": 2.5, "random": 2.6}, 1.2)
    assert ET.fromstring(text).tag.endswith("svg")
    assert all(label in text for label in ("ease 1.0", "slim 2.5", "random 2.6"))
