"""Search of items by name that tolerates typos."""

import itertools
import re
import unicodedata
from collections.abc import Iterator, Sequence

import numpy as np
from scipy.sparse import csc_array

from recfusion.core.arrays import FloatArray, IntArray

_LEAST = 0.45  # smallest share of the query's trigrams that a name must have
_LONGEST = 200  # characters of a query; the rest is ignored
_WHOLE, _WORDS, _POPULAR = 1.0, 0.5, 0.1  # bonus for the whole query, words that begin like its words, popularity
_LETTERS, _TYPOS = 20, 2  # longest word that is corrected, and most typos in it
_CORRECTED, _QUERIES = 3, 6  # words that are corrected, corrections of each, and corrected queries
_DOUBT = 0.2  # what a name loses if it matches a corrected query only


class NameSearch:
    """Names as sets of trigrams: those that share most trigrams with the query come first.

    Names that contain the query, or words that begin like its words, get a bonus; ties are broken by popularity. A word
    that no name has is also replaced by the words with the fewest typos to it (Damerau and Levenshtein's distance: a
    letter too many, missing, wrong, or two letters swapped).
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
        words: dict[str, None] = {}  # those of popular names first
        for place in self._by_popularity.tolist():
            words |= dict.fromkeys(self._names[place].split())
        self._words = np.array(list(words), f"U{_LETTERS}")
        self._text = " ".join(self._names)

    def find(self, query: str, limit: int) -> IntArray:
        """Return the items with the best matching names.

        An empty query finds the most popular items, one of signs without letters and digits finds none.
        """
        typed = normal(query[:_LONGEST])
        if not typed:
            return self._by_popularity[: 0 if query.strip() else limit]
        best = np.full(len(self._names), -np.inf)
        for doubt, text in self._queries(typed):
            candidates, values = self._values(text)
            best[candidates] = np.maximum(best[candidates], values - doubt)
        found = np.flatnonzero(np.isfinite(best))
        return found[np.argsort(-best[found], kind="stable")[:limit]]

    def _values(self, typed: str) -> tuple[IntArray, FloatArray]:
        """Return the names that match a query, and how well."""
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
        return candidates.astype(np.int64), value.astype(np.float32)

    def _queries(self, typed: str) -> Iterator[tuple[float, str]]:
        """Yield the query, and the query with other words in place of those that no name has."""
        yield 0.0, typed
        words = typed.split()
        wrong = [word for word in words if 3 < len(word) <= _LETTERS and f" {word}" not in self._text][:_CORRECTED]
        found = {word: self._corrections(word) for word in wrong}
        for other in itertools.islice(itertools.product(*(found.get(word, [word]) for word in words)), _QUERIES):
            if other != tuple(words):
                yield _DOUBT, " ".join(other)

    def _corrections(self, word: str) -> list[str]:
        """Return the words with the fewest typos, or those that begin so; the word itself if there are none."""
        allowed = 1 if len(word) < 8 else _TYPOS
        whole, start = typos(word, self._words)
        for distance in (whole, start):
            order = np.argsort(distance, kind="stable")[:_CORRECTED]
            if len(order) and distance[order[0]] <= allowed:
                return [str(self._words[place]) for place in order if distance[place] <= allowed]
        return [word]

    @staticmethod
    def _bonus(typed: str, name: str) -> float:
        words = typed.split()
        return _WHOLE * (f" {typed}" in name) + _WORDS * sum(f" {word}" in name for word in words) / len(words)


def typos(typed: str, words: np.ndarray[tuple[int], np.dtype[np.str_]]) -> tuple[IntArray, IntArray]:
    """Return the typos between a text and each of some words, and between it and the nearest beginning of each.

    d_ij = min(d_{i-1,j} + 1, d_{i,j-1} + 1, d_{i-1,j-1} + [a_i != b_j], d_{i-2,j-2} + 1 if two letters are swapped),
    for all words at once.
    """
    width = len(typed) + _TYPOS  # a longer word has too many letters anyway
    length = np.char.str_len(words)
    letters = np.array(words, f"U{width}").view(np.uint32).reshape(len(words), width).T.copy()  # (width, words)
    first = np.repeat(np.arange(width + 1, dtype=np.int8)[:, None], len(words), axis=1)
    rows = [first]  # of the table, one for each letter typed; (width + 1, words)
    for i, letter in enumerate(typed):
        row = np.full_like(first, i + 1)
        for j in range(width):
            differs = letters[j] != ord(letter)
            row[j + 1] = np.minimum(np.minimum(row[j], rows[i][j + 1]) + 1, rows[i][j] + differs)
            if i and j:
                swapped = (letters[j] == ord(typed[i - 1])) & (letters[j - 1] == ord(letter))
                row[j + 1, swapped] = np.minimum(row[j + 1, swapped], rows[i - 1][j - 1, swapped] + 1)
        rows.append(row)
    last = np.where(np.arange(width + 1)[:, None] <= length, rows[-1], width)
    whole = last[np.minimum(length, width), np.arange(len(words))]
    return np.where(length <= width, whole, length), last.min(axis=0)


def normal(text: str) -> str:
    """Return a text in lower case without accents, as words of letters and digits with single spaces."""
    plain = "".join(sign for sign in unicodedata.normalize("NFKD", text.lower()) if not unicodedata.combining(sign))
    return " ".join(re.findall(r"\w+", plain))


def trigrams(name: str) -> set[str]:
    """Return the trigrams of each word, with the spaces around it."""
    return {f" {word} "[start : start + 3] for word in name.split() for start in range(len(word))}
