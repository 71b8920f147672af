"""The differences of two sets of results."""

import numpy as np
import pytest
from fitted import fits

from recfusion.core.errors import InputError
from recfusion.data.interactions import Interactions
from recfusion.experiments.result_diff import Changed, diff_results


def test_equal_results_differ_in_nothing(groups: Interactions) -> None:
    results = fits(groups, ["ease"])
    (found,) = diff_results(results, results)
    assert found.protocol == found.code == found.settings == ()
    assert all(one.before == one.after for one in found.outcome)


def test_settings_protocol_and_outcome_are_compared_with_a_paired_interval(groups: Interactions) -> None:
    before, after = fits(groups, {"ease": {"l2": 5}}), fits(groups, {"ease": {"l2": 500}})
    (found,) = diff_results(before, after)
    assert found.settings == (Changed("l2", 5.0, 500.0),)
    outcome = next(one for one in found.outcome if one.metric == "ndcg@10")
    assert outcome.paired is not None
    values = [np.concatenate([one.test["ndcg@10"] for one in its]) for its in (before, after)]
    assert outcome.paired.difference == pytest.approx(float(np.mean(values[1] - values[0])))
    others = fits(groups, {"ease": {"l2": 5}}, metrics=("ndcg@10",))
    (found,) = diff_results(before, others)
    assert [one.what for one in found.protocol] == ["metrics"]


def test_two_labels_can_be_compared_and_unknown_ones_are_refused(groups: Interactions) -> None:
    results = fits(groups, ["ease", "popularity"])
    (found,) = diff_results(results, results, ("popularity", "ease"))
    assert found.outcome[-1].after > found.outcome[-1].before
    assert "model" in [one.what for one in found.code]
    with pytest.raises(InputError, match="Unknown label 'slim'"):
        diff_results(results, results, ("slim", "ease"))
    with pytest.raises(InputError, match="a label that both stores have, got ease and popularity"):
        diff_results([one for one in results if one.label == "ease"], [one for one in results if one.label != "ease"])
