"""Authorization: a key for reading, a key for events and administration, and the expiring token of the page."""

import hashlib
import hmac
import os
import time
from dataclasses import dataclass

from recfusion.core.errors import InputError
from recfusion.server.config import LOOPBACK, Settings
from recfusion.server.http_errors import Fault

TOKEN_SECONDS = 12 * 3600  # a working day
_MIN_LENGTH = 16  # characters of a key
_CHALLENGE = {"WWW-Authenticate": "Bearer"}


@dataclass(frozen=True)
class Keys:
    """The keys of a service; None means that no key is needed."""

    reading: str | None = None
    admin: str | None = None

    @classmethod
    def of(cls, settings: Settings) -> "Keys":
        """Read the keys from the environment; every address but the loopback needs one."""
        if settings.api_key_env is None and settings.host not in LOOPBACK:
            raise InputError(
                f"Expected --api-key-env NAME to serve on {settings.host}, which other machines can reach: name an "
                "environment variable with a key.",
                "api_key_env",
            )
        return cls(_key(settings.api_key_env), _key(settings.admin_key_env))

    def check(self, header: str | None, *, admin: bool) -> None:
        """Raise a Fault unless an Authorization header allows a request."""
        given = (header or "").removeprefix("Bearer ").strip()
        if self.admin is not None and _equal(given, self.admin):
            return
        if admin:
            if self.admin is None and self.reading is None:
                return
            needed = "the admin key" if self.admin is not None else "a service started with --admin-key-env NAME"
            raise Fault(403 if given else 401, "Authorization", f"Expected {needed}.", _CHALLENGE)
        if self.reading is None or _equal(given, self.reading) or self._is_token(given):
            return
        raise Fault(401, "Authorization", "Expected 'Bearer KEY' with the key of this service.", _CHALLENGE)

    def token(self) -> str | None:
        """Return a token with which the page may read for some hours; None if no key is needed."""
        if self.reading is None:
            return None
        until = str(int(time.time()) + TOKEN_SECONDS)
        return f"{until}.{self._signed(until)}"

    def _is_token(self, given: str) -> bool:
        until, _, signature = given.partition(".")
        if not until.isdigit() or len(until) > 12 or not _equal(signature, self._signed(until)):
            return False
        return int(until) > time.time()

    def _signed(self, until: str) -> str:
        return hmac.new((self.reading or "").encode(), f"page {until}".encode(), hashlib.sha256).hexdigest()


def _key(name: str | None) -> str | None:
    if name is None:
        return None
    key = os.environ.get(name, "")
    if len(key) < _MIN_LENGTH:
        raise InputError(
            f"Expected a key of at least {_MIN_LENGTH} characters in the environment variable {name}, got {len(key)}: "
            "make one with `openssl rand -hex 24`."
        )
    return key


def _equal(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode(), other.encode())
