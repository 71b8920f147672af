"""Write a split as files for other programs, and read it back from them."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import polars as pl
from pydantic import BaseModel, ConfigDict

from recfusion.core.arrays import Csr, IntArray, cell_numbers, row_numbers
from recfusion.core.errors import validating
from recfusion.core.files import read_json, replacing_folder, write_json
from recfusion.data.interactions import Interactions
from recfusion.data.load import load
from recfusion.data.options import Source, SplitPlan
from recfusion.data.protocol import Protocol, check_same_data
from recfusion.data.split import Split, split

CARD = "split.json"
ExportForm = Literal["csv", "recbole", "elliot", "lenskit", "recpack"]


@dataclass(frozen=True)
class _Form:
    """The files of a program: names of the parts, separator, and the head of user, item, rating and time."""

    file: str
    separator: str
    head: tuple[str, str, str | None, str]  # no rating column if its name is None
    header: bool = True
    parts: tuple[tuple[str, str], ...] = (("train", "train"), ("valid", "valid"), ("test", "test"))


_FORMS: Mapping[ExportForm, _Form] = {
    "csv": _Form("{part}.csv", ",", ("user", "item", None, "time")),
    "recbole": _Form(
        "{name}.{part}.inter", "\t", ("user_id:token", "item_id:token", "rating:float", "timestamp:float")
    ),
    "elliot": _Form(
        *("{part}.tsv", "\t", ("user", "item", "rating", "time")),
        header=False,
        parts=(("train", "train"), ("valid", "validation"), ("test", "test")),
    ),
    "lenskit": _Form("{part}.csv", ",", ("user_id", "item_id", None, "timestamp")),
    "recpack": _Form("{part}.csv", ",", ("user", "item", None, "timestamp")),
}


class SplitCard(BaseModel):
    """What an exported folder holds: the protocol and the seed of its split."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    recfusion_split: Literal[1] = 1
    seed: int
    form: ExportForm
    protocol: dict[str, object]


def export_split(
    data: Interactions, folder: Path, *, plan: SplitPlan, seed: int, metrics: tuple[str, ...], form: ExportForm = "csv"
) -> dict[str, int]:
    """Write the parts of a split, and return the rows of each file.

    Held-out items are in the files of validation and test. The file of training has everything that a model may learn
    from at the test, with the shown histories of held-out users. In the form "csv" those histories are in files of
    their own, for programs that can recommend to new users.
    """
    parts, protocol = split(data, plan, seed=seed), Protocol.of(data, plan, metrics)
    layout, folds = _FORMS[form], {"valid": parts.valid, "test": parts.test}
    train = _placed(data, parts.train_users, parts.train)
    files = {name: _placed(data, fold.users, fold.held_out) for name, fold in folds.items()}
    histories = {f"{name}_history": _placed(data, fold.users, fold.history) for name, fold in folds.items()}
    if form != "csv":  # the others know no users without training rows
        for history in histories.values():
            train = train + history
        train = train - train.multiply(files["valid"])  # the test may show them, but they validate
        train.eliminate_zeros()
    files |= {"train": train} if form != "csv" else {"train": train, **histories}
    names, counts = dict(layout.parts), {}
    with replacing_folder(folder, CARD) as beside:
        for name, rows in files.items():
            file = layout.file.format(name=_plain(data.name), part=names.get(name, name))
            frame = _frame(data, rows, layout)
            frame.write_csv(beside / file, separator=layout.separator, include_header=layout.header)
            counts[file] = frame.height
        card = SplitCard(seed=seed, form=form, protocol=protocol.document())
        write_json(beside / CARD, card.model_dump(mode="json"))
    return counts


def read_split(folder: Path, data: str | None = None) -> tuple[Interactions, Protocol, Split]:
    """Return the data, protocol and split of an exported folder; `data` is the new place of the same data."""
    with validating(f"the card of a split in '{folder / CARD}'", "export the split again"):
        card = SplitCard.model_validate(read_json(folder / CARD))
    protocol = Protocol.parse(card.protocol, str(folder / CARD))
    source: Source = protocol.source if data is None else protocol.source.moved_to(data)
    found = load(source, protocol.preparation)
    check_same_data(protocol, found, "of the split")
    return found, protocol, split(found, protocol.plan, seed=card.seed)


def _placed(data: Interactions, users: IntArray, rows: Csr) -> Csr:
    """Return rows of some users as a matrix over all users."""
    where = (users[row_numbers(rows)], rows.indices)
    return Csr((np.ones(rows.nnz, np.float32), where), shape=data.matrix.shape)


def _frame(data: Interactions, rows: Csr, layout: _Form) -> pl.DataFrame:
    """Return the entries of `rows` with their ids, and times if the data has them."""
    rows = rows.sorted_indices()
    user, item, rating, time = layout.head
    columns = {user: data.users[row_numbers(rows)], item: data.items[rows.indices]}
    if rating is not None:
        columns[rating] = pl.Series([1.0]).new_from_index(0, rows.nnz)
    if data.times is not None:
        keys = cell_numbers(data.matrix)
        order = np.argsort(keys, kind="stable")
        columns[time] = pl.Series(data.times[order[np.searchsorted(keys[order], cell_numbers(rows))]])
    return pl.DataFrame(columns)


def _plain(name: str) -> str:
    return "".join(sign if sign.isalnum() or sign in "._-" else "_" for sign in name)
