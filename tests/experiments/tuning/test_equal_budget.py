"""Equal budgets: every model is searched with the same number of trials, and never on test users."""

import pytest

from recfusion.core.errors import InputError
from recfusion.data.interactions import Interactions
from recfusion.data.options import SplitPlan
from recfusion.experiments.candidate import parse_models
from recfusion.experiments.comparison import Comparison
from recfusion.experiments.experiment_file import parse_experiment
from recfusion.experiments.run import run_candidates
from recfusion.report.experiment_toml import experiment_toml
from recfusion.report.main_table import energy

METRICS = ("recall@5", "ndcg@100")


def test_every_model_gets_the_same_number_of_trials(groups: Interactions) -> None:
    models = parse_models(
        "popularity,user-knn,ease,multdae", {"multdae.max_epochs": "2", "user-knn.neighbours": "7"}, tune=3
    )
    found = run_candidates(groups, [(one, (4,)) for one in models], plan=SplitPlan(), metrics=METRICS, workers=0)
    assert not found.failures
    by_label = {one.label: one for one in found.results}
    assert {label: one.trials for label, one in by_label.items()} == {
        "popularity": 0,
        "user-knn": 3,
        "ease": 3,
        "multdae": 3,
    }
    assert by_label["user-knn"].settings["tune"] == 3
    assert "neighbours" not in by_label["user-knn"].chosen  # it was given
    assert by_label["multdae"].chosen.keys() <= {"lr", "weight_decay", "batch_size", "latent", "dropout"}
    comparison = Comparison.of(found.results)
    assert all((energy(model) or 0) >= 0 for model in comparison.models.values())
    text = experiment_toml(comparison)
    assert text is not None
    assert "tune = 3" in text


def test_the_best_trial_is_at_least_as_good_on_validation_users_as_the_defaults(groups: Interactions) -> None:
    plain, tuned = parse_models("user-knn", {}), parse_models("user-knn", {}, tune=6)
    ran = [
        run_candidates(groups, [(one, (4,))], plan=SplitPlan(), metrics=METRICS, workers=0).results[0]
        for one in (*plain, *tuned)
    ]
    assert ran[1].validation["ndcg@100"] >= ran[0].validation["ndcg@100"]
    assert ran[1].fit_seconds > ran[0].fit_seconds
    assert ran[0].key != ran[1].key


@pytest.mark.parametrize("wrong", [0, -1, "many", True, 2.5])
def test_a_budget_that_is_no_number_of_trials_is_refused(tmp_path: object, wrong: object) -> None:
    document = {
        "name": "x",
        "data": {"data": "ml-latest-small"},
        "run": {"seeds": 1},
        "models": {"ease": {"tune": wrong}},
    }
    with pytest.raises(InputError, match=r"\[models.ease\]: Expected tune to be a number of trials"):
        parse_experiment(document, "x.toml", tmp_path)  # type: ignore[arg-type]
