"""Plans: a run is confirmatory only if nothing changed after the plan."""

import subprocess
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from fitted import fits

from recfusion.core.errors import InputError
from recfusion.data.interactions import Interactions
from recfusion.experiments.experiment_file import Experiment, parse_experiment
from recfusion.experiments.plan_file import Plan, check_plan, read_plan, write_plan


def experiment(**models: dict[str, object]) -> Experiment:
    document = {
        "name": "new-data",
        "hypotheses": ["ease is ahead of popularity"],
        "data": {"data": "ml-latest-small"},
        "run": {"seeds": 2, "metrics": ["recall@20", "ndcg@100"], "deciding": "recall@20"},
        "models": {"popularity": {}, "ease": {"l2": 300}, **models},
    }
    return parse_experiment(document, "new.toml", Path())


def test_a_run_with_the_planned_settings_and_code_is_confirmatory(tmp_path: Path) -> None:
    plan = write_plan(tmp_path / "plan.json", experiment())
    assert read_plan(tmp_path / "plan.json") == plan
    assert plan.hypotheses == ("ease is ahead of popularity",)
    verdict = check_plan(plan, experiment(), [])
    assert verdict.is_confirmatory
    assert verdict.sentence().startswith("Confirmatory: ")


def test_every_change_after_the_plan_makes_a_run_exploratory(groups: Interactions) -> None:
    plan = Plan.of(experiment())
    assert check_plan(plan, experiment(ease={"l2": 500}), []).reasons == ("models.ease.settings.l2 changed",)
    assert check_plan(plan, experiment(slim={}), []).reasons == ("models.slim changed",)
    assert check_plan(plan, replace(experiment(), metrics=("ndcg@100",)), []).reasons == ("metrics changed",)
    edited = plan.models["ease"].model_copy(update={"code": "another"})
    other = plan.model_copy(update={"models": {**plan.models, "ease": edited}})
    assert check_plan(other, experiment(), []).reasons == ("models.ease.code changed",)
    old = [one.model_copy(update={"finished": plan.written - timedelta(days=1)}) for one in fits(groups, ["ease"])]
    found = check_plan(plan, experiment(), old)
    assert found.reasons == ("2 results are older than the plan",)
    assert found.sentence().startswith("Exploratory, because it departs from the plan of ")


def test_the_code_of_the_results_counts_and_not_that_of_today(groups: Interactions) -> None:
    plan, results = Plan.of(experiment()), fits(groups, ["ease"])
    edited = plan.models["ease"].model_copy(update={"code": "another"})
    old = plan.model_copy(update={"models": {**plan.models, "ease": edited}})
    by_old_code = [one.model_copy(update={"code": "another"}) for one in results]
    assert check_plan(old, experiment(), by_old_code).is_confirmatory  # stale, and as planned
    assert check_plan(plan, experiment(), by_old_code).reasons == ("models.ease.code changed",)
    assert check_plan(old, experiment(), results).reasons == ("models.ease.code changed",)


def git(folder: Path, *arguments: str) -> str:
    name = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
    run = subprocess.run(["git", *name, *arguments], cwd=folder, capture_output=True, text=True, check=True)
    return run.stdout.strip()


def test_a_plan_must_be_committed_before_its_results(tmp_path: Path, groups: Interactions) -> None:
    results = fits(groups, ["ease"])
    path = tmp_path / "new.plan.json"
    plan = write_plan(path, experiment()).model_copy(
        update={"written": min(one.finished for one in results) - timedelta(days=2)}
    )

    def verdict(commit: str = "", *, days: int = 0) -> str:
        changed = {"commit": commit, "finished": results[0].finished + timedelta(days=days)}
        return check_plan(plan, experiment(), [results[0].model_copy(update=changed)], path).sentence()

    assert verdict().startswith("Confirmatory: ")
    assert verdict().endswith("could not be checked: no complete git history.")
    git(tmp_path, "init", "-q")
    git(tmp_path, "commit", "-q", "--allow-empty", "-m", "First")
    first = git(tmp_path, "rev-parse", "HEAD")
    assert verdict().endswith(": the file of the plan is not committed in git as it is.")
    git(tmp_path, "add", path.name)
    git(tmp_path, "commit", "-q", "-m", "Plan")
    planned = git(tmp_path, "rev-parse", "HEAD")
    assert verdict(planned[:12] + "+").endswith(f"The plan was committed ({planned[:12]}) before the results.")
    assert f"1 result began before the plan was committed ({planned[:12]})" in verdict(first[:12])
    # Fits of a recfusion outside of this repository are judged by their time.
    assert verdict("0123456789ab", days=1).startswith("Confirmatory: ")
    assert verdict(days=1).startswith("Confirmatory: ")
    assert verdict(days=-1).startswith("Exploratory, ")
    path.write_text(path.read_text() + "\n")
    assert verdict(planned).endswith(": the file of the plan is not committed in git as it is.")


def test_what_is_no_plan_is_refused(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text('{"recfusion_plan": 1, "name": "x"}')
    with pytest.raises(InputError, match="a plan in"):
        read_plan(tmp_path / "plan.json")
