"""What is made of results: means, intervals, paired tests, examples, and their JSON."""

import json
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from fitted import METRICS, changed, fits

from recfusion.core.errors import InputError
from recfusion.data.interactions import Interactions
from recfusion.data.load import load
from recfusion.data.split import split
from recfusion.evaluation.significance import holm
from recfusion.experiments.comparison import Comparison, compare
from recfusion.experiments.fit import LENGTH, USERS
from recfusion.experiments.result import Result
from recfusion.training.epoch import Curve

Results = dict[tuple[str, int], Result]


@pytest.fixture(scope="module")
def results(groups: Interactions) -> Results:
    found = fits(groups, {"random": {}, "ease": {"l2": 10}})
    return {(one.label, one.seed): one for one in found}


@pytest.fixture(scope="module")
def whole(results: Results) -> Comparison:
    return Comparison.of(results.values())


def test_every_model_is_judged_on_the_same_users_of_every_split(results: Results) -> None:
    assert list(results) == [("random", 4), ("random", 5), ("ease", 4), ("ease", 5)]
    for seed in (4, 5):
        assert results["random", seed].users.tolist() == results["ease", seed].users.tolist()


def test_a_comparison_holds_each_metric_with_its_parts(whole: Comparison, results: Results) -> None:
    ease = whole.models["ease"]
    assert (ease.settings["l2"], ease.chosen, ease.title) == (10, {}, "linear item-item model with a closed form")
    for metric in ("recall@5", "ndcg@10"):
        summary = ease.metrics[metric]
        assert summary.splits == tuple(results["ease", seed].mean()[metric] for seed in (4, 5))
        assert summary.ci95 is not None
        assert summary.ci95[0] <= summary.mean <= summary.ci95[1]
        assert summary.median == pytest.approx(sum(summary.splits) / 2)
    assert ease.metrics["coverage@5"].ci95 is None
    assert ease.fit_seconds > 0
    assert ease.score_seconds > 0
    assert (whole.protocol.users, whole.seeds) == (80, (4, 5))
    assert (whole.metrics, whole.main_metric) == (list(METRICS), "ndcg@10")
    assert (whole.ranked(), whole.best()) == (["ease", "random"], "ease")


def test_the_best_model_is_tested_against_the_others(whole: Comparison) -> None:
    tests = {test.metric: test for test in whole.tests}
    assert set(tests) == {"recall@5", "ndcg@10"}
    assert tests["ndcg@10"].a == "ease"
    assert (tests["ndcg@10"].p_holm or 0) < 0.01


def test_every_other_model_is_tested_against_the_reference(groups: Interactions) -> None:
    results = fits(groups, {"random": {}, "ease": {"l2": 10}, "popularity": {}}, [0, 1], ["ndcg@10"])
    found = Comparison.of(results, reference="popularity")
    against = {test.a: test for test in found.differences}
    assert set(against) == {"random", "ease"}
    for label, test in against.items():
        assert test.b == "popularity"
        assert test.difference == pytest.approx(
            found.models[label].mean("ndcg@10") - found.models["popularity"].mean("ndcg@10")
        )
        assert test.ci95 is not None
        assert test.ci95[0] <= test.difference <= test.ci95[1]
        assert test.p is not None
        assert test.p_holm is not None
        assert test.p <= test.p_holm
        assert test.of("popularity") == (-test.difference, (-test.ci95[1], -test.ci95[0]))
        assert found.test("ndcg@10", "popularity", label) in (*found.tests, test)
    p_values = [test.p for test in found.differences]
    assert [test.p_holm for test in found.differences] == holm(p_values) != p_values
    usual = Comparison.of(results)
    assert usual.reference == "ease"
    assert {test.a for test in usual.differences} == {"random", "popularity"}
    without = Comparison.of([one for one in results if one.label != "ease"])
    assert (without.reference, without.differences) == (None, ())
    with pytest.raises(InputError, match="Unknown model to test against 'slim': choose one of random, ease, pop"):
        Comparison.of(results, reference="slim")


def scaled(result: Result, factor: float, label: str) -> Result:
    values = {metric: factor * values for metric, values in result.test.items()}
    return changed(result, label=label, test=values)


def test_a_model_that_has_an_easy_split_alone_is_not_the_best(results: Results) -> None:
    hard, easy = (scaled(results["ease", seed], factor, "ease") for seed, factor in ((4, 0.2), (5, 1.0)))
    lucky, better = (scaled(results["ease", 5], factor, "lucky") for factor in (0.9, 1.1))
    for other, best in ((lucky, "ease"), (better, "lucky")):
        found = Comparison.of([hard, easy, other])
        assert found.models["lucky"].mean("ndcg@10") > found.models["ease"].mean("ndcg@10")
        assert {test.a for test in found.tests} == {best} == {found.best()}
        assert all(test.difference > 0 for test in found.tests)


def test_a_model_with_fewer_splits_has_means_over_its_own(whole: Comparison, results: Results) -> None:
    found = Comparison.of([one for key, one in results.items() if key != ("ease", 5)])
    assert found.seeds == (4, 5)
    assert (found.models["random"].seeds, found.models["ease"].seeds) == ((4, 5), (4,))
    assert found.models["random"] == whole.models["random"]
    assert found.models["ease"].mean("ndcg@10") == results["ease", 4].mean()["ndcg@10"]


def test_a_paired_test_is_over_the_splits_that_both_models_have(whole: Comparison, results: Results) -> None:
    one = Comparison.of([results["random", 4], results["ease", 4]])
    fewer = Comparison.of([one for key, one in results.items() if key != ("ease", 5)])
    assert fewer.tests == one.tests
    assert all(test.seeds == (4,) for test in fewer.tests)
    apart = Comparison.of([results["random", 4], results["ease", 5]])
    assert (apart.tests, apart.differences) == ((), ())
    assert all(test.seeds == (4, 5) for test in (*whole.tests, *whole.differences))


def test_a_single_test_user_leaves_intervals_and_tests_open(results: Results) -> None:
    """On two splits, too: they are the same user's."""
    values = {metric: np.array([0.5]) for metric in METRICS if metric != "coverage@5"}
    one = {"users": np.array([3]), "history_size": np.array([5])}
    better = {metric: np.array([0.7]) for metric in values}
    own = {"random": values, "ease": better}
    found = Comparison.of(changed(result, **one, test=own[label]) for (label, _), result in results.items())
    assert [test.difference for test in found.tests] == pytest.approx([0.2, 0.2])
    assert {(test.ci95, test.p, test.p_holm) for test in (*found.tests, *found.differences)} == {(None, None, None)}
    document = found.document()
    assert document["models"]["ease"]["ndcg@10"]["ci95"] is None
    for test in document["tests"] + document["reference_tests"]:
        assert (test["ci95"], test["p"], test["p_holm"]) == (None, None, None)
    assert found.to_frame().select("low", "high", "p").null_count().row(0) == (6, 6, 6)


def test_two_results_for_one_place_are_refused(results: Results) -> None:
    with pytest.raises(InputError, match="one result of random on split 4, got two"):
        Comparison.of([*results.values(), results["random", 4]])
    for change in ({"settings": {"l2": 11}}, {"source": "edited"}, {"model": "slim"}):
        with pytest.raises(InputError, match="one set of settings for ease"):
            Comparison.of([results["ease", 4], changed(results["ease", 5], **change)])


def test_settings_that_a_fit_chose_stand_beside_those_asked_for(results: Results) -> None:
    asked = {"l2": None, "k": 3}
    one, two = (changed(results["ease", seed], settings=asked, chosen={"l2": l2}) for seed, l2 in ((4, 7.0), (5, 9.0)))
    ease = Comparison.of([one, two]).models["ease"]
    assert (ease.settings, ease.chosen) == (asked, {"l2": [7.0, 9.0]})


def test_trials_are_their_mean_and_nothing_where_a_result_does_not_say(results: Results) -> None:
    for counts, mean in (((10, 20), 15), ((10, None), 10), ((None, None), None)):
        two = [changed(results["ease", seed], trials=n) for seed, n in zip((4, 5), counts, strict=True)]
        assert Comparison.of(two).models["ease"].trials == mean


def test_curves_are_those_of_models_with_epochs(results: Results) -> None:
    curve = Curve((1, 2), (0.5, None), (0.1, 0.2), (1.0, 1.0))
    found = Comparison.of([results["ease", 4], changed(results["random", 4], label="net", curve=curve)])
    assert found.curves == {"net": [(4, curve)]}
    assert found.models["net"].epochs == 2
    assert found.document()["curves"] == {
        "net": [{"seed": 4, "epoch": [1, 2], "loss": [0.5, None], "metric": [0.1, 0.2], "seconds": [1.0, 1.0]}]
    }


def test_a_comparison_may_have_metrics_without_values_per_user_alone(groups: Interactions) -> None:
    found = Comparison.of(fits(groups, ["random", "ease"], [0], ["coverage@5"]))
    assert 0 < found.models["ease"].mean("coverage@5") <= 1
    assert (found.tests, found.differences, found.main_metric) == ((), (), "coverage@5")
    assert found.to_frame()["low"].to_list() == [None, None]


def test_a_result_tells_of_validation_users_activity_and_popularity(groups: Interactions, results: Results) -> None:
    for one in results.values():
        assert set(one.validation) == set(METRICS)
        sizes = {int(user): groups.matrix[[int(user)]].nnz for user in one.users}
        assert one.history_size.tolist() == [round(0.8 * sizes[int(user)]) for user in one.users]
        assert sum(one.slices.held_out) == sum(sizes.values()) - one.history_size.sum()
        n_held_out = [sizes[int(user)] - shown for user, shown in zip(one.users, one.history_size, strict=True)]
        assert sum(one.slices.hits[5]) == pytest.approx(one.test["recall@5"] @ n_held_out)
        assert one.epochs == 0


def test_results_that_cannot_be_compared_are_refused(results: Results) -> None:
    ease = results["ease", 4]
    other = ease.model_copy(update={"protocol": ease.protocol.model_copy(update={"hash": "other"})})
    with pytest.raises(InputError, match="cannot stand in one table"):
        Comparison.of([results["random", 4], other])
    with pytest.raises(InputError, match="at least one result"):
        Comparison.of([])
    nobody = changed(ease, users=ease.users[:0], history_size=ease.users[:0], test={})
    with pytest.raises(InputError, match="test users for ease on split 4, got none"):
        Comparison.of([nobody])


def test_examples_show_titles_and_mark_hits(groups: Interactions, results: Results) -> None:
    shown = Comparison.of([results["ease", 4], results["random", 4]]).examples
    assert [example.number for example in shown] == list(range(1, USERS + 1))
    fold = split(groups, seed=4).test
    rows = np.linspace(0, len(fold.users) - 1, USERS).astype(int)
    for row, example in zip(rows, shown, strict=True):
        history, held_out = ({f"Item {n}" for n in part[[row]].indices} for part in (fold.history, fold.held_out))
        assert set(example.history) <= history
        assert len(example.history) + example.more == len(history)
        assert list(example.lists) == ["ease", "random"]
        assert example.user is None
        for places in example.lists.values():
            assert len(places) == LENGTH
            assert all(place.hit == (place.title in held_out) for place in places)
            assert not {place.title for place in places} & history
    assert any(place.hit for example in shown for place in example.lists["ease"])


def test_examples_are_of_the_split_that_most_models_have(results: Results) -> None:
    def histories(*without: tuple[str, int]) -> list[tuple[str, ...]]:
        kept = [changed(one, examples=()) if key in without else one for key, one in results.items()]
        return [example.history for example in Comparison.of(kept).examples]

    assert histories() == [example.history for example in results["ease", 4].examples]
    assert histories(("ease", 4)) == [example.history for example in results["ease", 5].examples]
    assert histories(*results) == []


def test_examples_of_different_users_are_not_mixed_up(results: Results) -> None:
    fewer = changed(results["random", 4], examples=results["random", 4].examples[1:])
    shown = Comparison.of([fewer, results["ease", 4]]).examples
    assert {example.number: list(example.lists) for example in shown} == {
        2: ["random", "ease"],
        3: ["random", "ease"],
        1: ["ease"],
    }


def test_the_document_is_json_without_nan_and_has_differences_with_intervals(results: Results) -> None:
    same = changed(results["ease", 4], label="same")  # no difference at all to ease
    text = json.dumps(Comparison.of([*results.values(), same], title="T", command="c").document(), allow_nan=False)
    document = json.loads(text)
    tests = {(test["metric"], test["a"]): test for test in document["reference_tests"]}
    assert set(tests) == {(metric, label) for metric in ("recall@5", "ndcg@10") for label in ("random", "same")}
    assert document["reference"] == "ease"
    low, high = tests["ndcg@10", "random"]["ci95"]
    assert low <= tests["ndcg@10", "random"]["difference"] <= high < 0
    assert (tests["ndcg@10", "same"]["difference"], tests["ndcg@10", "same"]["p"]) == (0, 1)
    ease = document["models"]["ease"]
    assert ease["ndcg@10"]["mean"] == Comparison.of(results.values()).models["ease"].mean("ndcg@10")
    assert (ease["n_splits"], ease["coverage@5"]["ci95"]) == (2, None)
    assert (document["title"], document["command"], "note" in document, "paper" in document) == ("T", "c", False, False)
    assert set(document["slices"]) == {"activity", "popularity"}
    assert len(document["protocol"]["assumptions"]) == 6


def test_a_comparison_becomes_a_frame(whole: Comparison) -> None:
    frame = whole.to_frame()
    assert frame.columns == ["model", "metric", "mean", "low", "high", "minus ease", "p"]
    assert frame["model"].to_list() == ["ease"] * 3 + ["random"] * 3
    row = frame.row(by_predicate=(pl.col("model") == "random") & (pl.col("metric") == "ndcg@10"), named=True)
    (test,) = (test for test in whole.differences if test.metric == "ndcg@10")
    assert (row["minus ease"], row["p"]) == (test.difference, test.p_holm)
    assert row["low"] < row["mean"] < row["high"]


def test_a_comparison_shows_itself_and_escapes_what_others_named(whole: Comparison) -> None:
    mean = 100 * whole.models["ease"].mean("ndcg@10")
    assert repr(whole).startswith(f"Comparison(made up, splits 4, 5, ndcg@10: ease {mean:.2f}, random ")
    assert f"<td>ease</td><td>{100 * whole.models['ease'].mean('recall@5'):.2f} (" in whole._repr_html_()
    evil = replace(whole, models={"<script>": whole.models["ease"]})
    assert "<script>" not in evil._repr_html_()
    assert "&lt;script&gt;" in evil._repr_html_()


def test_the_advice_names_a_model_and_a_reason() -> None:
    found = compare(load(), ["popularity", "ease"])
    told = found.advice()
    assert told.startswith(f"Use {found.best()}: its ndcg@100 is ")
    assert found.document()["advice"] == told
    assert "no other model to compare" in compare(load(), ["popularity"]).advice()
    tied = compare(load(), {"one": "popularity", "other": "popularity"}).advice()
    assert "does not differ significantly" in tied
