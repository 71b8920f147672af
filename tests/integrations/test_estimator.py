"""Models in scikit-learn's tools, and what they compute without them."""

import numpy as np
import pytest
from scipy.sparse import csr_array, csr_matrix

from recfusion.core.errors import InputError
from recfusion.data.interactions import Interactions
from recfusion.integrations.estimator import Estimator
from recfusion.models.base import NotFitted
from recfusion.models.baselines.popularity import Popularity
from recfusion.models.linear.ease import EASE


def test_lists_are_the_best_unseen_items_of_the_model(groups: Interactions) -> None:
    matrix = groups.matrix
    found = Estimator(EASE(l2=20.0), k=3).fit(matrix[:60])
    scores = EASE(l2=20.0).fit(matrix[:60]).score(matrix[60:])
    scores[matrix[60:].toarray() > 0] = -np.inf
    assert found.predict(matrix[60:]).tolist() == np.argsort(-scores, axis=1, kind="stable")[:, :3].tolist()
    dense = Estimator(EASE(l2=20.0), k=3).fit(matrix[:60].toarray() * 2)
    assert np.array_equal(dense.predict(csr_matrix(matrix[60:])), found.predict(matrix[60:]))


def test_a_score_hides_a_fifth_of_each_history() -> None:
    train = csr_array(np.array([[1, 1, 1, 1, 1, 0]] * 3 + [[0, 0, 0, 0, 0, 1]], np.float32))
    users = csr_array(np.array([[1, 1, 1, 1, 1, 0], [0, 0, 0, 0, 1, 0]], np.float32))
    found = Estimator(Popularity(), metric="recall@1").fit(train)
    # The second user has one item and is left out; the hidden one of the first is the most popular unseen item.
    assert found.score(users) == 1.0
    assert found.score(users) == found.score(users)


def test_parameters_reach_the_model_and_a_fit_leaves_them_alone(groups: Interactions) -> None:
    found = Estimator(EASE())
    assert found.get_params(deep=False) == {"model": EASE(), "k": 10, "metric": "ndcg@100", "seed": 0}
    assert found.set_params(model__l2=7.0, k=4) is found
    assert (found.model, found.k, found.get_params()["model__l2"]) == (EASE(l2=7.0), 4, 7.0)
    assert found.set_params(model__l2=9.0, model=EASE(l2=1.0)).model == EASE(l2=9.0)
    found.fit(groups.matrix)
    with pytest.raises(NotFitted):
        found.model.score(groups.matrix)


def test_wrong_input_is_one_sentence(groups: Interactions) -> None:
    with pytest.raises(InputError, match="model__l2"):
        Estimator(EASE()).set_params(l2=1.0)
    with pytest.raises(InputError, match="negative"):
        Estimator(EASE()).fit(np.array([[1, -1]]))
    with pytest.raises(InputError, match="negative and missing"):
        Estimator(EASE()).fit(np.array([[1.0, np.nan]]))
    with pytest.raises(InputError, match="at least 2 items"):
        Estimator(Popularity()).fit(groups.matrix).score(np.eye(40))


def test_it_is_cloned_searched_and_cross_validated_by_scikit_learn(groups: Interactions) -> None:
    pytest.importorskip("sklearn", reason="scikit-learn is not installed")
    from sklearn.base import clone
    from sklearn.model_selection import GridSearchCV, KFold, cross_val_score

    one, folds = Estimator(EASE(l2=20.0), metric="ndcg@10"), KFold(3)
    copy = clone(one)
    assert copy is not one
    assert copy.get_params() == one.get_params()
    scores = cross_val_score(one, groups.matrix, cv=folds)
    train, test = next(iter(folds.split(groups.matrix)))
    assert scores[0] == one.fit(groups.matrix[train]).score(groups.matrix[test])
    search = GridSearchCV(one, {"model__l2": [0.01, 20.0], "k": [5]}, cv=folds).fit(groups.matrix)
    assert search.best_params_ == {"model__l2": 20.0, "k": 5}
    assert search.best_score_ == pytest.approx(scores.mean())
    assert search.best_estimator_.predict(groups.matrix[:2]).shape == (2, 5)
