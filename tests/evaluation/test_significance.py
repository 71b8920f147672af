"""Intervals and tests against what theory says they should be."""

import numpy as np
import pytest

from recfusion.evaluation.significance import bootstrap_means, holm, paired_difference, summarise


def test_the_bootstrap_has_the_spread_of_the_mean() -> None:
    values = np.random.default_rng(0).normal(size=400)
    drawn = bootstrap_means(np.arange(400), values[:, None])[:, 0]
    assert drawn.mean() == pytest.approx(values.mean(), abs=0.01)
    assert drawn.std() == pytest.approx(values.std() / 20, rel=0.05)


def test_repeated_users_count_once_as_evidence() -> None:
    """Ten copies of each user's value carry no more information than one."""
    values = np.random.default_rng(0).normal(size=100)
    once = bootstrap_means(np.arange(100), values[:, None]).std()
    copied = bootstrap_means(np.tile(np.arange(100), 10), np.tile(values, 10)[:, None]).std()
    assert copied == pytest.approx(once, rel=0.05)


def test_columns_share_their_draws() -> None:
    values = np.random.default_rng(0).normal(size=50)
    drawn = bootstrap_means(np.arange(50), np.stack([values, values + 1], axis=1))
    assert drawn[:, 1] - drawn[:, 0] == pytest.approx(np.ones(len(drawn)))


def test_users_with_more_values_weigh_more_as_in_the_pooled_mean() -> None:
    users = np.array([0, 0, 0, 1])
    values = np.array([1.0, 1.0, 1.0, 0.0])
    drawn = bootstrap_means(users, values[:, None])[:, 0]
    # Two users drawn out of two: (0,0) -> 1, (1,1) -> 0, mixed -> 3/4.
    assert sorted(set(np.round(drawn, 6))) == [0, 0.75, 1]
    assert np.mean(drawn == 0.75) == pytest.approx(0.5, abs=0.03)


def test_the_seed_of_the_bootstrap_decides_its_draws() -> None:
    values = np.random.default_rng(0).normal(size=50)[:, None]
    one, again, other, usual = (bootstrap_means(np.arange(50), values, rng=seed, draws=20) for seed in (1, 1, 2, 0))
    assert one.tolist() == again.tolist() != other.tolist()
    assert bootstrap_means(np.arange(50), values, draws=20).tolist() == usual.tolist()


def test_a_summary_has_the_mean_over_users_and_the_median_over_splits() -> None:
    splits = [np.array([0.0, 1.0]), np.array([1.0]), np.array([1.0, 1.0, 1.0])]
    summary = summarise(splits, np.linspace(0, 1, 1001))
    assert summary.mean == pytest.approx(5 / 6)
    assert summary.splits == (0.5, 1.0, 1.0)
    assert summary.median == 1.0
    assert summary.iqr == (0.75, 1.0)
    assert summary.ci95 == pytest.approx((0.025, 0.975))


def test_a_clear_difference_is_found_and_no_difference_is_not() -> None:
    rng = np.random.default_rng(0)
    a = rng.normal(size=300)
    columns = np.stack([a, a + rng.normal(0.2, 0.5, 300), a + rng.normal(0, 0.5, 300)], axis=1)
    drawn = bootstrap_means(np.arange(300), columns)
    better = paired_difference(columns[:, 1], columns[:, 0], drawn[:, 1], drawn[:, 0])
    assert better.p is not None
    assert better.p < 0.001
    assert better.ci95 is not None
    assert better.ci95[0] > 0
    assert better.difference == pytest.approx(0.2, abs=0.1)


def test_under_no_difference_small_p_values_are_as_rare_as_they_should_be() -> None:
    rng = np.random.default_rng(1)
    hits = 0
    for _ in range(200):
        values = np.stack([rng.normal(size=60), rng.normal(size=60)], axis=1)
        drawn = bootstrap_means(np.arange(60), values, draws=400)
        hits += (paired_difference(*values.T, *drawn.T).p or 0) < 0.1
    assert 8 <= hits <= 35  # 20 expected, standard deviation 4.2


def test_holm_gives_the_values_worked_out_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.5, 0.9]) == pytest.approx([1.0, 1.0])
    assert holm([]) == []


def test_one_user_gives_no_interval_and_no_test_on_however_many_splits() -> None:
    values = np.array([[0.5, 0.2], [0.7, 0.3]])
    drawn = bootstrap_means(np.array([7, 7]), values)
    found = paired_difference(*values.T, *drawn.T)
    assert found.difference == pytest.approx(0.35)
    assert (found.ci95, found.p) == (None, None)
    summary = summarise([values[:1, 0], values[1:, 0]], drawn[:, 0])
    assert summary.mean == pytest.approx(0.6)
    assert summary.ci95 is None


def test_two_users_are_the_fewest_with_an_interval_and_a_test() -> None:
    values = np.array([[0.5, 0.2], [0.7, 0.3]])
    drawn = bootstrap_means(np.array([7, 8]), values)
    found = paired_difference(*values.T, *drawn.T)
    assert found.ci95 == pytest.approx((0.3, 0.4))
    assert found.p is not None


def test_what_was_not_tested_counts_for_nothing_in_holm_s_correction() -> None:
    assert holm([0.01, None, 0.04, 0.03, None]) == [pytest.approx(0.03), None, *[pytest.approx(0.06)] * 2, None]
