"""Who may ask: a key for reading, a key for events and administration, and the page's token that ends by itself."""

import hashlib
import hmac
import os
import time
from dataclasses import dataclass

from recfusion.core.errors import InputError
from recfusion.server.config import Settings
from recfusion.server.http_errors import Fault

TOKEN_SECONDS = 12 * 3600  # a working day
_SHORTEST = 16  # characters of a key


@dataclass(frozen=True)
class Keys:
    """The keys of a service, None where there is none."""

    reading: str | None = None
    admin: str | None = None

    @classmethod
    def of(cls, settings: Settings) -> "Keys":
        """Read the keys from the environment; other addresses than the loopback need one."""
        if settings.api_key_env is None and not settings.on_loopback:
            raise InputError(
                f"Expected --api-key-env NAME to serve on {settings.host}, where other machines can ask: name a "
                "variable of the environment that holds a key."
            )
        return cls(_key(settings.api_key_env), _key(settings.admin_key_env))

    def check(self, header: str | None, *, admin: bool) -> None:
        """Raise unless an Authorization header allows a request."""
        given = (header or "").removeprefix("Bearer ").strip()
        if self.admin is not None and _equal(given, self.admin):
            return
        if admin:
            if self.admin is None and self.reading is None:
                return
            told = "the admin key" if self.admin is not None else "a service that was started with --admin-key-env NAME"
            raise Fault(403 if given else 401, "Authorization", f"Expected {told}.", {"WWW-Authenticate": "Bearer"})
        if self.reading is None or _equal(given, self.reading) or self._is_token(given):
            return
        raise Fault(
            401, "Authorization", "Expected 'Bearer KEY' with the key of this service.", {"WWW-Authenticate": "Bearer"}
        )

    def token(self) -> str | None:
        """Return a token for the page, which may read for some hours; None where none is needed."""
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
    if len(key) < _SHORTEST:
        raise InputError(
            f"Expected a key of at least {_SHORTEST} characters in the variable {name} of the environment, got "
            f"{len(key)}: make one with `openssl rand -hex 24`."
        )
    return key


def _equal(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode(), other.encode())
