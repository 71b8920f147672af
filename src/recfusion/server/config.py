"""The options of `recfusion serve` and the settings of a service, which worker processes get as JSON."""

from pathlib import Path

from pydantic import BaseModel, Field

LOOPBACK = ("127.0.0.1", "::1", "localhost")  # addresses that only this machine can reach


class Options(BaseModel, frozen=True, extra="forbid"):
    """The options of `recfusion serve`."""

    host: str = Field("127.0.0.1", description="Address to listen on; others than the loopback need --api-key-env")
    port: int = Field(8000, ge=0, le=65535, description="Port to listen on; 0 takes a free one")
    workers: int = Field(1, ge=1, le=64, description="Number of processes that answer requests")
    histories: Path | None = Field(None, description="File of user histories, with a row per user and item")
    events: Path | None = Field(None, description="SQLite file for the events; by default beside the model folder")
    keep_events: float | None = Field(None, gt=0, description="Delete events after this number of days")
    also: Path | None = Field(None, description="A second model folder, for a share of the users")
    also_share: float = Field(0.5, ge=0, le=1, description="With --also: share of the users who get the second model")
    watch: bool = Field(False, description="Reload the model folder when it changes")
    api_key_env: str | None = Field(None, description="Environment variable with the key for reading")
    admin_key_env: str | None = Field(
        None, description="Environment variable with the key for events, items and reload"
    )
    host_name: tuple[str, ...] = Field((), description="Host name that requests may use; may be repeated")
    origin: tuple[str, ...] = Field((), description="Origin of other pages that may send requests; may be repeated")


class Settings(Options):
    """The settings of a service."""

    folder: Path
    events: Path
    verbose: bool = False  # log a line for each request
    max_body: int = 1 << 20  # bytes
    max_waiting: int = 256  # requests that may wait for the scoring thread
    seconds: float = 10.0  # time limit for receiving a request, and again for answering it
