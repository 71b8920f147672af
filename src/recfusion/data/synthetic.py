"""Synthetic interactions of any size: Zipf popularity, log-normal activity, tastes by topics and neighbourhoods.

Users are generated in chunks, each from its own random stream, so memory does not grow with the number of rows.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from recfusion.core.arrays import IntArray
from recfusion.core.errors import InputError
from recfusion.core.rng import stream

ROWS_PER_CHUNK = 1 << 20
_FLAT = 10.0  # added to the rank in Zipf's law, as the top items of real shops are about equally popular
_SPREAD = 1.1  # standard deviation of the logarithm of users' activity
_TASTES = 3  # topics that a user likes
_WINDOW = 12  # places on either side of an item that are its neighbours
_ITEMS_PER_SEED = 8  # items of a history per neighbourhood that the user explores
_SHARES = (0.45, 0.45)  # of draws from the user's topics, and from neighbourhoods; the rest is by popularity
_ROUNDS = 8  # of draws by taste; the rest of a long history is drawn uniformly
_GAP = 86_400.0  # mean seconds between two interactions of a user
FIRST_TIME, LAST_TIME = 1_500_000_000, 1_700_000_000  # of users' first interactions

Numbers = NDArray[np.float64]
OnRows = Callable[[int], None]


@dataclass(frozen=True)
class Size:
    """Numbers of users, items and interactions."""

    users: int
    items: int
    interactions: int

    def check(self) -> None:
        """Raise unless there is an item per user and at most a quarter of all pairs."""
        if min(self.users, self.items) < 4:
            raise InputError(f"Expected at least 4 users and 4 items, got {self.users:,} and {self.items:,}.")
        most = self.users * self.items // 4
        if not self.users <= self.interactions <= most:
            raise InputError(
                f"Expected from {self.users:,} (one a user) to {most:,} interactions (a quarter of all pairs) for "
                f"{self.users:,} users and {self.items:,} items, got {self.interactions:,}: change one of the three."
            )


@dataclass(frozen=True)
class World:
    """The items on a line: topic after topic, similar items side by side."""

    edges: Numbers  # (items + 1,): cumulative popularity, from 0 to 1
    topics: IntArray  # (topics + 1,): the position at which each topic begins
    item: NDArray[np.int32]  # (items,): the item at each position, in random order


@dataclass(frozen=True)
class Chunk:
    """Rows of some users, in the order of users and, within them, of time."""

    user: IntArray  # numbers from 0
    item: NDArray[np.int32]
    time: IntArray
    liked: NDArray[np.bool_]  # whether taste, not popularity, caused the row
    rng: np.random.Generator  # for columns that a file format adds


def make_world(size: Size, seed: int) -> World:
    """Return the items of a seed: Zipf popularity in a random order, cut into about sqrt(items) / 2 topics."""
    rng = stream(seed, "generate items")
    weight = 1 / (_FLAT + np.arange(1, size.items + 1))
    rng.shuffle(weight)
    edges = np.concatenate([[0.0], np.cumsum(weight)])
    n_topics = max(4, round(np.sqrt(size.items) / 2))
    inner = np.sort(rng.choice(np.arange(1, size.items), min(n_topics, size.items) - 1, replace=False))
    topics = np.concatenate([[0], inner, [size.items]]).astype(np.int64)
    return World(edges / edges[-1], topics, rng.permutation(size.items).astype(np.int32))


def activity(size: Size, seed: int) -> IntArray:
    """Return how many items each user has, (users,): log-normal, from 1 to half of the items, with the exact sum."""
    rng = stream(seed, "generate users")
    drawn, most = np.exp(_SPREAD * rng.standard_normal(size.users)), size.items // 2
    low, high = 0.0, float(most) * size.interactions
    for _ in range(200):
        middle = (low + high) / 2
        above = np.clip(drawn * middle, 1, most).astype(np.int64).sum() > size.interactions
        low, high = (low, middle) if above else (middle, high)
    counts = np.clip(drawn * low, 1, most).astype(np.int64)
    while missing := size.interactions - int(counts.sum()):
        room = np.flatnonzero(counts < most)
        counts[rng.choice(room, min(missing, len(room)), replace=False)] += 1
    return counts


def chunks(size: Size, seed: int, *, rows: int = ROWS_PER_CHUNK, on_rows: OnRows | None = None) -> Iterator[Chunk]:
    """Yield all rows; the same size, seed and rows per chunk give the same ones. `on_rows` receives the rows so far."""
    size.check()
    world, counts = make_world(size, seed), activity(size, seed)
    ends = np.cumsum(counts)
    start = number = 0
    while start < size.users:
        before = ends[start - 1] if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, before + rows, side="right")))
        rng = stream(seed, f"generate rows {number}")
        yield _chunk(world, counts[start:stop], start, rng)
        start, number = stop, number + 1
        if on_rows is not None:
            on_rows(int(ends[stop - 1]))


def _chunk(world: World, counts: IntArray, first_user: int, rng: np.random.Generator) -> Chunk:
    user, place, liked = _distinct(world, counts, rng)
    start = rng.uniform(FIRST_TIME, LAST_TIME, len(counts))
    gaps = rng.exponential(_GAP, len(user)).cumsum()
    begin = np.cumsum(counts) - counts
    time = start[user] + gaps - gaps[begin][user]
    return Chunk(first_user + user, world.item[place], time.astype(np.int64), liked, rng)


def _distinct(world: World, counts: IntArray, rng: np.random.Generator) -> tuple[IntArray, IntArray, NDArray[np.bool_]]:
    """Return users (from 0), item positions, and whether taste chose them: counts[u] distinct ones for user u."""
    n_items, tastes = len(world.item), _Tastes(world, counts, rng)
    keys, liked = np.zeros(0, np.int64), np.zeros(0, bool)
    missing, rounds = counts.copy(), 0
    while (wanting := np.flatnonzero(missing)).size:
        users = np.repeat(wanting, missing[wanting] + missing[wanting] // 2 + 2)
        if rounds < _ROUNDS:
            place, by_taste = tastes.draw(users)
        else:
            place, by_taste = rng.integers(0, n_items, len(users)), np.zeros(len(users), bool)
        rounds += 1
        key, first = np.unique(users * n_items + place, return_index=True)
        fresh = ~np.isin(key, keys, assume_unique=True)
        first = np.sort(first[fresh])  # in draw order: users ascend, and the first draws of a user come first
        of = users[first]
        rank = np.arange(len(first)) - np.searchsorted(of, of)
        first = first[rank < missing[of]]
        added = users[first] * n_items + place[first]
        missing -= np.bincount(users[first], minlength=len(missing))
        keys, liked = np.concatenate([keys, added]), np.concatenate([liked, by_taste[first]])
    order = np.argsort(keys // n_items, kind="stable")
    return keys[order] // n_items, keys[order] % n_items, liked[order]


class _Tastes:
    """The tastes of some users: topics with shares, and items with neighbourhoods that they explore."""

    def __init__(self, world: World, counts: IntArray, rng: np.random.Generator) -> None:
        n_users = len(counts)
        self._world, self._rng = world, rng
        self._bounds = world.edges[world.topics]  # (topics + 1,)
        self._topic = _position(self._bounds, rng.random((n_users, _TASTES)))  # as popular as their items
        share = rng.standard_exponential((n_users, _TASTES))
        self._upto = np.cumsum(share / share.sum(1, keepdims=True), axis=1)
        self._seeds = 1 + counts // _ITEMS_PER_SEED
        self._first_seed = np.cumsum(self._seeds) - self._seeds
        self._seed = _position(world.edges, self._in_topics(np.repeat(np.arange(n_users), self._seeds)))

    def draw(self, users: IntArray) -> tuple[IntArray, NDArray[np.bool_]]:
        """Return an item position for each of `users`, and whether taste chose it; within a taste, by popularity."""
        rng, edges = self._rng, self._world.edges
        chance, point = rng.random(len(users)), rng.random(len(users))
        by_topic = np.flatnonzero(chance < _SHARES[0])
        point[by_topic] = self._in_topics(users[by_topic])
        near = np.flatnonzero((chance >= _SHARES[0]) & (chance < sum(_SHARES)))
        of = users[near]
        seed = self._seed[self._first_seed[of] + (rng.random(len(of)) * self._seeds[of]).astype(np.int64)]
        low, high = edges[np.maximum(seed - _WINDOW, 0)], edges[np.minimum(seed + _WINDOW + 1, len(edges) - 1)]
        point[near] = low + point[near] * (high - low)
        return _position(edges, point), chance < sum(_SHARES)

    def _in_topics(self, users: IntArray) -> Numbers:
        """Return a point of cumulative popularity for each of `users`, in one of the user's topics."""
        pick = (self._rng.random((len(users), 1)) > self._upto[users]).sum(1).clip(0, _TASTES - 1)
        topic = self._topic[users, pick]
        low, high = self._bounds[topic], self._bounds[topic + 1]
        return np.asarray(low + self._rng.random(len(users)) * (high - low))


def _position(edges: Numbers, point: Numbers) -> IntArray:
    return np.clip(np.searchsorted(edges, point, side="right") - 1, 0, len(edges) - 2)
