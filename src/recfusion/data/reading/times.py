"""Times in columns: one form per column (seconds, compact dates, Excel days, years, texts), found from its cells."""

import itertools
import logging
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import polars as pl

from recfusion.core.errors import InputError

_ISO = ("%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M", "%Y-%m-%d %H:%M", "%Y-%m-%d")
_MOST = 0.9  # share of the first cells that shows the form of a column
_EXCEL_1970 = 25_569  # Excel's number of 1970-01-01
_MANY_FORMS = 8  # mixed forms that are tried on a column
_CELL = re.compile(
    r"(?P<one>\d{1,4})(?P<mark>[-./])\d{1,2}(?P=mark)(?P<last>\d{1,4})"
    r"(?:(?P<gap>,? +|T)\d{1,2}:\d{2}(?P<seconds>:\d{2})?(?P<part>\.\d+)?(?P<half> ?[AaPp][Mm])?)?"
    r"(?P<zone> ?(?:Z|UTC|GMT|[+-]\d{2}:?\d{2}))?"
)
_DAY_OR_MONTH = r"^([0-9]{1,2})[-/]([0-9]{1,2})[-/](?:[0-9]{2}|[0-9]{4})(?:[^0-9]|$)"
_DATE_LIKE = r"^[0-9]{1,4}[-./][0-9]{1,2}[-./][0-9]{1,4}"
_log = logging.getLogger(__name__)
Scan = Callable[[], Iterable[pl.Series]]  # the cells of the whole column, in parts


@dataclass(frozen=True, eq=False)
class TimeForm:
    """How the cells of a column become times."""

    seconds: pl.Expr  # since 1970
    note: str = ""  # a doubtful choice, for the report
    is_date: bool = False  # without a time of day


def find_form(name: str, head: pl.Series, asked: str | None = None, scan: Scan | None = None) -> TimeForm | None:
    """Return the form of the times in the column `name`, from its first cells `head`; None if no cell has one.

    `asked` is a format such as %d/%m/%Y. If the first cells do not say whether the day or the month is first, the cells
    of `scan` decide; if these do not either, it is an error.
    """
    cells, kind = head.drop_nulls(), head.dtype
    given = pl.col(name)
    if kind.is_temporal():
        return TimeForm(given.cast(pl.Datetime("us")).dt.epoch("s"), is_date=kind == pl.Date)
    if asked is not None and not kind.is_numeric():
        form = TimeForm(_datetimes(given, asked).dt.epoch("s"), is_date=not _has_clock(asked))
        return form if cells.is_empty() or _share(cells, name, form) else None
    numbers = _number_form(given, cells.cast(pl.Float64, strict=False))
    if kind.is_numeric():
        return numbers
    forms = [numbers, TimeForm(_datetimes(given, "%+").dt.epoch("s")), *(_text_form(given, form) for form in _ISO)]
    if not (fits := [form for form in forms if _share(cells, name, form) == 1]):
        local = _local_formats(cells, scan)
        forms += [_text_form(given, form) for form in local]
        fits = [form for form in forms if _share(cells, name, form) == 1]
    if fits:  # trying every form on every row is slow, and most files use one
        return fits[0]
    some = [form for form in forms if _share(cells, name, form)] or forms[:1]
    clock = any(not form.is_date for form in some)
    return TimeForm(pl.coalesce([form.seconds for form in some]), numbers.note * (numbers in some), is_date=not clock)


def date_column(column: pl.Series, asked: str | None = None) -> pl.Series:
    """Return a column of texts as dates or times (UTC) if all cells are date texts of known forms, else unchanged."""
    try:
        form = find_dates(column.name, column, asked, least=1)
    except InputError as error:  # the column may not matter
        _log.warning("The column '%s' is read as texts. %s", column.name, error)
        return column
    if form is None:
        return column
    seconds = column.to_frame().select(form.seconds).to_series()
    return pl.from_epoch(seconds).cast(pl.Date if form.is_date else pl.Datetime("us")).alias(column.name)


def find_dates(name: str, cells: pl.Series, asked: str | None = None, least: float = _MOST) -> TimeForm | None:
    """Return the form of a column of texts of which at least the share `least` are dates; None if fewer are."""
    texts = cells.drop_nulls()
    if texts.is_empty() or not (asked or texts.str.contains(_DATE_LIKE).mean() >= least):  # type: ignore[operator]
        return None
    form = find_form(name, texts, asked)
    return form if form is not None and _share(texts, name, form) >= least else None


def _share(cells: pl.Series, name: str, form: TimeForm) -> float:
    """Return the share of cells that are times of a form."""
    found = cells.alias(name).to_frame().select(form.seconds.is_not_null().mean()).item()
    return 1.0 if found is None else float(found)


def _number_form(given: pl.Expr, numbers: pl.Series) -> TimeForm:
    """Return the form of numbers: nearly all are compact dates, years or Excel days, or they are seconds since 1970."""
    number = given.cast(pl.Float64, strict=False)
    digits = pl.when(number == number.floor()).then(number).cast(pl.Int64, strict=False)
    text = digits.cast(pl.String)
    plausible = digits.is_between(19_000_101, 21_001_231)
    exact = digits.is_between(19_000_101_000_000, 21_001_231_235_959)
    year = pl.when(digits.is_between(1900, 2100)).then(digits)
    known = {
        "dates such as 20200131": (19e6, pl.when(plausible).then(text).str.to_date("%Y%m%d", strict=False)),
        "times such as 20200131235959": (
            19e12,
            pl.when(exact).then(text).str.to_datetime("%Y%m%d%H%M%S", strict=False),
        ),
        "years": (1900, pl.date(year, 1, 1)),
    }
    counted = numbers.drop_nulls()
    name = given.meta.output_name()
    for what, (lowest, moment) in known.items():
        form = TimeForm(
            moment.cast(pl.Datetime("us")).dt.epoch("s"), f"times are read as {what}", is_date="dates" in what
        )
        if len(counted) and (counted >= lowest).mean() >= _MOST and _share(counted, name, form) >= _MOST:  # type: ignore[operator]
            return form
    if len(counted) and counted.is_between(20_000, 60_000).mean() >= _MOST:  # type: ignore[operator]
        days = pl.when(number.is_between(20_000, 60_000)).then(number)
        return TimeForm(((days - _EXCEL_1970) * 86_400).round().cast(pl.Int64), "times are read as Excel's days")
    for limit, divisor in ((1e17, 1e9), (1e14, 1e6), (1e11, 1e3)):
        number = pl.when(number.abs() >= limit).then(number / divisor).otherwise(number)
    return TimeForm(pl.when(number.abs() < 1e11).then(number.floor()).cast(pl.Int64))


def _text_form(given: pl.Expr, form: str) -> TimeForm:
    """Return date texts of a format; seconds may have a fraction."""
    plain = _datetimes(given, form)
    if form.endswith("%S"):
        # Parsing fractions is several times slower, so it is tried only on rows that do not fit the plain form.
        plain = pl.coalesce(plain, _datetimes(pl.when(plain.is_null()).then(given), f"{form}%.f"))
    return TimeForm(plain.dt.epoch("s"), is_date=not _has_clock(form))


def _datetimes(given: pl.Expr, form: str) -> pl.Expr:
    """Return times without a zone, in UTC."""
    if not _has_clock(form):
        return given.str.to_date(form, strict=False).cast(pl.Datetime("us"))
    if "%z" in form or "%+" in form:
        return given.str.to_datetime(form, strict=False, time_zone="UTC").dt.replace_time_zone(None)
    return given.str.to_datetime(form, strict=False)


def _has_clock(form: str) -> bool:
    return re.search(r"%[-_0]?[HIMSTRXcklr+s]", form) is not None


def _local_formats(cells: pl.Series, scan: Scan | None) -> list[str]:
    """Return the formats of cells such as 31.12.2020, 12/31/20 5:30 PM or 2020/12/31 17:30+01:00, the first first."""
    shapes = [found for cell in cells.unique(maintain_order=True) if (found := _CELL.fullmatch(cell))]
    open_order = [found for found in shapes if len(found["one"]) < 3 and found["mark"] != "."]
    month_first = bool(open_order) and _month_first(cells, open_order[0], scan)
    return list(dict.fromkeys(_format(found, month_first=month_first) for found in shapes))[:_MANY_FORMS]


def _format(found: re.Match[str], *, month_first: bool) -> str:
    mark, year = found["mark"], "%Y" if len(found["last"]) == 4 else "%y"
    order = ["%m", "%d", year] if month_first and mark != "." else ["%d", "%m", year]
    if len(found["one"]) > 2:
        order = ["%Y", "%m", "%d"]
    clock = ""
    if found["gap"]:
        clock = f"{found['gap']}{'%I' if found['half'] else '%H'}:%M{':%S' if found['seconds'] else ''}"
        clock += (
            f"{'%.f' if found['part'] else ''}{' ' * (found['half'] or '').count(' ')}{'%p' if found['half'] else ''}"
        )
    zone = found["zone"] or ""
    return mark.join(order) + clock + (re.sub(r"[+-].*", "%z", zone))


def _month_first(cells: pl.Series, example: re.Match[str], scan: Scan | None) -> bool:
    """Return whether the month is the first number of dates such as 3/14/2020; numbers above 12 are days."""
    for part in itertools.chain([cells], () if scan is None else scan()):
        if days := _days(part):
            return days < 0
    form = example["mark"].join(("%d", "%m", "%Y" if len(example["last"]) == 4 else "%y"))
    swapped = form.replace("%d", "%_").replace("%m", "%d").replace("%_", "%m")
    raise InputError(
        f"Expected dates that say whether the day or the month is first, got only such as '{example[0]}': add "
        f"--date-format '{form}' or --date-format '{swapped}'.",
        "date_format",
    )


def _days(cells: pl.Series) -> int:
    """Return how many more cells have a day as the first number than as the second."""
    first, second = (cells.str.extract(_DAY_OR_MONTH, place).cast(pl.Int8, strict=False) for place in (1, 2))
    return int((first > 12).sum()) - int((second > 12).sum())
