"""Makes features of items and users from the columns of their tables."""

from collections.abc import Collection, Sequence
from dataclasses import replace

import polars as pl

from recfusion.data.column_roles import Role, column_roles, parse_roles
from recfusion.data.feature_recipe import Recipe, Recipes
from recfusion.data.interactions import Features, Interactions, Signal
from recfusion.data.protocol import Protocol
from recfusion.data.signals import ASKED, AUTO, EVERY, parse_signals

_NO_FEATURES: tuple[Role, ...] = ("stock", "image", "link")  # they change from day to day, or describe no item


def with_features(data: Interactions, signals: str, reads: Collection[Signal] = EVERY) -> Interactions:
    """Add item and user features if `signals` requests them; data that has features is returned unchanged.

    "auto" requests them for a model that `reads` them. Columns of stock, images and links are features only if the
    source names them.
    """
    asked_for = {"features", AUTO} & {*parse_signals(signals)} and {*ASKED["features"]} & {*reads}
    if not asked_for or data.item_features is not None or data.user_features is not None:
        return data
    asked = [name.strip() for name in (data.source.feature_columns or "").split(",") if name.strip()] or None
    table = data.item_table
    if asked is None:
        roles = column_roles(table, parse_roles(data.source.roles))
        table = table.drop(roles[role] for role in _NO_FEATURES if role in roles)
    items = _features(table, asked)
    users = None if data.user_table is None else _features(data.user_table, None)
    made = ((what, found.recipe) for what, found in (("items", items), ("users", users)) if found is not None)
    notes = (
        f"features of {what}: {text}" for what, recipe in made if recipe is not None for text in recipe.sentences()
    )
    report = replace(data.report, notes=(*data.report.notes, *notes))
    return replace(data, item_features=items, user_features=users, report=report)


def features_of(recipe: Recipe, table: pl.DataFrame) -> Features:
    """Return the features of the rows of a table by a given recipe."""
    return Features(recipe.encode(table).matrix, recipe.names, recipe)


def _features(table: pl.DataFrame, asked: Sequence[str] | None) -> Features | None:
    recipe = Recipe.of(table, asked)
    return features_of(recipe, table) if recipe.columns else None


def recipes_of(data: Interactions, protocol: Protocol) -> Recipes:
    """Return the recipes of the features that a model was trained with."""
    used = protocol.signals.used
    items = data.item_features if "item_features" in used else None
    users = data.user_features if "user_features" in used else None
    return Recipes(items=None if items is None else items.recipe, users=None if users is None else users.recipe)
