"""Search of items by name that tolerates typos."""

import re
import unicodedata
from collections.abc import Sequence

import numpy as np
from scipy.sparse import csc_array

from recfusion.core.arrays import IntArray

_LEAST = 0.45  # smallest share of the query's trigrams that a name must have
_LONGEST = 200  # characters of a query; the rest is ignored
_WHOLE, _WORDS, _POPULAR = 1.0, 0.5, 0.1  # bonus for the whole query, words that begin like its words, popularity


class NameSearch:
    """Names as sets of trigrams: those that share most trigrams with the query come first.

    A typo changes at most three trigrams of a word, so the others still match. Names that contain the query, or words
    that begin like its words, get a bonus; ties are broken by popularity.
    """

    def __init__(self, names: Sequence[str], counts: IntArray) -> None:
        self._names = [f" {normal(name)} " for name in names]
        self._popularity = np.log1p(counts) / max(float(np.log1p(counts).max(initial=0)), 1e-12)
        self._by_popularity = np.argsort(-counts, kind="stable")
        grams = [trigrams(name) for name in self._names]
        every = sorted(set().union(*grams)) if grams else []
        self._places = {gram: place for place, gram in enumerate(every)}
        row = np.repeat(np.arange(len(grams)), [len(own) for own in grams])
        column = np.array([self._places[gram] for own in grams for gram in own], np.int64)
        ones = np.ones(len(row), np.float32)
        self._matrix = csc_array((ones, (row, column)), shape=(len(grams), len(every)))
        self._lengths = np.array([len(own) for own in grams], np.float32)

    def find(self, query: str, limit: int) -> IntArray:
        """Return the items with the best matching names; the most popular ones for an empty query."""
        typed = normal(query[:_LONGEST])
        if not typed:
            return self._by_popularity[:limit]
        wanted = trigrams(f" {typed} ")
        known = [self._places[gram] for gram in wanted if gram in self._places]
        found = self._matrix[:, known].sum(axis=1) if known else np.zeros(len(self._names))
        share = np.asarray(found, np.float32) / np.float32(len(wanted))  # of the query's trigrams that each name has
        if len(typed) > 2:
            candidates = np.flatnonzero(share >= _LEAST)
        else:
            candidates = np.flatnonzero([f" {typed}" in name for name in self._names])
        value = share[candidates] + _POPULAR * self._popularity[candidates]
        value -= 0.001 * self._lengths[candidates]
        value += [self._bonus(typed, self._names[place]) for place in candidates.tolist()]
        return candidates[np.argsort(-value, kind="stable")[:limit]]

    @staticmethod
    def _bonus(typed: str, name: str) -> float:
        words = typed.split()
        return _WHOLE * (f" {typed}" in name) + _WORDS * sum(f" {word}" in name for word in words) / len(words)


def normal(text: str) -> str:
    """Return a text in lower case without accents, as words of letters and digits with single spaces."""
    plain = "".join(sign for sign in unicodedata.normalize("NFKD", text.lower()) if not unicodedata.combining(sign))
    return " ".join(re.findall(r"\w+", plain))


def trigrams(name: str) -> set[str]:
    """Return the trigrams of each word, with the spaces around it."""
    return {f" {word} "[start : start + 3] for word in name.split() for start in range(len(word))}
