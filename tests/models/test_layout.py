"""Places of items: everybody has one of their own, and neighbours are alike."""

import numpy as np
import pytest

from conftest import csr, random_csr
from recfusion.models.recfusion.item_layout import item_features, place_items


def test_features_tell_items_of_different_users_apart_and_have_length_1() -> None:
    train = csr([[0, 1, 2], [0, 1], [1, 2], [0, 2], [3, 4, 5], [3, 4], [4, 5], [3, 5], [2, 3]], 7)
    features = item_features(train, 1)
    assert features.shape == (7, 1)
    assert np.linalg.norm(features, axis=1) == pytest.approx([1] * 6 + [0], abs=1e-6)
    likeness = features @ features.T
    assert likeness[:3, :3].min() > 0.9
    assert likeness[:3, 3:6].max() < 0


def test_features_of_a_large_and_a_small_matrix_are_the_eigenvectors_of_the_cosines() -> None:
    train = random_csr(80, 50, 0.2, 0)
    dense, n = train.toarray().astype(float), train.sum(0)
    values, vectors = np.linalg.eigh(dense.T @ dense / np.sqrt(np.outer(n, n)))
    expected = (vectors * np.sqrt(np.maximum(values, 0)))[:, ::-1][:, 1:5]
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    found = item_features(train, 4)  # by the sparse solver
    assert found @ found.T == pytest.approx(expected @ expected.T, abs=1e-4)


@pytest.mark.parametrize(
    ("n", "height", "width"), [(1, 1, 1), (5, 1, 9), (48, 7, 7), (49, 7, 7), (10, 14, 14), (0, 2, 2)]
)
def test_every_item_has_a_slot_of_its_own_on_the_map(n: int, height: int, width: int) -> None:
    features = np.random.default_rng(0).standard_normal((n, 3))
    slots = place_items(features, height, width)
    assert len(set(slots.tolist())) == n
    assert not n or 0 <= slots.min() <= slots.max() < height * width


def test_items_that_lie_on_a_line_are_put_into_their_order() -> None:
    place = np.random.default_rng(0).permutation(16)
    order = place_items(place[:, None].astype(float), 1, 16)
    assert order.tolist() in (place.tolist(), (15 - place).tolist())


def test_items_of_a_square_lie_beside_their_neighbours_on_the_map() -> None:
    """Points of a grid, shuffled and turned: next to each on the map lie points that were next to it."""
    y, x = np.divmod(np.random.default_rng(1).permutation(64), 8)
    points = np.stack([x + 0.3 * y, y - 0.3 * x], 1).astype(float)
    slots = place_items(points, 8, 8)
    on_map = np.zeros((8, 8, 2))
    on_map.reshape(64, 2)[slots] = points
    apart = np.linalg.norm(np.diff(on_map, axis=1), axis=2).mean()
    at_random = np.linalg.norm(np.diff(points[:, None] - points[None], axis=1), axis=2).mean()
    assert apart < 0.4 * at_random


def test_blocks_are_turned_towards_their_neighbours() -> None:
    """Without that, halves of a row would come in either direction, and jump where blocks meet."""
    angle = np.linspace(0, 3, 64)[np.random.default_rng(2).permutation(64)]
    features = np.stack([np.cos(angle), np.sin(angle)], 1)
    row = np.empty(64)
    row[place_items(features, 1, 64)] = angle
    assert np.abs(np.diff(row)).max() < 0.3
