"""Both ways of leaving users out agree where penalties do not depend on counts, and differ where they do."""

import numpy as np
import pytest

from conftest import random_csr
from leave_one_out import closed_form, compare, refits
from recfusion.models.leave_one_out import left_out

TRAIN = random_csr(30, 8, 0.45, 3)
FOLD = left_out(TRAIN, 12, np.random.default_rng(1))
ASKED = FOLD.history.toarray() == 0


def test_without_counts_in_the_penalties_the_closed_form_is_the_refit() -> None:
    plain = {"l2": 5.0, "nu": 0.0, "kappa": 0.0}
    fixed, refit = (way(TRAIN, FOLD, plain, 0.0)[ASKED] for way in (closed_form, refits))
    assert fixed == pytest.approx(refit, abs=1e-4)
    noisy = {"l2": 5.0, "nu": 0.3, "kappa": 0.9}
    fixed, refit = (way(TRAIN, FOLD, noisy, 0.5)[ASKED] for way in (closed_form, refits))
    assert 1e-3 < np.abs(fixed - refit).max() < 0.1


def test_a_comparison_names_both_choices() -> None:
    found = compare(TRAIN, FOLD)
    assert found["settings"] == 54
    assert set(found["chosen"]) == {"fixed", "refit"}
    best = found["NDCG@100 by refits of both choices (points)"]
    assert best["refit"] >= best["fixed"]
