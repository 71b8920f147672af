"""What a service is started with; it travels to the worker processes as JSON."""

from pathlib import Path

from pydantic import BaseModel, Field

LOOPBACK = ("127.0.0.1", "::1", "localhost")


class Settings(BaseModel, frozen=True, extra="forbid"):
    """What a service is started with."""

    folder: Path
    events: Path
    also: Path | None = None
    share: float = Field(0.5, ge=0, le=1)  # of the users who get the other model
    histories: Path | None = None
    host: str = "127.0.0.1"
    port: int = Field(8000, ge=0, le=65535)
    workers: int = Field(1, ge=1, le=64)
    api_key_env: str | None = None
    admin_key_env: str | None = None
    hosts: tuple[str, ...] = ()  # names beside the loopback's that requests may call us by
    origins: tuple[str, ...] = ()  # of pages elsewhere that may ask
    watch: bool = False
    verbose: bool = False  # a line for each request
    keep_days: float | None = Field(None, gt=0)
    max_body: int = 1 << 20  # bytes
    max_waiting: int = 256  # requests that may wait for the scoring thread
    seconds: float = 10.0  # that a request may take to arrive, and again to be answered

    @property
    def on_loopback(self) -> bool:
        """Whether nobody but this machine reaches the service."""
        return self.host in LOOPBACK
