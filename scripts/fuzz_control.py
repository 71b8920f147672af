"""Hostile conditions, filters and weights: lists obey the filters or are refused; and commands with any words."""

import io
import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from fuzz_folders import sound_folder
from hostile import mutated, value, word

from recfusion.core.errors import InputError
from recfusion.data.conditions import matching
from recfusion.inference.baskets import complete
from recfusion.inference.bundle import Bundle
from recfusion.inference.recommending import recommend
from recfusion.inference.request import Filters, Reranking
from recfusion.inference.similar import similar

COLUMNS = ("item", "title", "kind", "stock", "price", "new", "train_count", "`kind`", "nothing", "__class__")
SIGNS = ("==", "!=", "<", "<=", ">", ">=", "=", "<>", "~", "not")
VALUES = (
    "0",
    "1",
    "-2.5",
    "1e3",
    "'Tea'",
    '"Gift"',
    "''",
    "'a''b'",
    "true",
    "false",
    "missing",
    "9" * 25,
    "stock",
    "٣",
)


def condition(rng: np.random.Generator, depth: int = 0) -> str:
    """Return a condition that is valid in most cases."""

    def of(parts: tuple[str, ...]) -> str:
        return parts[rng.integers(len(parts))]

    shape = int(rng.integers(9 if depth < 6 else 5))
    if shape == 5:
        return f"({condition(rng, depth + 1)})"
    if shape == 6:
        return f"not {condition(rng, depth + 1)}"
    if shape > 6:
        joined = f" {of(('and', 'or', 'AND'))} "
        return joined.join(condition(rng, depth + 1) for _ in range(int(rng.integers(2, 4))))
    column = of(COLUMNS[: -2 * int(rng.integers(8) > 0) or None])
    if shape == 0:
        return f"{column} is {of(('', 'not '))}missing"
    if shape == 1:
        return f"{column} {of(('', 'not '))}in ({', '.join(of(VALUES) for _ in range(int(rng.integers(1, 5))))})"
    if shape == 2:
        return f"{column} {of(('', 'not '))}contains {of(VALUES)}"
    return f"{column} {of(SIGNS)} {of(VALUES)}"


def hostile_condition(rng: np.random.Generator) -> str:
    """Return a condition that may be invalid, very long or deeply nested."""
    made = condition(rng)
    change = int(rng.integers(8))
    if change == 0:
        made = mutated(rng, made.encode(), 4).decode("utf-8", "surrogateescape")
    elif change == 1:
        made = word(rng)
    elif change == 2:
        made = " and ".join([made] * int(rng.choice([30, 10_000])))
    elif change == 3:
        depth = int(rng.choice([20, 31, 5000]))
        made = "(" * depth + made + ")" * depth if rng.integers(2) else "not " * depth + made
    return made


def where(rng: np.random.Generator, _: Path) -> None:
    """Find the items that meet a condition; each item must meet either the condition or its negation."""
    asked, items = hostile_condition(rng), bundle("ease").items
    met = matching(items, asked)
    if met.shape != (len(items),) or met.dtype != np.bool_:
        raise AssertionError(f"got {met.dtype} of shape {met.shape} for {asked!r}")
    try:
        opposite = matching(items, f"not ({asked})")
    except InputError:  # now too long or too deep
        return
    if not np.array_equal(opposite, ~met):
        raise AssertionError(f"{asked!r} and its negation do not partition the items")


@cache
def bundle(name: str) -> Bundle:
    """Return a small model."""
    return Bundle.load(sound_folder(name))


def _ids(rng: np.random.Generator) -> Any:
    kinds: tuple[Callable[[], Any], ...] = (
        lambda: [f"i{n:02d}" for n in rng.integers(0, 25, int(rng.integers(0, 15)))],
        lambda: [word(rng) for _ in range(3)],
        lambda: [value(rng) for _ in range(2)],
        lambda: value(rng),
        lambda: np.array([1.0, np.nan]),
        lambda: pl.Series(["i01", None]),
    )
    return kinds[rng.integers(len(kinds)) if rng.integers(3) == 0 else 0]()


def _number(rng: np.random.Generator, low: float = 0.0) -> Any:
    return value(rng) if rng.integers(12) == 0 else float(rng.uniform(low, 1)) * float(rng.integers(2))


def _weights(rng: np.random.Generator, low: float) -> Any:
    if rng.integers(12) == 0:
        return value(rng)
    names = ("Tea", "Gift", "Coffee", *([word(rng)] if rng.integers(8) == 0 else []))
    column = "kind" if rng.integers(8) else COLUMNS[rng.integers(len(COLUMNS))]
    return {column: {name: _number(rng, low) for name in names if rng.integers(2)}} if rng.integers(2) else {}


def rules(rng: np.random.Generator, _: Path) -> None:
    """Make lists with any filters and weights: nothing denied, filtered or seen is in them, and they are full."""
    model = bundle(("ease", "popularity", "thinning-pairs", "ials")[rng.integers(4)])
    chosen = Filters(
        where=hostile_condition(rng) if rng.integers(5) == 0 else "stock > 0" if rng.integers(2) else None,
        allow=_ids(rng) if rng.integers(3) == 0 else None,
        deny=_ids(rng) if rng.integers(2) else (),
        again="never" if rng.integers(4) else ("allowed", "only")[rng.integers(2)],
        at_most={"kind": _count(rng)} if rng.integers(3) == 0 else value(rng) if rng.integers(30) == 0 else {},
    )
    reranking = Reranking(
        adventurousness=_number(rng),
        popularity=_number(rng, -1),
        wish=_weights(rng, -1),
        shares=_weights(rng, 0),
        calibration=_number(rng),
        diversity=_number(rng),
    )
    history, k = _ids(rng), _count(rng)
    what = int(rng.integers(6))
    if what == 0:
        similar(model, value(rng) if rng.integers(2) else "i03", k, chosen)
        return
    if what == 1:
        complete(model, history, k, alternatives=_count(rng), together=_number(rng), filters=chosen)
        return
    found = recommend(model, history, k, filters=chosen, reranking=reranking, why=int(rng.integers(3))).to_frame()
    _check_list(model, found, chosen, history, k)


def _count(rng: np.random.Generator) -> Any:
    return value(rng) if rng.integers(15) == 0 else int(rng.integers(1, 30))


def _check_list(model: Bundle, found: pl.DataFrame, chosen: Filters, history: Any, k: int) -> None:
    """Raise if a list violates its filters, or is shorter than they allow."""
    table = model.items["item"].to_list()
    may = np.ones(len(table), bool) if chosen.where is None else matching(model.items, chosen.where)
    allowed = {item for item, met in zip(table, may, strict=True) if met} - _texts(chosen.deny)
    if chosen.allow is not None:
        allowed &= _texts(chosen.allow)
    if chosen.again != "allowed":
        allowed = allowed & _texts(history) if chosen.again == "only" else allowed - _texts(history)
    items = found["item"].to_list()
    if not set(items) <= allowed or len(set(items)) < len(items):
        raise AssertionError(f"{items} contains a forbidden or repeated item")
    if not chosen.at_most and len(items) != min(k, len(allowed)):
        raise AssertionError(f"{len(items)} items instead of {min(k, len(allowed))}")
    kinds = dict(model.items.select("item", "kind").iter_rows())
    for most in chosen.at_most.values():
        values = [part for item in items for part in (kinds[item] or "").split("|") if part]
        if any(values.count(part) > most for part in values):
            raise AssertionError(f"more than {most} of a category in {items}")


def _texts(ids: Any) -> set[str]:
    return {str(one) for one in ids}


def commands(rng: np.random.Generator, _folder: Path) -> None:
    """Run a command with random options; it must succeed or report one error."""
    from recfusion.cli.main import main

    def text() -> str:
        plain = ("i01", "i01,i02", "kind=2", "kind:Tea=1", ".5", "3", "stock > 0")
        chosen = word(rng) if rng.integers(3) == 0 else plain[rng.integers(len(plain))]
        return chosen.replace("\0", "")[:5000]

    own = "--where --allow --deny --at-most"
    of = {
        "recommend": f"--history {own} -k --why --adventurousness --popularity --wish --shares --diversity",
        "similar": f"{own} -k",
        "complete": f"--history {own} -n --alternatives --together",
    }
    name = list(of)[rng.integers(3)]
    words = [name, str(sound_folder("ease")), *(["i02"] if name == "similar" else ["--history", "i03,i05"])]
    for _ in range(int(rng.integers(0, 4))):
        options = of[name].split()
        words += [options[rng.integers(len(options))], text()]
    words += ["--json"] * int(rng.integers(2))
    printed, before = io.StringIO(), sys.argv
    sys.argv = ["recfusion", *words]
    try:
        with redirect_stdout(printed), redirect_stderr(printed):
            main()
    except SystemExit as left:
        code = left.code
    finally:
        sys.argv = before
    if code not in (0, 2) or "Traceback" in printed.getvalue() or "\x1b[31m" in printed.getvalue():
        raise AssertionError(f"exit code {code} for {words[2:]}: {printed.getvalue()[-300:]!r}")
    if code == 2:
        raise InputError(printed.getvalue().strip().replace("\n", " "))


TARGETS = {"where": where, "rules": rules, "commands": commands}
