"""Authorization: keys with scopes, from the environment and a file that is read again, and the token of the page."""

import hashlib
import hmac
import logging
import os
import re
import time
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, get_args

from pydantic import BaseModel, Field, TypeAdapter, model_validator

from recfusion.core.errors import InputError, validating
from recfusion.server.config import LOOPBACK, Settings
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


@dataclass(frozen=True)
class Key:
    """A key that clients may send; only its SHA-256 is kept."""

    name: str  # for the audit log and the rate limit
    sha256: str
    scopes: frozenset[Scope]
    placements: frozenset[str] | None = None  # the only ones that it may name; None: all, and requests without one
    origins: frozenset[str] | None = None  # of the pages that may send it; None: it is no key for browsers

    @classmethod
    def of(cls, name: str, key: str, scopes: Iterable[Scope]) -> "Key":
        return cls(name, _digest(key), frozenset(scopes))


_PAGE = Key("page", "", frozenset({"read"}))  # the token of the page


class Keys:
    """The keys of a service. Without any, every request is allowed; with an admin key alone, reading needs no key."""

    def __init__(self, fixed: Iterable[Key] = (), file: Path | None = None, page_secret: str = "") -> None:
        self._fixed, self._file, self._page_secret = tuple(fixed), file, page_secret
        self.reading_is_open = file is None and not any(key.scopes == {"read"} for key in self._fixed)
        self._state = _state(file)
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

    def check(self, header: str | None, scope: Scope) -> str:
        """Return the name of the key in an Authorization header; raise a Fault unless it has the scope."""
        self._read_again()
        key = self._find(header)
        if key is not None and scope in key.scopes:
            return key.name
        if not self.needed_for(scope):
            return ""
        expected = f"'Bearer KEY' with a key of this service that has the scope {scope}"
        if not any(scope in one.scopes for one in self._keys.values()):
            expected = f"a service with a key for {scope}: start it with --admin-key-env NAME or --key-file FILE"
        raise Fault(403 if key else 401, "Authorization", f"Expected {expected}.", _CHALLENGE)

    def placements(self, header: str | None) -> frozenset[str] | None:
        """Return the placements to which the key in an Authorization header is limited; None if it is not."""
        return found.placements if (found := self._find(header)) else None

    def origins(self) -> frozenset[str]:
        """Return the origins of all keys for browsers."""
        return frozenset().union(*(key.origins for key in self._keys.values() if key.origins))

    def is_for_browsers(self, header: str | None, origin: str | None) -> bool:
        """Return whether visitors of pages know the key; raise a Fault if it is for pages of other origins."""
        key = self._find(header)
        if key is None or key.origins is None:
            return False
        if origin not in key.origins:
            raise Fault(403, "Origin", "This key is for other pages: name their origins in the key file.")
        return True

    def name(self, header: str | None) -> str:
        """Return the name of the key in an Authorization header, empty if it is unknown."""
        return found.name if (found := self._find(header)) else ""

    def _find(self, header: str | None) -> Key | None:
        given = (header or "").removeprefix("Bearer ").strip()
        return self._keys.get(_digest(given)) or (_PAGE if self._is_token(given) else None)

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

    def _read_again(self) -> None:
        """Read the key file again if it has changed; a wrong one leaves the old keys in use."""
        now = time.monotonic()
        if self._file is None or now - self._checked < _READ_AGAIN:
            return
        self._checked = now
        if (state := _state(self._file)) == self._state:
            return
        self._state = state
        try:
            self._keys = self._read()
            log.warning('{"event": "the key file was read again", "keys": %d}', len(self._keys))
        except InputError:
            log.warning('{"event": "the new key file is wrong, the old keys stay in use"}')


class _KeyTable(BaseModel, frozen=True, extra="forbid"):
    sha256: str = Field(pattern="^[0-9a-f]{64}$")
    scopes: frozenset[Scope] = Field(min_length=1)
    placements: frozenset[str] | None = Field(None, min_length=1)
    origins: frozenset[Annotated[str, Field(pattern=r"^https?://[^/\s]+$")]] | None = Field(None, min_length=1)

    @model_validator(mode="after")
    def _check_scopes(self) -> "_KeyTable":
        if self.origins is not None and (self.placements is None or "admin" in self.scopes):
            raise ValueError("expected placements and no scope admin for a key with origins, which visitors can read")
        if self.placements is not None and "admin" in self.scopes:
            raise ValueError("expected no scope admin for a key that is limited to placements")
        return self


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
    return [Key(name, one.sha256, one.scopes, one.placements, one.origins) for name, one in found.items()]


def _state(path: Path | None) -> tuple[int, int, int] | None:
    try:
        found = path.stat() if path else None
    except OSError:
        return None
    return (found.st_mtime_ns, found.st_ino, found.st_size) if found else None


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
