"""What rules cost, which products lists show, and the gain over bestsellers, against counts by hand."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from recfusion.cli import main as cli
from recfusion.data.load import load
from recfusion.data.options import Source
from recfusion.evaluation.evaluate import evaluate
from recfusion.evaluation.significance import Difference
from recfusion.experiments.list_report import ListReport, report_lists
from recfusion.experiments.train import rebuild_split, train
from recfusion.inference.bundle import Bundle
from recfusion.inference.request import Filters, Reranking


@pytest.fixture(scope="module")
def orders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write users with either of two tastes."""
    file, rng = tmp_path_factory.mktemp("data") / "orders.csv", np.random.default_rng(3)
    rows = [(u, f"i{15 * (u % 2) + i:02d}") for u in range(120) for i in rng.permutation(15)[:8]]
    pl.DataFrame(rows, schema=["user", "item"], orient="row").write_csv(file)
    return file


@pytest.fixture(scope="module")
def source(bundle: Bundle, orders: Path) -> Source:
    return bundle.protocol.source.moved_to(str(orders))


@pytest.fixture(scope="module")
def bundle(orders: Path) -> Bundle:
    """Return a model of items with a price and a stock."""
    found = train("ease", load(orders))
    n = len(found.items)
    table = found.items.with_columns(pl.Series("price", np.arange(n) + 1.0), pl.Series("stock", np.arange(n) % 3))
    return replace(found, items=table)


def test_without_rules_the_metrics_are_those_of_an_evaluation(bundle: Bundle, source: Source) -> None:
    report, parts = report_lists(bundle, source), rebuild_split(bundle, source)
    plain = evaluate(bundle.model, parts.test, parts.train, bundle.protocol.metrics).mean()
    assert report.plain == pytest.approx(plain)
    assert report.costs is None


def test_rules_cost_what_their_lists_lose_for_the_same_users(bundle: Bundle, source: Source) -> None:
    report = report_lists(bundle, source, filters=Filters(where="stock > 0"), reranking=Reranking(boost={"price": -1}))
    assert report.ruled is not None
    assert report.costs is not None
    for metric, cost in report.costs.items():
        assert cost.difference == pytest.approx(report.ruled[metric] - report.plain[metric])
        assert cost.ci95 is not None
        assert cost.ci95[0] <= cost.difference <= cost.ci95[1]
    assert report.costs["ndcg@100"].difference < 0
    assert report.cost_sentence("ndcg@100").startswith("These rules cost ")
    assert report.shown.sold_out is not None
    assert report.shown.sold_out > 0
    assert report.ruled_shown is not None
    assert report.ruled_shown.sold_out == 0
    assert report.ruled_shown.listed <= 20


def test_rules_that_change_nothing_cost_nothing(bundle: Bundle, source: Source) -> None:
    report = report_lists(bundle, source, filters=Filters(where="price > 0"))
    assert report.costs is not None
    assert report.costs["ndcg@100"].difference == 0


def test_shown_products_and_gains_are_counted(bundle: Bundle, source: Source) -> None:
    report, parts = report_lists(bundle, source, k=4), rebuild_split(bundle, source)
    scores = bundle.model.score(parts.test.history)
    scores[parts.test.history.toarray() > 0] = -np.inf
    lists = np.argsort(-scores, axis=1, kind="stable")[:, :4]
    popular = np.where(parts.test.history.toarray() > 0, -1, bundle.counts)
    best = np.argsort(-popular, axis=1, kind="stable")[:, :4]
    held_out, prices = parts.test.held_out.toarray() > 0, bundle.items["price"].to_numpy()
    hits, popular_hits = (np.take_along_axis(held_out, own, axis=1) for own in (lists, best))
    assert report.gain.hits == pytest.approx(hits.sum(1).mean())
    assert report.gain.popular_hits == pytest.approx(popular_hits.sum(1).mean())
    assert report.gain.money is not None
    worth = (hits * prices[lists]).sum(1) - (popular_hits * prices[best]).sum(1)
    assert report.gain.money.difference == pytest.approx(worth.mean())
    assert "in prices per user" in report.gain.sentence(4)
    counts = np.bincount(lists.ravel(), minlength=len(bundle.items))
    assert report.shown.listed == np.count_nonzero(counts)
    differences = np.abs(counts[:, None] - counts[None]).sum()
    assert report.shown.gini == pytest.approx(differences / (2 * len(counts) * counts.sum()))
    assert f"{len(counts) - report.shown.listed} never" in report.shown.sentence(4)


def test_a_gain_is_named_so(bundle: Bundle, source: Source) -> None:
    report = report_lists(bundle, source, filters=Filters(where="price > 0"))
    better: ListReport = replace(report, costs={"ndcg@100": Difference(0.0123, (0.01, 0.02), 0.001)})
    assert better.cost_sentence("ndcg@100") == "These rules gain 1.23 points of ndcg@100 (1.00 to 2.00)."


def test_the_command_prints_costs_and_keeps_the_folder(
    tmp_path: Path, bundle: Bundle, source: Source, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = bundle.save(tmp_path / "model")
    monkeypatch.setattr(
        "sys.argv", ["recfusion", "evaluate", str(folder), "--data", source.data, "--boost", "price=-1", "-k", "5"]
    )
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert not stop.value.code
    printed = capsys.readouterr().out
    assert "with these rules: " in printed
    assert " points of ndcg@100 (" in printed
    assert "Lists of 5 hold " in printed
    plain = report_lists(bundle, source).plain
    stored = Bundle.load(folder).metrics["test"]
    assert {name: value["mean"] for name, value in stored.items()} == pytest.approx(plain)
