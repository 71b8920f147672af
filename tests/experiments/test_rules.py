"""Comparisons under filters and re-ranking: every model's lists follow the rules, and their cost is known."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from recfusion.cli import main as cli
from recfusion.core.errors import InputError
from recfusion.data.interactions import Interactions
from recfusion.data.load import load
from recfusion.evaluation.evaluate import evaluate
from recfusion.experiments.comparison import compare
from recfusion.experiments.list_report import report_lists
from recfusion.experiments.rules import rules_document
from recfusion.experiments.train import evaluate_bundle, rebuild_split, train
from recfusion.inference.request import Filters, Reranking

RULES: dict[str, Any] = {"filters": Filters(where="stock > 0"), "reranking": Reranking(boost={"price": -0.5})}
MODELS: dict[str, Any] = {"ease": {"l2": 20.0}, "popularity": {}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write orders with returns of customers with either of two tastes, and the products."""
    folder, rng = tmp_path_factory.mktemp("shop"), np.random.default_rng(5)
    rows = [(u, f"i{15 * (u % 2) + i:02d}", 1) for u in range(150) for i in rng.permutation(15)[:8]]
    rows += [(user, item, -1) for user, item, _ in rows[::9]]
    pl.DataFrame(rows, schema=["user", "item", "quantity"], orient="row").write_csv(folder / "orders.csv")
    table = {"item": [f"i{n:02d}" for n in range(30)], "price": np.arange(30) + 1.0, "stock": np.arange(30) % 3}
    pl.DataFrame(table).write_csv(folder / "products.csv")
    return folder


@pytest.fixture(scope="module")
def data(folder: Path) -> Interactions:
    return load(folder / "orders.csv", items=folder / "products.csv")


def test_the_metrics_under_rules_are_those_of_the_lists_of_a_service(data: Interactions, folder: Path) -> None:
    found = compare(data, {"ease": {"l2": 20.0}}, **RULES)
    bundle = train("ease", data, {"l2": 20.0}, signals="binary", plan=found.protocol.plan)
    source = bundle.protocol.source.moved_to(str(folder / "orders.csv"))
    report = report_lists(bundle, source, **RULES)
    assert report.ruled is not None
    for metric, value in report.ruled.items():
        assert found.models["ease"].mean(metric) == pytest.approx(value, abs=1e-6)
    cost = next(cost for cost in found.costs if cost.metric == "ndcg@100")
    assert report.costs is not None
    assert cost.difference == pytest.approx(report.costs["ndcg@100"].difference, abs=1e-6)
    assert found.protocol.hash != bundle.protocol.hash


def test_an_evaluation_with_returns_is_the_same_with_and_without_a_report(data: Interactions, folder: Path) -> None:
    """Returned products are in no list of either."""
    bundle = train("thinning-signals", data, {"tune_trials": 0}, signals="graded")
    source = bundle.protocol.source.moved_to(str(folder / "orders.csv"))
    split = rebuild_split(bundle, source)
    assert split.test.disliked is not None
    assert split.test.disliked.nnz
    means = evaluate(bundle.model, split.test, split.train, bundle.protocol.metrics).mean()
    assert report_lists(bundle, source).plain == pytest.approx(means)
    assert {name: value["mean"] for name, value in evaluate_bundle(bundle, source).items()} == pytest.approx(means)


def test_results_under_rules_are_stored_apart(data: Interactions, tmp_path: Path) -> None:
    store = tmp_path / "results.jsonl"
    plain = compare(data, MODELS, store=store)
    for _ in range(2):
        ruled = compare(data, MODELS, store=store, **RULES)
        assert ruled.models["ease"].mean("ndcg@100") < plain.models["ease"].mean("ndcg@100")
        assert [(cost.a, cost.metric) for cost in ruled.costs if cost.metric == "ndcg@100"] == [
            ("ease", "ndcg@100"),
            ("popularity", "ndcg@100"),
        ]
        assert 'Rules: the lists of test users are made with {"where": "stock > 0"' in ruled.protocol.assumptions()[-1]
    assert len(store.read_text(encoding="utf-8").splitlines()) == 4


def test_wrong_rules_are_one_sentence_before_any_fit(data: Interactions, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recfusion.experiments.run.split", lambda *_, **__: pytest.fail("it went on"))
    with pytest.raises(InputError, match="colour"):
        compare(data, MODELS, filters=Filters(where="colour == 'red'"))
    with pytest.raises(InputError, match="leave out --again"):
        rules_document(Filters(again="only"), None)
    assert rules_document(Filters(), Reranking()) == {}


def test_the_command_says_what_the_rules_cost_each_model(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["--data", str(folder / "orders.csv"), "--items", str(folder / "products.csv"), "--where", "stock > 0"]
    asked += [
        "--models",
        "ease,popularity",
        "--set",
        "ease.l2=20",
        "--out",
        str(tmp_path / "r.jsonl"),
        "--workers",
        "0",
    ]
    for more in ([], ["--json"]):
        monkeypatch.setattr("sys.argv", ["recfusion", "compare", *asked, *more])
        with pytest.raises(SystemExit) as stop:
            cli.main()
        assert not stop.value.code
    printed = capsys.readouterr().out
    assert "points of ndcg@100" in printed
    document = json.loads(printed[printed.index("{\n") :])
    assert {cost["a"] for cost in document["rule_costs"]} == {"ease", "popularity"}
