"""Results by a column of the items or users."""

from pathlib import Path

import numpy as np
import pytest

from recfusion.core.errors import InputError
from recfusion.data.load import load
from recfusion.evaluation.evaluate import evaluate
from recfusion.experiments.column_report import report_by
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
