"""Guesses what the user did not say about a table: separator, header, and the role of each column."""

import re
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from recfusion.core.errors import InputError
from recfusion.data.published.archive import open_bytes
from recfusion.data.reading.encodings import find_encoding
from recfusion.data.reading.text_lines import BLOCK_BYTES, LONGEST_LINE, TextLayout, fields_of

SEPARATORS = (",", "\t", ";", "|", "::", " ")
ROLES = ("user", "item", "rating", "time")

# Words in a column's name that show its role, without "id" and punctuation; the clearest first.
_ROLE_WORDS: dict[str, tuple[str, ...]] = {
    "user": (
        *("user", "username", "customer", "client", "member", "visitor", "reviewer", "person", "account", "buyer"),
        *("shopper", "email", "mail", "u"),
        *("kunde", "kunden", "kundennummer", "kundennr", "benutzer", "nutzer", "kaufer", "besteller"),  # German
        *("utilisateur", "acheteur", "courriel"),  # French
        *("usuario", "cliente", "comprador", "correo", "utente", "acquirente", "utilizador"),  # Spanish, Italian, ...
        *("gebruiker", "klant", "klantnummer", "koper", "uzytkownik", "klient", "nabywca"),  # Dutch, Polish
        *("anvandare", "kund", "kundnummer", "bruger", "kunder", "zakaznik", "uzivatel"),  # Swedish, Danish, Czech
    ),
    "item": (
        *("item", "movie", "product", "book", "track", "song", "artist", "asin", "sku", "article", "game", "app"),
        *("stockcode", "anime", "business", "venue", "place", "location", "poi", "recipe", "isbn", "i"),
        *("artikel", "artikelnummer", "artikelnr", "artnr", "produkt", "produktnummer", "ware", "film", "buch"),
        *("produit", "livre", "reference", "producto", "articulo", "referencia", "pelicula", "libro"),
        *("prodotto", "articolo", "codicearticolo", "produto", "artigo", "ean", "gtin"),
        *("towar", "produkty", "vara", "varenummer", "vare", "zbozi", "polozka"),
    ),
    "rating": (
        *("rating", "stars", "star", "score", "overall", "preference", "rate", "r"),
        *("quantity", "qty", "plays", "playcount", "listens"),
        *("bewertung", "sterne", "menge", "anzahl", "stuckzahl", "note", "evaluation", "quantite"),
        *("valoracion", "puntuacion", "cantidad", "valutazione", "voto", "quantita", "avaliacao", "quantidade"),
        *("beoordeling", "aantal", "hoeveelheid", "ocena", "ilosc", "betyg", "antal", "mnozstvi"),
    ),
    "time": (
        *("timestamp", "time", "datetime", "date", "unixreviewtime", "ts", "createdat", "t"),
        *("zeitpunkt", "zeitstempel", "datum", "bestelldatum", "kaufdatum", "auftragsdatum", "zeit"),
        *("horodatage", "datecommande", "fecha", "fechapedido", "data", "dataordine", "datapedido"),
        *("besteldatum", "tijd", "czas", "orderdatum", "dato"),
    ),
}

_COUNT_WORDS = {
    *("quantity", "qty", "count", "counts", "plays", "playcount", "listens", "views", "weight", "frequency"),
    *("units", "clicks", "menge", "anzahl", "stuckzahl", "quantite", "cantidad", "quantita", "quantidade"),
    *("aantal", "hoeveelheid", "ilosc", "antal", "mnozstvi"),
}
# Words in the names of columns with the titles of items, the clearest first.
TITLE_WORDS = (
    *("title", "name", "titel", "bezeichnung", "artikelbezeichnung", "produktname", "nom", "titre", "designation"),
    *("libelle", "titulo", "nombre", "titolo", "nome", "naam", "nazwa", "tytul", "namn", "benamning", "navn", "nazev"),
    *("descripcion", "descrizione", "omschrijving"),
)
# Words for the number of a user or an item, beside the word of the role or joined with it.
_NUMBER_WORDS = {"id", "no", "nr", "number", "num", "nummer", "code", "ref", "n", "numero", "codigo", "codice"}
_NUMBERS = {
    *("artnr", "artikelnr", "artikelnummer", "produktnummer", "varenummer", "stockcode", "codicearticolo"),
    *("kundennr", "kundennummer", "klantnummer", "kundnummer"),
}
DOUBTFUL_WORDS = {"data", "note"}  # a date or a rating in some languages, something else in others
_Lines = Sequence[tuple[int, str]]  # with their numbers
_FIRST_LINES = 50  # that are examined
_MOST_ABOVE = 20  # lines of comments and titles above a header
_LONGEST_NAME = 100  # roles of columns with longer names are not guessed


def sniff_text(path: Path, separator: str | None, encoding: str | None = None) -> TextLayout:
    """Return the layout of a delimited text file from its first lines."""
    start, whole = _first_bytes(path)
    if start.isascii() and not whole:  # evidence of the encoding may come later
        encoding = find_encoding(_first_bytes(path, BLOCK_BYTES)[0], path, encoding)
    else:
        encoding = find_encoding(start, path, encoding, whole=whole)
    text = start.decode(encoding, errors="replace").removeprefix("\ufeff")
    if not text.strip():
        raise InputError(f"Expected rows of interactions in '{path}', got an empty file.")
    if "\0" in text:
        raise InputError(f"Expected text in {encoding} in '{path}', got binary data: convert it first.")
    if "\r" in text and "\n" not in text:
        raise InputError(f"Expected lines that end in a line feed in '{path}', got carriage returns: convert it first.")
    lines: _Lines = [(number, line) for number, line in enumerate(text.split("\n"), start=1) if line.strip()]
    lines = lines[: _FIRST_LINES if whole else max(1, min(_FIRST_LINES, len(lines) - 1))]  # the last may be cut off
    separator = None if separator is None else separator.replace("\\t", "\t")
    if separator is not None and (not separator or any(mark in separator for mark in '"\r\n\0')):
        raise InputError(
            f"Expected a separator such as ; or :: without quotes and line ends, got '{separator}'.", "separator"
        )
    first = lines[0]
    lines, separator = _find_rows(lines, separator)
    above = lines[0][0] - 1 if lines[0] != first else 0
    fields, *others = _records(lines, separator)
    if _lists_items([fields, *others]):
        raise InputError(
            f"'{path}' looks like a user and a list of items on each line (such as '{lines[0][1][:40]}'): write one "
            "line per user and item instead, such as 'user,item'."
        )
    header = _is_header(fields, others)
    names = [name if header and name else f"column {place}" for place, name in enumerate(fields, start=1)]
    twice = next((name for name, count in Counter(names).items() if count > 1), None)
    if twice is not None:
        raise InputError(f"The header of '{path}' has the column '{twice[:80]}' twice: rename one of them.")
    if header and names[0].startswith("#"):  # `#user,item` is a header
        names[0] = names[0].lstrip("# ") or names[0]
    return TextLayout(separator, header, tuple(names), lines[0][0] if header else above, encoding)


def _find_rows(lines: _Lines, separator: str | None) -> tuple[_Lines, str]:
    """Return the lines from the header or first row on, without comments and titles above it, and the separator."""
    if found := re.fullmatch(r"sep=(.)\s*", lines[0][1], re.IGNORECASE):
        return (lines[1:] or lines), separator or found[1]
    padded = False
    for place, (_, line) in enumerate(lines[: min(_MOST_ABOVE, len(lines) - 1)]):
        mark = separator or _guess_separator(lines[place:])
        comment = line.lstrip().startswith(("#", "//", "%"))
        fields, *rest = _records(lines[place:], mark)
        if not comment and len(fields) > 2 and sum(map(bool, fields)) < 2:  # perhaps a title, padded with separators
            padded = True
            continue
        if not comment and _regularity([fields, *rest])[0] >= 0.5:
            return (lines if padded and not _is_header(fields, rest) else lines[place:]), mark
        first, *others = _records(lines[place + 1 :], separator or _guess_separator(lines[place + 1 :]))
        named = len(others) > 0 and _regularity([first, *others])[0] >= 0.9 and _is_header(first, others)
        if comment and not named and len(fields_of(line, mark)) == len(first):
            return lines[place:], mark  # `#user,item` is a header
        if not (comment or named):
            break
    return lines, separator or _guess_separator(lines)


def _guess_separator(lines: _Lines) -> str:
    """Return the separator that splits most lines into as many fields as the first."""
    return max(SEPARATORS, key=lambda mark: _regularity(_records(lines, mark)))


def guess_columns(
    columns: Sequence[str], asked: dict[str, str | None], *, where: str, by_position: bool
) -> dict[str, str]:
    """Return role -> column: as asked, else by name, else (no header) by position user, item, rating, time."""
    chosen: dict[str, str] = {}
    # A rating or time column named "none" is left out.
    unwanted = [role for role in ("rating", "time") if asked.get(role) == "none" and "none" not in columns]
    asked = {role: name for role, name in asked.items() if role not in unwanted}
    for role, name in asked.items():
        if name is not None:
            if name not in columns:
                raise InputError(
                    f"Expected a column '{name}' (--{role}) in {where}, which has: {list_names(columns)}.", role
                )
            if name in chosen.values():
                raise InputError(f"Expected a separate column for --{role} in {where}, got '{name}' twice.", role)
            chosen[role] = name
    if by_position and not chosen:
        if len(columns) < 2:
            raise _cannot_tell("user", columns, where)
        return {role: name for role, name in zip(ROLES, columns, strict=False) if role in asked}
    for role in asked:
        if role not in chosen:
            free = [name for name in columns if name not in chosen.values()]
            ranked = sorted((*rank, name) for name in free if (rank := _clearness(name, role)) is not None)
            if ranked:
                _check_distinct([name for *_, name in ranked], role, where)
                chosen[role] = ranked[0][-1]
    for role in ("user", "item"):
        if role in asked and role not in chosen:
            raise _cannot_tell(role, columns, where)
    return chosen


def _check_distinct(ranked: Sequence[str], role: str, where: str) -> None:
    """Raise if the best column for a role has a twin that differs only by case or punctuation."""
    twin = next((name for name in ranked[1:] if words_of(name) == words_of(ranked[0])), None)
    if twin is not None:
        raise InputError(
            f"Expected one column for the {role} in {where}, got '{ranked[0]}' and '{twin}': name it with --{role}.",
            role,
        )


def unused_ratings(columns: Sequence[str], chosen: Mapping[str, str]) -> list[str]:
    """Return the columns without a role that may hold ratings or counts, judged by their names."""
    free = [name for name in columns if name not in chosen.values() and len(name) <= _LONGEST_NAME]
    return [name for name in free if _role_rank(name, "rating") is not None or _COUNT_WORDS & set(words_of(name))][:5]


def names_counts(column: str) -> bool:
    """Return whether a column holds counts (quantities, plays), judged by its name."""
    words = words_of(column) if len(column) <= _LONGEST_NAME else []
    return bool(_COUNT_WORDS & {*words, "".join(words)})


def names_ratings(column: str) -> bool:
    """Return whether a column holds ratings and not counts, judged by its name."""
    return _role_rank(column, "rating") is not None and not names_counts(column)


def _cannot_tell(role: str, columns: Sequence[str], where: str) -> InputError:
    return InputError(
        f"Expected a column for the {role} in {where}, found {len(columns):,} column{'s' * (len(columns) != 1)}: "
        f"{list_names(columns) or 'none'}; name it with --{role} (and the separator with --separator, if columns look "
        "wrong).",
        role,
    )


def list_names(columns: Sequence[str]) -> str:
    """Return the names of columns for a message, shortened."""
    names = ", ".join(name if len(name) <= 60 else f"{name[:60]}..." for name in columns[:20])
    return f"{names} and {len(columns) - 20:,} more" if len(columns) > 20 else names


def _role_rank(name: str, role: str) -> int | None:
    if len(name) > _LONGEST_NAME:
        return None
    words = words_of(name)
    known = _ROLE_WORDS[role]
    joined = "".join(words)
    bare = joined.removesuffix("id") if joined not in known else joined
    if bare in known:
        return known.index(bare)
    hits = [known.index(word) for word in words if word in known and len(word) > 1]
    return len(known) + min(hits) if hits and not {*TITLE_WORDS} & {*words} else None


def _clearness(name: str, role: str) -> tuple[bool, int, bool] | None:
    """Return how clearly a name shows a role (lower is clearer): `Art.-Nr.` before `Artikel`.

    A column of users or items that says it holds numbers has the ids; without such a word it may hold names.
    """
    rank = _role_rank(name, role)
    if rank is None:
        return None
    words = words_of(name)
    bare = [word for word in words if word not in _NUMBER_WORDS]
    numbered = role in ("user", "item") and ("".join(words) in _NUMBERS or 0 < len(bare) < len(words))
    own = _role_rank(" ".join(bare), role) if numbered and bare else None
    best = rank if own is None else min(rank, own)
    whole = best < len(_ROLE_WORDS[role])
    return (not (numbered and whole), best, not numbered)


def words_of(name: str) -> list[str]:
    """Return the words of a column's name in lower case: the same for `ProductName`, `product_name`, `Product name`."""
    spaced = re.sub(r"([a-z])([A-Z])", r"\1 \2", name).lower().replace("ł", "l").replace("ø", "o").replace("ß", "ss")
    plain = unicodedata.normalize("NFD", spaced) if not spaced.isascii() else spaced
    return [word for word in re.split(r"[^a-z0-9]+", re.sub("[\u0300-\u036f]", "", plain)) if word]


def _is_header(first: list[str], others: list[list[str]]) -> bool:
    """Return whether the first line is a header: it looks unlike the others, or names a role."""
    if any(field[:1].isdigit() or _is_number(field) for field in first):
        return False
    if not others or len(first) < 2:
        return True
    # An id such as user_01 is not a column name, though it contains "user".
    words = [field for field in first if not any(mark.isdigit() for mark in field[:_LONGEST_NAME])]
    named = any(_role_rank(word, role) is not None for word in words for role in ROLES)
    columns = zip(*(fields for fields in others if len(fields) == len(first)), strict=True)
    return named or any(any(values) and all(_is_number(value or "0") for value in values) for values in columns)


def _lists_items(records: list[list[str]]) -> bool:
    """Return whether each line has a different user and any number of items, all of them numbers."""
    counts = Counter(map(len, records))
    return (
        len(counts) > 2
        and counts.most_common(1)[0][1] < len(records) / 2
        and len({fields[0] for fields in records}) == len(records)
        and all(field.isdecimal() for fields in records for field in fields)
    )


def _regularity(records: list[list[str]]) -> tuple[float, int]:
    """Return the score of a separator: the share of lines with as many fields as the first, then that number."""
    counts = [len(fields) for fields in records]
    return (counts.count(counts[0]) / len(counts) if counts[0] > 1 else 0.0, counts[0])


def _records(lines: _Lines, separator: str) -> list[list[str]]:
    return [[field.strip() for field in fields_of(line, separator)] for _, line in lines]


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _first_bytes(path: Path, most: int = 1 << 16) -> tuple[bytes, bool]:
    """Return the start of an (unpacked) file, with at least one whole line, and whether it is the whole file."""
    with open_bytes(path) as file:
        start = file.read(most)
        whole = len(start) < most
        if not whole and b"\n" not in start.strip():
            more = file.read(LONGEST_LINE)
            start, whole = start + more, len(more) < LONGEST_LINE
    return start, whole
