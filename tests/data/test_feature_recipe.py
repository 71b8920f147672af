"""Which columns become which features, and rows that come later."""

import numpy as np
import polars as pl
import pytest

import recfusion.data.feature_recipe as recipe_module
from recfusion.core.errors import InputError
from recfusion.data.feature_recipe import Recipe, Recipes

TABLE = pl.DataFrame(
    {
        "item": [1, 2, 3, 4],
        "title": ["Red heart box", "Blue HEART", "Green box", "Nothing else"],
        "genres": ["A|B", "B", "A", None],
        "price": [1.0, 2.0, 3.0, None],
        "code": ["x1", "x2", "x3", "x4"],
    }
)


def test_each_kind_of_column_has_its_features() -> None:
    found = Recipe.of(TABLE)
    kinds = {column.name: (column.kind, column.values) for column in found.columns}
    assert kinds["genres"] == ("categories", ("A", "B"))
    assert "code" in found.unused


def test_texts_that_few_rows_repeat_become_words_that_two_rows_share() -> None:
    table = pl.DataFrame({"item": range(40), "title": [f"Heart {n} box" if n < 30 else f"only{n}" for n in range(40)]})
    (column,) = Recipe.of(table).columns
    assert (column.kind, column.values) == ("words", ("box", "heart"))
    assert column.weights[0] == pytest.approx(np.log(40 / 30), abs=1e-5)


def test_a_row_has_norm_one_and_rare_values_weigh_more() -> None:
    table = pl.DataFrame({"item": range(6), "kind": ["a|b", "a", "a", "a|b", "a", "c"]})
    matrix = Recipe.of(table).encode(table).matrix.toarray()  # c is one row's alone
    assert matrix.shape == (6, 2)
    np.testing.assert_allclose(np.linalg.norm(matrix, axis=1), [1, 1, 1, 1, 1, 0], atol=1e-6)
    assert matrix[0, 1] > matrix[0, 0]


def test_new_rows_are_encoded_alike_and_what_is_not_known_is_counted() -> None:
    table = pl.DataFrame({"item": range(4), "kind": ["a|b", "a", "b", "b"]})
    recipe = Recipe.of(table, ["kind"])
    found = recipe.encode(pl.DataFrame({"item": [9, 8], "kind": ["b|z", None]}))
    assert (found.known, found.given, found.without) == (1, 2, 1)
    assert found.matrix.toarray()[0].tolist() == [0, 1]
    assert recipe.encode(pl.DataFrame({"item": [9]})).absent == ("kind",)


def test_numbers_fall_into_bins_with_about_as_many_rows_each() -> None:
    table = pl.DataFrame({"item": range(100), "price": [n / 3 for n in range(100)]})
    recipe = Recipe.of(table)
    (column,) = recipe.columns
    assert (column.kind, len(column.values)) == ("numbers", 10)
    counts = np.bincount(recipe.encode(table).matrix.indices)
    assert counts.min() >= 9
    assert recipe.encode(pl.DataFrame({"price": [1e9]})).known == 1
    assert recipe.encode(pl.DataFrame({"price": ["dear"]})).known == 0


def test_many_words_are_hashed_and_their_buckets_have_a_word_s_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recipe_module, "MOST_WORDS", 8)
    table = pl.DataFrame({"item": range(60), "text": [f"w{n} w{n + 1} w{n + 2}" for n in range(60)]})
    (column,) = Recipe.of(table).columns
    assert column.buckets == 8
    assert all(name.startswith("w") for name in column.names)
    assert column.keys("w3") == column.keys("W3!")


def test_a_column_that_says_nothing_is_refused_where_it_is_asked_for() -> None:
    table = pl.DataFrame({"item": range(30), "code": [f"c{n}" for n in range(30)]})
    assert not Recipe.of(table).columns
    with pytest.raises(InputError, match="that several rows share in the column 'code'"):
        Recipe.of(table, ["code"])
    with pytest.raises(InputError, match="column for features"):
        Recipe.of(table, ["colour"])


def test_recipes_come_back_from_json_and_damaged_ones_are_refused() -> None:
    kept = Recipes(items=Recipe.of(TABLE))
    document = kept.model_dump(mode="json")
    assert Recipes.parse(document, "here") == kept
    document["items"]["columns"][0]["weights"] = [1.0]
    with pytest.raises(InputError, match="a weight each in 'here'"):
        Recipes.parse(document, "here")
    with pytest.raises(InputError, match="Expected recipes of features in 'here'"):
        Recipes.parse({"items": 3}, "here")


def test_values_that_a_recipe_does_not_know_are_named_with_those_that_it_knows() -> None:
    table = pl.DataFrame({"user": range(6), "town": ["Rome", "Oslo", "Bern"] * 2, "age": [20.5, 30, 41, 52, 63, 74]})
    recipe = Recipe.of(table)
    later = pl.DataFrame({"user": [7, 8, 9], "town": ["Paris", "Rome", "Lima"], "age": [1.0, 2.0, 900.0]})
    assert list(recipe.unseen(later)) == [
        "The column 'town' has 'Paris' and 1 more, taken as missing: known are Bern, Oslo, Rome."
    ]
    assert list(recipe.unseen(table)) == []
    assert list(recipe.unseen(table.drop("town"))) == []
