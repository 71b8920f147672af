"""Our proposals against Hyperopt's own search on one machine, and with a trial that still runs."""

from hyperopt_trials import agrees, ours, searched


def test_our_proposals_are_those_of_fmin_for_the_same_seed_and_past() -> None:
    trials = searched(lambda given: abs(given["l2"] - 30) / 1000, 12, 3, spark=False)
    assert agrees(trials, ours(trials, 3, 0))
    assert not agrees(trials, ours(trials, 4, 0))
    assert [one is None for one in ours(trials, 3, 0)] == [True] * 8 + [False] * 4


def test_trials_that_still_run_may_change_a_proposal() -> None:
    trials = searched(lambda given: abs(given["l2"] - 30) / 1000, 14, 3, spark=False)
    assert ours(trials, 3, 0) != ours(trials, 3, 10)
