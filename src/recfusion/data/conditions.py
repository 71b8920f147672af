"""Conditions on the rows of a table, such as `stock > 0 and category == 'Tea'`: a small language of comparisons.

    condition   = part { "or" part } ;  part = unit { "and" unit } ;  unit = "not" unit | "(" condition ")" | test
    test        = column ( "==" | "!=" | "<" | "<=" | ">" | ">=" ) value
                | column [ "not" ] "in" "(" value { "," value } ")"
                | column [ "not" ] ( "contains" | "has" ) text
                | column "is" [ "not" ] "missing"
    column      = a name, or any text between backquotes
    value       = a number | a text in single or double quotes (a doubled quote stands for itself) | true | false
                  for a column of dates or times: a text such as '2020-01-31' or '2020-01-31 17:30'

A test of a missing value is false; `not` turns it into true. `contains` searches a text within a text and ignores case;
`has` tests whether a whole text is one of the column's values, which are separated by `|`. A condition cannot call a
function or open a file, and its time grows linearly with its length.
"""

import datetime as dt
import re
from collections.abc import Callable
from operator import eq, ge, gt, le, lt, ne
from typing import NoReturn, TypeVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from recfusion.core.errors import InputError, choices
from recfusion.data.feature_recipe import SEPARATOR

T = TypeVar("T")
Value = str | int | float | bool | dt.datetime
LONGEST_CONDITION = 2000  # characters
_DEEPEST = 30  # nested brackets and `not`s
_COMPARED = {"==": eq, "!=": ne, "<": lt, "<=": le, ">": gt, ">=": ge}
_TOKEN = re.compile(
    r"""\s*(?:(?P<number>[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?(?![\w.]))
    |(?P<text>'(?:[^']|'')*'|"(?:[^"]|"")*")|(?P<name>[^\W\d]\w*|`[^`]+`)|(?P<sign>==|!=|<=|>=|<>|[=<>(),]))""",
    re.VERBOSE,
)
_WORDS = ("and", "or", "not", "in", "contains", "has", "is", "missing", "true", "false")


def matching(items: pl.DataFrame, condition: str) -> NDArray[np.bool_]:
    """Return which rows of the item table meet the condition, (items,)."""
    return items.select(parse_condition(condition, items.schema).alias("met"))["met"].to_numpy()


def parse_condition(condition: str, schema: pl.Schema, table: str = "item table") -> pl.Expr:
    """Return whether rows of this schema meet the condition; `table` names it in messages."""
    return _Parser(condition, schema, table).parse()


def named_columns(condition: str) -> set[str]:
    """Return the names in a condition, which are columns."""
    names = (found["name"] for found in _TOKEN.finditer(condition))
    return {name.strip("`") for name in names if name and name.lower() not in _WORDS}


class _Parser:
    """Parses a condition from left to right into a polars expression."""

    def __init__(self, text: str, schema: pl.Schema, table: str) -> None:
        if len(text) > LONGEST_CONDITION:
            raise InputError(f"Expected a condition of at most {LONGEST_CONDITION:,} characters, got {len(text):,}.")
        self._text, self._schema, self._table = text, schema, table
        self._tokens, self._next = self._split(), 0

    def parse(self) -> pl.Expr:
        whole = self._any(0)
        if self._next < len(self._tokens):
            self._fail("'and', 'or' or the end")
        return whole

    def _split(self) -> list[tuple[str, str, int]]:
        """Return (kind, text, position) of each token; keywords are signs in lower case."""
        tokens, place = [], 0
        while self._text[place:].strip():
            found = _TOKEN.match(self._text, place)
            if found is None:
                start = len(self._text) - len(self._text[place:].lstrip())
                raise InputError(
                    f"Expected a column, a value or a comparison at place {start + 1} of the condition, "
                    f"got {self._text[start : start + 20]!r}: put names with spaces or other signs in backquotes."
                )
            kind, text = str(found.lastgroup), found[str(found.lastgroup)]
            if kind == "name" and text.lower() in _WORDS:
                kind, text = "sign", text.lower()
            tokens.append((kind, text, found.start(str(found.lastgroup))))
            place = found.end()
        return tokens

    def _any(self, depth: int) -> pl.Expr:
        return pl.any_horizontal(self._separated("or", lambda: self._all(depth)))

    def _all(self, depth: int) -> pl.Expr:
        return pl.all_horizontal(self._separated("and", lambda: self._unit(depth)))

    def _unit(self, depth: int) -> pl.Expr:
        if depth > _DEEPEST:
            raise InputError(f"Expected at most {_DEEPEST} brackets within each other in the condition, got more.")
        if self._take("not"):
            return ~self._unit(depth + 1)
        if self._take("("):
            inner = self._any(depth + 1)
            self._need(")")
            return inner
        return self._test()

    def _test(self) -> pl.Expr:
        name = self._column()
        column, dtype = pl.col(name), self._schema[name]
        if dtype.is_float():
            column = column.fill_nan(None)
        if isinstance(dtype, pl.Datetime) and dtype.time_zone is not None:
            column = column.dt.convert_time_zone("UTC").dt.replace_time_zone(None)
        if self._take("is"):
            negated = self._take("not")
            self._need("missing")
            return column.is_not_null() if negated else column.is_null()
        negated = self._take("not")
        if self._take("in"):
            # is_in cannot compare whole numbers with other numbers.
            self._need("(")
            test = pl.any_horizontal([column == value for value in self._separated(",", lambda: self._value(name))])
            self._need(")")
        elif self._take("contains"):
            lowered = self._texts(name, "contains").str.to_lowercase()
            test = lowered.str.contains(str(self._value(name)).lower(), literal=True)
        elif self._take("has"):
            values = self._texts(name, "has").str.split(SEPARATOR).list.eval(pl.element().str.strip_chars())
            test = values.list.contains(str(self._value(name)).strip())
        elif negated:
            self._fail("'in', 'contains' or 'has'")
        else:
            sign = {"=": "==", "<>": "!="}.get(found := self._peek()[1], found)
            if sign not in _COMPARED:
                self._fail("a comparison (==, !=, <, <=, >, >=, in, contains, has, is missing)")
            self._next += 1
            value = self._value(name)
            if isinstance(value, bool) and sign not in ("==", "!="):
                raise InputError(f"Expected == or != for the column {name!r}, which is true or false, got {sign}.")
            test = _COMPARED[sign](column, value)
        return (~test if negated else test).fill_null(value=False)

    def _texts(self, name: str, before: str) -> pl.Expr:
        """Return a column, which must hold texts."""
        if self._schema[name] != pl.String:
            kind = _kind(self._schema[name])
            raise InputError(f"Expected a column of texts before '{before}', {name!r} holds {kind}.")
        return pl.col(name)

    def _column(self) -> str:
        kind, text, _ = self._peek()
        if kind != "name":
            self._fail("a column, in backquotes if its name has spaces," if kind == "text" else "a column")
        self._next += 1
        name = text.strip("`")
        if name not in self._schema:
            names = [one if re.fullmatch(r"[^\W\d]\w*", one) else f"`{one}`" for one in self._schema]
            raise choices(f"column of the {self._table}", name, names)
        if _kind(self._schema[name]) == "other things":
            raise InputError(f"The column {name!r} holds {self._schema[name]}, which a condition cannot compare.")
        return name

    def _value(self, name: str) -> Value:
        """Return the next value, which must have the type of the column `name`."""
        kind, text, _ = self._peek()
        value: Value
        if kind == "number":
            value = float(text) if re.search(r"[.eE]", text) else int(text)
            if abs(value) >= 2**63:
                raise InputError(f"Expected numbers below 2^63 in the condition, got {text[:40]}.")
        elif kind == "text":
            value = text[1:-1].replace(text[0] * 2, text[0])
        elif text in ("true", "false"):
            value = text == "true"
        else:
            self._fail("a number, a text in quotes, true or false")
        self._next += 1
        wanted = _kind(self._schema[name])
        if wanted == "dates" and isinstance(value, str):
            return _date(value, name)
        got = {bool: "true or false", str: "texts"}.get(type(value), "numbers")
        if wanted != got:
            raise InputError(f"The column {name!r} holds {wanted} and cannot be compared with {text[:40]}.")
        return value

    def _peek(self) -> tuple[str, str, int]:
        return self._tokens[self._next] if self._next < len(self._tokens) else ("end", "", len(self._text))

    def _take(self, sign: str) -> bool:
        kind, text, _ = self._peek()
        taken = kind == "sign" and text == sign
        self._next += taken
        return taken

    def _separated(self, sign: str, part: Callable[[], T]) -> list[T]:
        """Return the parts of a series with a sign or word between them."""
        parts = [part()]
        while self._take(sign):
            parts.append(part())
        return parts

    def _need(self, sign: str) -> None:
        if not self._take(sign):
            self._fail(f"'{sign}'")

    def _fail(self, expected: str) -> NoReturn:
        kind, text, place = self._peek()
        got = "its end" if kind == "end" else f"{text[:40]!r}"
        raise InputError(f"Expected {expected} at place {place + 1} of the condition, got {got}.")


def _date(text: str, name: str) -> dt.datetime:
    """Return a date or time in UTC without a zone."""
    try:
        found = dt.datetime.fromisoformat(text.strip())
    except ValueError:
        form = "'2020-01-31' or '2020-01-31 17:30'"
        raise InputError(
            f"The column {name!r} holds dates: compare it with one such as {form}, not {text[:40]!r}."
        ) from None
    return found if found.tzinfo is None else found.astimezone(dt.UTC).replace(tzinfo=None)


def _kind(dtype: pl.DataType) -> str:
    if dtype.is_numeric():
        return "numbers"
    kinds = {pl.String: "texts", pl.Boolean: "true or false", pl.Date: "dates", pl.Datetime: "dates"}
    return kinds.get(dtype.base_type(), "other things")
