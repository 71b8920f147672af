"""What a model folder keeps for updates: the rows of the training users, without their ids.

A user is stored as a keyed digest of the id, so that whoever names a user can change or forget that user, and nobody
can list the users. The key is in the same file: a list of all possible ids finds the users in it, so that the file
needs the same protection as the data.
"""

import hashlib
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recfusion.core.arrays import Csr, IntArray, binary_csr
from recfusion.data.signals import Extra, valued
from recfusion.models.base import Recommender, Shape
from recfusion.models.settings import PARTS, saved_sparse
from recfusion.models.updating import OF_DISLIKES, OF_ENTRIES, Arrays, UserRows, updater_of

_DIGEST = 16  # bytes
_KEPT = "kept/"  # prefix of the names of the arrays that belong to the model


@dataclass(frozen=True)
class TrainingRows:
    """The rows of the training users by keyed digests of their ids, and the arrays that updates of the model need."""

    users: NDArray[np.uint8]  # (users, 16)
    rows: UserRows
    kept: Arrays = field(default_factory=dict)
    salt: bytes = b""

    @classmethod
    def of(cls, model: Recommender, ids: Iterable[str], rows: Csr, extra: Extra | None) -> "TrainingRows":
        """Return what updates of a model need, which was fitted on these rows."""
        updater = updater_of(model)
        assert updater is not None
        every = UserRows(rows, extra)
        empty = cls(np.zeros((0, _DIGEST), np.uint8), without_features(every), salt=secrets.token_bytes(_DIGEST))
        return replace(empty, users=empty.digests(ids), kept=updater.keep(model, every))

    def digests(self, ids: Iterable[str]) -> NDArray[np.uint8]:
        """Return the digests of ids, given as texts, (users, 16)."""
        found = b"".join(hashlib.blake2b(one.encode(), digest_size=_DIGEST, key=self.salt).digest() for one in ids)
        return np.frombuffer(found, np.uint8).reshape(-1, _DIGEST)

    def places(self, digests: NDArray[np.uint8]) -> IntArray:
        """Return the row of each user; -1 for an unknown user."""
        known, asked = (np.ascontiguousarray(part).view(np.uint64) for part in (self.users, digests))  # (users, 2)
        if not len(known) or not len(asked):
            return np.full(len(asked), -1, np.int64)
        order = np.argsort(known[:, 0], kind="stable")
        found = order[np.minimum(np.searchsorted(known[order, 0], asked[:, 0]), len(order) - 1)]
        return np.where((known[found] == asked).all(1), found, -1).astype(np.int64)

    def arrays(self) -> Arrays:
        """Return the arrays of the file."""
        matrix, extra = self.rows.matrix, self.rows.extra or Extra()
        found: Arrays = {"users": self.users, "salt": np.frombuffer(self.salt, np.uint8)}
        found |= {"indptr": matrix.indptr, "indices": matrix.indices, "items": np.array([matrix.shape[1]])}
        for name in OF_ENTRIES:
            if (own := getattr(extra, name)) is not None:
                found[name] = own.data
        for name in OF_DISLIKES:
            if (own := getattr(extra, name)) is not None:
                shape = np.asarray(own.shape, np.int64)
                parts = (own.data, own.indices, own.indptr, shape)
                found |= {f"{name}.{part}": array for part, array in zip(PARTS, parts, strict=True)}
        found |= {f"{_KEPT}{name}": array for name, array in self.kept.items()}
        return {name: np.ascontiguousarray(array) for name, array in found.items()}

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, NDArray[Any]], n_items: int) -> "TrainingRows":
        """Return what `arrays` stored; raise ValueError if it does not fit together."""
        indptr, indices = arrays["indptr"], arrays["indices"]
        parts = {"data": np.ones(len(indices), np.float32), "indices": indices, "indptr": indptr}
        users, shape = arrays["users"], np.array([len(indptr) - 1, int(arrays["items"][0])])
        matrix = saved_sparse(parts | {"shape": shape}, "rows")
        if matrix.shape[1] > n_items or users.shape != (matrix.shape[0], _DIGEST) or users.dtype != np.uint8:
            raise ValueError("the rows for updates do not fit the items")
        matrix = binary_csr(indptr, indices, matrix.shape[1])
        extra: dict[str, Any] = {name: valued(matrix, arrays[name]) for name in OF_ENTRIES if name in arrays}
        for name in OF_DISLIKES:
            if f"{name}.indptr" in arrays:
                extra[name] = saved_sparse({part: arrays[f"{name}.{part}"] for part in PARTS}, name)
        kept = {name.removeprefix(_KEPT): array for name, array in arrays.items() if name.startswith(_KEPT)}
        return cls(users, UserRows(matrix, Extra(**extra) if extra else None), kept, arrays["salt"].tobytes())


def without_features(rows: UserRows) -> UserRows:
    """Return the rows with signals of their own entries alone."""
    own = {name: getattr(rows.extra, name, None) for name in (*OF_ENTRIES, *OF_DISLIKES)}
    there = {name: matrix for name, matrix in own.items() if matrix is not None}
    return UserRows(rows.matrix, Extra(**there) if there else None)


def updatable_bytes(model: Recommender, shape: Shape) -> int | None:
    """Return about how many bytes a folder takes more to support updates; None if the model cannot be updated."""
    updater = updater_of(model)
    if updater is None:
        return None
    return updater.n_bytes(model, shape) + (_DIGEST + 8) * shape.users + 4 * shape.interactions
