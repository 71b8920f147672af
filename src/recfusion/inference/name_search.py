"""Items by what somebody types of their names, forgiving of typos."""

import re
import unicodedata
from collections.abc import Sequence

import numpy as np
from scipy.sparse import csc_array

from recfusion.core.arrays import FloatArray, IntArray

_LEAST = 0.45  # share of the query's pieces that a name must have
_LONGEST = 200  # characters of a query that are read
_WHOLE, _WORDS, _POPULAR = 1.0, 0.5, 0.1  # what a name gains that has the query, begins its words so, is popular


class NameSearch:
    """Names as bags of three-letter pieces: those that share most with the query come first.

    A typo destroys at most three pieces of a word, so the rest still finds it. A name that holds the query as it was
    typed, and words that begin as it does, come before; among equals, popular items come first.
    """

    def __init__(self, names: Sequence[str], counts: IntArray) -> None:
        self._names = [f" {normal(name)} " for name in names]
        self._popularity = np.log1p(counts) / max(float(np.log1p(counts).max(initial=0)), 1e-12)
        self._by_popularity = np.argsort(-counts, kind="stable")
        pieces = [pieces_of(name) for name in self._names]
        every = sorted(set().union(*pieces)) if pieces else []
        self._places = {piece: place for place, piece in enumerate(every)}
        row = np.repeat(np.arange(len(pieces)), [len(own) for own in pieces])
        column = np.array([self._places[piece] for own in pieces for piece in own], np.int64)
        ones = np.ones(len(row), np.float32)
        self._matrix = csc_array((ones, (row, column)), shape=(len(pieces), len(every)))
        self._lengths = np.array([len(own) for own in pieces], np.float32)

    def find(self, query: str, limit: int) -> IntArray:
        """Return the items whose names fit best; the most popular ones for an empty query."""
        typed = normal(query[:_LONGEST])
        if not typed:
            return self._by_popularity[:limit]
        wanted = pieces_of(f" {typed} ")
        share = self._shares(wanted)
        candidates = np.flatnonzero(share >= _LEAST) if len(typed) > 2 else self._beginning(typed)
        value = share[candidates] + _POPULAR * self._popularity[candidates]
        value -= 0.001 * self._lengths[candidates]
        value += [self._bonus(typed, self._names[place]) for place in candidates.tolist()]
        return candidates[np.argsort(-value, kind="stable")[:limit]]

    def _shares(self, wanted: set[str]) -> FloatArray:
        """Return the share of the query's pieces that each name has."""
        known = [self._places[piece] for piece in wanted if piece in self._places]
        found = self._matrix[:, known].sum(axis=1) if known else np.zeros(len(self._names))
        return np.asarray(found, np.float32) / np.float32(len(wanted))

    def _beginning(self, typed: str) -> IntArray:
        return np.array([place for place, name in enumerate(self._names) if f" {typed}" in name], np.int64)

    @staticmethod
    def _bonus(typed: str, name: str) -> float:
        words = typed.split()
        return _WHOLE * (f" {typed}" in name) + _WORDS * sum(f" {word}" in name for word in words) / len(words)


def normal(text: str) -> str:
    """Return a text in small letters without accents, words of letters and digits with one space between them."""
    plain = "".join(sign for sign in unicodedata.normalize("NFKD", text.lower()) if not unicodedata.combining(sign))
    return " ".join(re.findall(r"\w+", plain))


def pieces_of(name: str) -> set[str]:
    """Return the pieces of three letters, word by word, with the spaces around each word."""
    return {f" {word} "[start : start + 3] for word in name.split() for start in range(len(word))}
