"""Authorization: keys with scopes, from the environment and a file that is read again, and the token of the page."""

import hashlib
import hmac
import logging
import os
import re
import time
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Literal, get_args

from pydantic import BaseModel, Field, TypeAdapter, model_validator

from recfusion.core.errors import InputError, validating
from recfusion.server.config import LOOPBACK, Settings
from recfusion.server.file_states import FileState, file_states
from recfusion.server.http_errors import Fault

log = logging.getLogger(__name__)
Scope = Literal["read", "events", "admin"]
SCOPES: tuple[Scope, ...] = get_args(Scope)
TOKEN_SECONDS = 12 * 3600  # a working day
_MIN_LENGTH = 16  # characters of a key
_READ_AGAIN = 1.0  # seconds after which a change of the key file is noticed
_CHALLENGE = {"WWW-Authenticate": "Bearer"}


def scope_of(method: str, path: str) -> Scope:
    """Return the scope that a request needs."""
    if path == "/events/forget" or path.startswith("/admin/") or method not in ("GET", "HEAD", "POST"):
        return "admin"
    return "events" if path.startswith("/events") else "read"


class _KeyTable(BaseModel, frozen=True, extra="forbid"):
    """A table of the key file."""

    sha256: str = Field(pattern="^[0-9a-f]{64}$")  # only the digest of a key is kept
    scopes: frozenset[Scope] = Field(min_length=1)
    # The only placements that the key may name; None: all, and requests without one.
    placements: frozenset[str] | None = Field(None, min_length=1)
    # Of the pages that may send it, so that visitors can read it; None: it is no key for browsers.
    origins: frozenset[Annotated[str, Field(pattern=r"^https?://[^/\s]+$")]] | None = Field(None, min_length=1)

    @model_validator(mode="after")
    def _check_scopes(self) -> "_KeyTable":
        if self.origins is not None and (self.placements is None or "admin" in self.scopes):
            raise ValueError("expected placements and no scope admin for a key with origins, which visitors can read")
        if self.placements is not None and "admin" in self.scopes:
            raise ValueError("expected no scope admin for a key that is limited to placements")
        return self


class Key(_KeyTable, frozen=True):
    """A key that clients may send."""

    name: str  # for the audit log and the rate limit

    @classmethod
    def of(cls, name: str, key: str, scopes: Iterable[Scope]) -> "Key":
        return cls(name=name, sha256=_digest(key), scopes=frozenset(scopes))


_PAGE = Key.model_construct(name="page", sha256="", scopes=frozenset({"read"}))  # stands for the token of the page
_NOBODY = Key.model_construct(name="", sha256="", scopes=frozenset())  # stands for no key, or an unknown one


class Keys:
    """The keys of a service. Without any, every request is allowed; with an admin key alone, reading needs no key."""

    def __init__(self, fixed: Iterable[Key] = (), file: Path | None = None, page_secret: str = "") -> None:
        self._fixed, self._file, self._page_secret = tuple(fixed), file, page_secret
        self.reading_is_open = file is None and not any(key.scopes == {"read"} for key in self._fixed)
        self._state = self._file_state()
        self._keys = self._read()
        self._checked = time.monotonic()

    @classmethod
    def of(cls, settings: Settings) -> "Keys":
        """Read the keys of a service; every address but the loopback needs one for reading."""
        fixed = []
        if settings.api_key_env is not None:
            fixed.append(Key.of("api key", _from_environment(settings.api_key_env), ["read"]))
        if settings.admin_key_env is not None:
            fixed.append(Key.of("admin key", _from_environment(settings.admin_key_env), SCOPES))
        found = cls(fixed, settings.key_file, settings.page_secret)
        if found.reading_is_open and settings.host not in LOOPBACK:
            raise InputError(
                f"Expected --api-key-env NAME or --key-file FILE to serve on {settings.host}, which other machines can "
                "reach: name an environment variable with a key, or a file of keys.",
                "api_key_env",
            )
        return found

    def needed_for(self, scope: Scope) -> bool:
        return not self.reading_is_open or (scope != "read" and bool(self._fixed))

    def check(self, header: str | None, scope: Scope) -> Key:
        """Return the key in an Authorization header; raise a Fault unless it has the scope or none is needed."""
        self._read_again()
        key = self.find(header)
        if scope in key.scopes or not self.needed_for(scope):
            return key
        expected = f"'Bearer KEY' with a key of this service that has the scope {scope}"
        if not any(scope in one.scopes for one in self._keys.values()):
            expected = f"a service with a key for {scope}: start it with --admin-key-env NAME or --key-file FILE"
        raise Fault(401 if key is _NOBODY else 403, "Authorization", f"Expected {expected}.", _CHALLENGE)

    def find(self, header: str | None) -> Key:
        """Return the key in an Authorization header; one without a name if it is unknown."""
        given = (header or "").removeprefix("Bearer ").strip()
        return self._keys.get(_digest(given)) or (_PAGE if self._is_token(given) else _NOBODY)

    def origins(self) -> frozenset[str]:
        """Return the origins of all keys for browsers."""
        return frozenset().union(*(key.origins for key in self._keys.values() if key.origins))

    def token(self) -> str | None:
        """Return a token with which the page may read for some hours; None if reading needs no key."""
        if self.reading_is_open:
            return None
        until = str(int(time.time()) + TOKEN_SECONDS)
        return f"{until}.{self._signed(until)}"

    def _is_token(self, given: str) -> bool:
        until, _, signature = given.partition(".")
        if not self._page_secret or not re.fullmatch("[0-9]{1,12}", until):
            return False
        return hmac.compare_digest(signature.encode(), self._signed(until).encode()) and int(until) > time.time()

    def _signed(self, until: str) -> str:
        return hmac.new(self._page_secret.encode(), f"page {until}".encode(), hashlib.sha256).hexdigest()

    def _read(self) -> dict[str, Key]:
        return {key.sha256: key for key in (*self._fixed, *(read_key_file(self._file) if self._file else ()))}

    def _file_state(self) -> list[FileState]:
        return file_states([self._file] if self._file else [])

    def _read_again(self) -> None:
        """Read the key file again if it has changed; a wrong one leaves the old keys in use."""
        now = time.monotonic()
        if self._file is None or now - self._checked < _READ_AGAIN:
            return
        self._checked = now
        if (state := self._file_state()) == self._state:
            return
        self._state = state
        try:
            self._keys = self._read()
            log.warning('{"event": "the key file was read again", "keys": %d}', len(self._keys))
        except InputError:
            log.warning('{"event": "the new key file is wrong, the old keys stay in use"}')


def read_key_file(path: Path) -> list[Key]:
    """Return the keys of a TOML file: tables with `sha256`, `scopes` and, as limits, `placements` and `origins`."""
    remedy = "make the digest of a key with `printf %s KEY | sha256sum`; the scopes are read, events and admin"
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no TOML"
        raise InputError(f"Cannot read the key file '{path}' ({reason}).", "key_file") from None
    with validating("a table with sha256 and scopes for each key of --key-file", remedy):
        found = TypeAdapter(Annotated[dict[str, _KeyTable], Field(min_length=1)]).validate_python(tables)
    return [Key(name=name, **dict(one)) for name, one in found.items()]


def _from_environment(name: str) -> str:
    key = os.environ.get(name, "")
    if len(key) < _MIN_LENGTH:
        raise InputError(
            f"Expected a key of at least {_MIN_LENGTH} characters in the environment variable {name}, got {len(key)}: "
            "make one with `openssl rand -hex 24`."
        )
    return key


def _digest(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()
