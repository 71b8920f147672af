"""Results by a column of the items or users."""

from pathlib import Path

import numpy as np
import pytest

from recfusion.core.errors import InputError
from recfusion.data.interactions import Interactions
from recfusion.data.load import load
from recfusion.data.options import SplitPlan
from recfusion.evaluation.evaluate import evaluate
from recfusion.experiments.candidate import candidates
from recfusion.experiments.column_report import compare_by, report_by
from recfusion.experiments.run import run_candidates
from recfusion.experiments.train import rebuild_split, train


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    rows = [f"u{u},i{i}\n" for u in range(60) for i in rng.permutation(20)[:8]]
    Path("rows.csv").write_text("user,item\n" + "".join(rows))
    kinds = ["a|b" if n % 3 == 0 else "b" for n in range(20)]
    Path("items.csv").write_text("item,kind\n" + "".join(f"i{n},{kind}\n" for n, kind in enumerate(kinds)))
    Path("users.csv").write_text("user,age\n" + "".join(f"u{n},{'old' if n % 2 else 'young'}\n" for n in range(60)))
    return tmp_path


@pytest.mark.usefixtures("files")
def test_item_groups_have_the_recall_of_their_held_out_items() -> None:
    bundle = train("popularity", load("rows.csv", items="items.csv"), signals="binary")
    found = report_by(bundle, "kind", k=5)
    parts = rebuild_split(bundle)
    lists = evaluate(
        bundle.model, parts.test, parts.train, ["recall@5"], shown=range(len(parts.test.users)), length=5
    ).lists
    assert (found.of, found.metric, [group.value for group in found.groups]) == ("items", "recall@5", ["b", "a"])
    columns = bundle.items["kind"].to_list()
    for group in found.groups:
        values, size = [], 0
        for row in range(len(parts.test.users)):
            own = [item for item in parts.test.held_out[[row]].indices if group.value in columns[item].split("|")]
            size += len(own)
            values += [np.mean([item in lists[row] for item in own])] if own else []
        assert (group.size, group.users) == (size, len(values))
        assert group.mean == pytest.approx(np.mean(values))


@pytest.mark.usefixtures("files")
def test_user_groups_have_the_main_metric_and_unknown_columns_are_refused() -> None:
    bundle = train("popularity", load("rows.csv", items="items.csv"), signals="binary")
    source = bundle.protocol.source.model_copy(update={"users_file": "users.csv"})
    found = report_by(bundle, "age", source)
    assert (found.of, found.metric) == ("users", "ndcg@100")
    assert {group.value for group in found.groups} <= {"old", "young"}
    assert sum(group.users for group in found.groups) == len(rebuild_split(bundle).test.users)
    with pytest.raises(InputError, match=r"Unknown column 'colour'.*kind.*need --users-file"):
        report_by(bundle, "colour")


@pytest.mark.usefixtures("files")
def test_results_of_several_models_and_splits_are_grouped_without_a_fit() -> None:
    data = load("rows.csv", users_file="users.csv")
    popular, chance = candidates(["popularity", "random"])
    planned = [(popular, (0, 1)), (chance, (1,))]
    results = run_candidates(data, planned, plan=SplitPlan(), metrics=["ndcg@10"], workers=0).results
    found = compare_by(results, "age", data)
    assert list(found) == ["popularity", "random"]
    for label, report in found.items():
        values: dict[str, list[float]] = {}
        for one in results:
            for user, value in zip(one.users, one.test["ndcg@10"], strict=True) if one.label == label else ():
                values.setdefault("old" if int(data.users[int(user)][1:]) % 2 else "young", []).append(value)
        assert {group.value: group.mean for group in report.groups} == {
            name: pytest.approx(np.mean(own)) for name, own in values.items()
        }
    users = {user for one in results if one.label == "popularity" for user in one.users}
    assert sum(group.users for group in found["popularity"].groups) == len(users)
    with pytest.raises(InputError, match=r"Expected a metric with a value per user, got coverage@5"):
        compare_by(results, "age", data, "coverage@5")
    with pytest.raises(InputError, match=r"Unknown column 'colour': choose one of user, age"):
        compare_by(results, "colour", data)
    with pytest.raises(InputError, match=r"Expected the data of popularity"):
        compare_by(results, "age", _others())


def _others() -> Interactions:
    """Return other data with the same column of users."""
    rows = Path("rows.csv").read_text().splitlines()
    Path("fewer.csv").write_text("\n".join(rows[:-8]))
    return load("fewer.csv", users_file="users.csv")


@pytest.mark.usefixtures("files")
def test_a_comparison_by_a_column_needs_a_file_of_users() -> None:
    with pytest.raises(InputError, match=r"Expected a file of users with the column 'age', got none"):
        compare_by([], "age", load("rows.csv"))
