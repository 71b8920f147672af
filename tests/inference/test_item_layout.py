"""The map of the items: groups lie together, nights look alike, and every size of a catalogue has a map."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import recfusion as rf
from recfusion.core.arrays import FloatArray, IntArray
from recfusion.core.files import json_text, read_json
from recfusion.data.interactions import Interactions
from recfusion.inference import bundle_files as files
from recfusion.inference import item_layout as layout
from recfusion.inference.item_layout import Layout, make_layout
from recfusion.inference.similarity import Similarity
from recfusion.models.baselines.popularity import Popularity
from shop import shop


class Given(Similarity):
    """A similarity that is given as a matrix."""

    def __init__(self, matrix: FloatArray) -> None:
        self.matrix = matrix

    def rows(self, items: IntArray) -> FloatArray:
        return self.matrix[items]


def groups_of(size: int, n_groups: int, rng: np.random.Generator) -> FloatArray:
    """Return the similarity of items in groups: large within a group."""
    group = np.arange(size) % n_groups
    matrix = rng.random((size, size)) * np.where(group[:, None] == group[None], 1, 0.02)
    matrix = matrix + matrix.T
    np.fill_diagonal(matrix, 0)
    return matrix.astype(np.float32)


@pytest.mark.parametrize(("cell", "error"), [(1.0, 0.4), (0.2, 0.03)])
def test_the_repulsion_on_a_fine_grid_is_that_of_all_pairs(
    monkeypatch: pytest.MonkeyPatch, cell: float, error: float
) -> None:
    monkeypatch.setattr(layout, "_CELL", cell)
    monkeypatch.setattr(layout, "_EXACT", 0)
    places = 8 * np.random.default_rng(0).normal(size=(300, 2))
    apart = places[:, None] - places[None]
    q = 1 / (1 + (apart**2).sum(2))
    masses = np.linspace(1, 5, len(places))
    exact = masses[:, None, None] * masses[None, :, None] * (q**2)[:, :, None] * apart
    exact = exact.sum(1) / (q.sum() - len(places))
    wrong = float(np.abs(layout._Grid().repulsion(places, masses) - exact).mean())
    assert wrong < error * float(np.abs(exact).mean())


def test_groups_of_similar_items_lie_together() -> None:
    found = make_layout(Given(groups_of(120, 3, np.random.default_rng(0))), np.arange(120))
    group = found.items % 3
    apart = np.linalg.norm(found.places[:, None] - found.places[None], axis=2)
    within, between = apart[group[:, None] == group[None]].mean(), apart[group[:, None] != group[None]].mean()
    assert float(between) > 1.5 * float(within)
    assert found.places.min() >= 0
    assert found.places.max() <= 1


def test_the_same_similarity_gives_the_same_map_and_a_changed_one_a_similar_map() -> None:
    matrix = groups_of(150, 5, np.random.default_rng(0))
    first, again = (make_layout(Given(matrix), np.arange(150)) for _ in range(2))
    assert np.array_equal(first.places, again.places)
    other = groups_of(150, 5, np.random.default_rng(7))
    free = make_layout(Given(other), np.arange(150))
    turned = first.places[:, ::-1] * [1, -1] + [0, 1]  # a quarter turn
    near = make_layout(Given(other), np.arange(150), dict(enumerate(turned)))
    assert np.linalg.norm(near.places - turned, axis=1).mean() < 0.15
    assert np.linalg.norm(free.places - turned, axis=1).mean() > 0.15


@pytest.mark.parametrize("size", [1, 2, 3, 4, 20])
def test_small_catalogues_have_a_map_or_none(size: int) -> None:
    found = make_layout(Given(groups_of(size, 1, np.random.default_rng(0))), np.ones(size, np.int64))
    assert len(found.items) == (size if size > 1 else 0)
    assert np.isfinite(found.places).all()
    assert len(np.unique(found.places, axis=0)) == len(found.items)


def test_unconnected_groups_and_lonely_items(monkeypatch: pytest.MonkeyPatch) -> None:
    matrix = groups_of(100, 4, np.random.default_rng(0))
    matrix[matrix < 0.1] = 0
    matrix[90:], matrix[:, 90:] = 0, 0
    found = make_layout(Given(matrix), np.arange(100))
    assert found.items.tolist() == list(range(90))
    assert np.isfinite(found.places).all()
    monkeypatch.setattr(layout, "MOST", 40)
    most = make_layout(Given(matrix), np.arange(100)[::-1])
    assert most.items.tolist() == list(range(40))  # the most popular ones


def test_a_model_without_similarity_has_an_empty_map(groups: Interactions) -> None:
    bundle = shop(groups, "popularity")
    assert isinstance(bundle.model, Popularity)
    assert len(make_layout(bundle.similarity, bundle.counts).items) == 0


def test_a_folder_keeps_its_map_and_a_new_model_takes_it_over(groups: Interactions, tmp_path: Path) -> None:
    bundle = shop(groups)
    first = rf.Bundle.load(bundle.save(tmp_path / "m")).layout
    assert first is not None
    assert len(first.items) == 40
    mirrored = Layout(first.items, (first.places * [-1, 1] + [1, 0]).astype(np.float32))
    replace(bundle, layout=mirrored).save(tmp_path / "m")
    turned = rf.Bundle.load(bundle.save(tmp_path / "m")).layout
    assert turned is not None
    assert np.linalg.norm(turned.places - mirrored.places, axis=1).mean() < 0.2
    assert rf.Bundle.load(rf.Bundle.load(tmp_path / "m").save(tmp_path / "n")).layout is not None


def test_an_older_folder_without_a_map_loads_and_a_wrong_map_is_damage(groups: Interactions, tmp_path: Path) -> None:
    folder = shop(groups).save(tmp_path / "m")
    document = read_json(folder / files.CONFIG)
    assert isinstance(document, dict)
    (folder / files.LAYOUT).unlink()
    del document["digests"][files.LAYOUT]
    (folder / files.CONFIG).write_text(json_text(files.sealed(document)), encoding="utf-8")
    assert rf.Bundle.load(folder).layout is None
    wrong = Layout(np.array([0, 99]), np.zeros((2, 2), np.float32))
    with pytest.raises(rf.InputError, match="layout does not fit"):
        rf.Bundle.load(replace(shop(groups), layout=wrong).save(tmp_path / "n"))
