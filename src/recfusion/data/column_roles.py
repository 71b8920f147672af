"""The roles of the columns of an item table (title, price, stock, image, ...), found by name, type and values."""

import itertools
from collections.abc import Callable, Mapping
from typing import Literal, get_args

import polars as pl

from recfusion.core.errors import InputError, choices
from recfusion.data.reading.columns import TITLE_WORDS, list_names, words_of

Role = Literal["title", "price", "stock", "image", "link", "date", "flag", "text"]
_FIRST = 1000  # cells that are examined
_LONG = 60  # mean length of the cells of a free text
# Words in the names of columns, the clearest first; a word may also be the end of a longer one, as in Verkaufspreis.
_WORDS: dict[Role, tuple[str, ...]] = {
    "price": (
        *("price", "preis", "vk", "prix", "precio", "prezzo", "preco", "prijs", "cena", "pris", "tarif", "betrag"),
        *("cost", "importe", "kwota", "montant"),
    ),
    "stock": (
        *("stock", "bestand", "inventory", "existencias", "giacenza", "disponibilita", "estoque", "voorraad"),
        *("zapas", "stan", "lagersaldo", "lagerstand", "lager", "sklad", "beholdning", "available", "verfugbar"),
        *("disponible", "quantity", "qty", "menge", "quantite", "cantidad", "quantita", "quantidade", "aantal"),
        *("ilosc", "antal"),
    ),
    "image": (
        *("image", "img", "picture", "photo", "thumbnail", "poster", "cover", "bild", "foto", "imagen", "immagine"),
        *("imagem", "afbeelding", "zdjecie", "obrazek", "billede"),
    ),
    "link": ("link", "url", "href", "permalink", "website", "lien", "enlace", "odkaz", "lank"),
    "date": (
        *("released", "release", "published", "since", "seit", "erschienen", "parution", "sortie", "lanzamiento"),
        *("date", "datum", "fecha", "data", "dato", "created", "added", "depuis", "desde", "sinds", "sedan"),
        *("year", "jahr", "annee", "ano", "anno", "jaar", "rok"),
    ),
    "flag": (),
    "text": (
        *("description", "beschreibung", "text", "summary", "abstract", "overview", "plot", "descripcion"),
        *("descrizione", "descricao", "omschrijving", "opis", "beskrivning", "beskrivelse", "popis", "resume"),
    ),
}
_OTHER_WORDS = {"id", "code", "number", "nr", "nummer", "min", "max", "class", "group", "range"}  # price_range
_YES_NO = {"yes", "no", "true", "false", "y", "n", "ja", "nein", "oui", "non", "si", "sì", "sí", "sim", "nao", "não"}
_YES_NO |= {"nee", "tak", "nie", "nej", "ano", "ne", "x", "1", "0"}
_ITEM_WORDS = {
    *("item", "product", "article", "movie", "film", "book", "game", "song", "track", "artist", "display", "full"),
    *("artikel", "produkt", "produit", "article", "producto", "articulo", "prodotto", "articolo", "produto", "artigo"),
    *("towaru", "produktu", "du", "de", "del", "do", "van", "het"),
}


def parse_roles(text: str | None) -> dict[Role, str | None]:
    """Return role -> column of a text such as "price=Preis,link=none"; None for a role that no column has."""
    found: dict[Role, str | None] = {}
    for part in filter(str.strip, (text or "").split(",")):
        name, sign, column = (word.strip() for word in part.partition("="))
        role = next((role for role in get_args(Role) if role == name), None)
        if not sign or not column:
            raise InputError(f"Expected a role and its column, such as price=Preis, got '{part.strip()}'.", "roles")
        if role is None:
            raise choices("role", name, get_args(Role), "roles")
        if role in found:
            raise InputError(f"Expected one column for each role, got {role} twice.", "roles")
        found[role] = None if column == "none" else column
    return found


def column_roles(items: pl.DataFrame, asked: Mapping[Role, str | None] | None = None) -> dict[Role, str]:
    """Return role -> column of an item table, for the roles that a column has.

    A column in `asked` (see `parse_roles`) has its role; the others are found by their names if their values fit the
    role, then by their values alone. Each column has one role.
    """
    found: dict[Role, str] = {}
    for role, name in (asked or {}).items():
        if name is None:
            continue
        if name not in items.columns:
            has = list_names(items.columns)
            raise InputError(
                f"Expected a column '{name}' of the item table for the role {role}, which has: {has}.", "roles"
            )
        if role in ("price", "stock") and not (items.schema[name].is_numeric() or items.schema[name] == pl.Boolean):
            raise InputError(f"Expected numbers in the column '{name}' for the role {role}, got texts.", "roles")
        found[role] = name
    for role in (role for role in get_args(Role) if role not in (asked or {})):
        free = [name for name in items.columns if name != "item" and name not in found.values()]
        column = title_column(items.select(free)) if role == "title" else _find(role, items.select(free))
        if column is not None:
            found[role] = column
    return {role: found[role] for role in get_args(Role) if role in found}


def title_column(items: pl.DataFrame) -> str | None:
    """Return the column of an item table with the titles: `title` or `name`, else one such as `Product name`."""
    plain = {name: words_of(name) for name, kind in items.schema.items() if not kind.is_nested() and kind != pl.Binary}
    alone = (name for word in TITLE_WORDS for name, words in plain.items() if words == [word])
    pairs = itertools.product(TITLE_WORDS, plain.items())
    longer = (name for word, (name, words) in pairs if word in words and {*words} <= {*_ITEM_WORDS, word})
    return next(itertools.chain(alone, longer), None)


def _find(role: Role, items: pl.DataFrame) -> str | None:
    """Return the column with the clearest name among those with fitting values, else the first by its values."""
    ranks = {name: rank for name in items.columns if (rank := _rank(name, _WORDS[role])) is not None}
    for name in sorted(ranks, key=lambda name: ranks[name]):
        if _FITS[role](items[name]):
            return name
    return next((name for name in items.columns if role in _SHOWS and _SHOWS[role](items[name])), None)


def _rank(name: str, known: tuple[str, ...]) -> tuple[int, int] | None:
    """Return how clearly a name shows a role: the number of its other words, then the place of its word."""
    words = words_of(name[:100])
    if _OTHER_WORDS & {*words}:
        return None
    whole = [(len(words) - 1, known.index(word)) for word in words if word in known]
    ends = [(len(words), n) for n, end in enumerate(known) if len(end) > 3 and any(w.endswith(end) for w in words)]
    return min(whole + ends, default=None)


def _is_number(column: pl.Series) -> bool:
    return column.dtype.is_numeric()


def _texts(pattern: str, share: float = 0.9) -> Callable[[pl.Series], bool]:
    """Return a check whether most cells of a column of texts match a pattern."""

    def check(column: pl.Series) -> bool:
        cells = column.drop_nulls().head(_FIRST) if column.dtype == pl.String else pl.Series(dtype=pl.String)
        return len(cells) > 0 and float(cells.str.contains(pattern).mean() or 0) >= share  # type: ignore[arg-type]

    return check


def _is_date(column: pl.Series) -> bool:
    return column.dtype in (pl.Date, pl.Datetime)


def _is_date_or_year(column: pl.Series) -> bool:
    years = column.drop_nulls() if column.dtype.is_integer() else pl.Series(dtype=pl.Int64)
    return _is_date(column) or (len(years) > 0 and bool(years.is_between(1000, 2200).all()))


def _is_flag(column: pl.Series) -> bool:
    """Return whether a column has two values: true and false, 1 and 0, or yes and no."""
    if column.dtype == pl.Boolean:
        return True
    if not (column.dtype.is_integer() or column.dtype == pl.String):
        return False
    values = column.drop_nulls().head(_FIRST).unique()
    return len(values) == 2 and {*values.cast(pl.String).str.to_lowercase()} <= _YES_NO


def _is_long(column: pl.Series) -> bool:
    cells = column.drop_nulls().head(_FIRST) if column.dtype == pl.String else pl.Series(dtype=pl.String)
    return float(cells.str.len_chars().mean() or 0) >= _LONG and _texts(r"\s")(cells)  # type: ignore[arg-type]


_ADDRESS = r"^\S*[/.]\S*$"
# Whether the values of a column with the name of a role fit it, and whether values alone show it.
_FITS: dict[Role, Callable[[pl.Series], bool]] = {
    "price": _is_number,
    "stock": lambda column: _is_number(column) or column.dtype == pl.Boolean,
    "image": _texts(_ADDRESS),
    "link": _texts(_ADDRESS),
    "date": _is_date_or_year,
    "flag": _is_flag,
    "text": lambda column: column.dtype == pl.String and not _texts(_ADDRESS)(column),
}
_SHOWS: dict[Role, Callable[[pl.Series], bool]] = {
    "image": _texts(r"(?i)^\S*\.(jpe?g|png|gif|webp|avif|svg)([?#]\S*)?$"),
    "link": _texts(r"^https?://\S+$"),
    "date": _is_date,
    "flag": _is_flag,
    "text": _is_long,
}
