"""The options of `recfusion serve` and the settings of a service, which worker processes get as JSON."""

import re
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field, field_validator

from recfusion.server.event_kinds import parse_weights

LOOPBACK = ("127.0.0.1", "::1", "localhost")  # addresses that only this machine can reach


def in_folder(value: Any, folder: Path) -> Any:
    """Return the value of an option; a path, or several, that are relative to a folder become absolute."""
    if isinstance(value, tuple):
        return tuple(in_folder(one, folder) for one in value)
    return folder / value if isinstance(value, Path) else value


class ShopOptions(BaseModel, frozen=True, extra="forbid"):
    """The options of `recfusion serve` that each shop may have of its own."""

    histories: tuple[Path, ...] = Field(
        (),
        description="File of user histories, with a row per user and item, read as the model read its orders; `*` "
        "matches several; may be repeated",
    )
    events: Path | None = Field(None, description="SQLite file for the events; by default beside the model folder")
    keep_events: float | None = Field(None, gt=0, description="Delete events after this number of days")
    event_weight: tuple[str, ...] = Field(
        (), description="Weight of a kind of event, such as view=0.2; also defines new kinds; may be repeated"
    )
    also: Path | None = Field(None, description="A second model folder, for a share of the users")
    also_share: float = Field(0.5, ge=0, le=1, description="With --also: share of the users who get the second model")
    models: tuple[Path, ...] = Field(
        (), description="A further model folder, which requests and placements can name; may be repeated"
    )
    watch: bool = Field(False, description="Reload the model folder when it changes")
    learn: bool = Field(False, description="Update the weights by the events; the folder must be --updatable")
    learn_every: float = Field(30.0, gt=0, description="With --learn: seconds between updates")
    api_key_env: str | None = Field(None, description="Environment variable with the key for reading")
    admin_key_env: str | None = Field(
        None, description="Environment variable with the key for events, items and reload"
    )
    key_file: Path | None = Field(
        None, description="TOML file of keys with scopes (read, events, admin); read again when it changes"
    )
    rate_limit: float | None = Field(
        None, gt=0, description="Requests per second that each key may send; the workers share them equally"
    )
    max_cost: int = Field(
        50_000, ge=1, description="Largest cost of a request: the sum over its lists of k x (1 + why)"
    )
    image_origin: tuple[str, ...] = Field(
        (), description="Origin of item images that the page may show, such as https://cdn.example; may be repeated"
    )
    mcp: bool = Field(False, description="Offer tools to assistants at /mcp, the Model Context Protocol (extra mcp)")
    audit_log: Path | None = Field(None, description="File for a line per request that writes or is refused")

    @field_validator("histories", mode="before")
    @classmethod
    def _as_tuple(cls, value: Any) -> Any:
        return (value,) if isinstance(value, str | Path) else value

    @field_validator("event_weight")
    @classmethod
    def _check_weights(cls, texts: tuple[str, ...]) -> tuple[str, ...]:
        parse_weights(texts)
        return texts

    @field_validator("image_origin")
    @classmethod
    def _check_origins(cls, origins: tuple[str, ...]) -> tuple[str, ...]:
        for origin in origins:
            if not re.fullmatch(r"https?://[A-Za-z0-9.-]+(:\d{1,5})?", origin):
                raise ValueError(
                    f"expected an origin such as https://cdn.example, without a path, got '{origin[:100]}'"
                )
        return origins


class Options(ShopOptions):
    """The options of `recfusion serve`."""

    config: tuple[Path, ...] = Field(
        (), description="File of a shop: its folder, events, keys and placements; repeated for several shops"
    )
    host: str = Field("127.0.0.1", description="Address to listen on; others than the loopback need --api-key-env")
    port: int = Field(8000, ge=0, le=65535, description="Port to listen on; 0 takes a free one")
    workers: int = Field(1, ge=1, le=64, description="Number of processes that answer requests")
    tls_certificate: Path | None = Field(None, description="PEM file with the certificate chain, to serve HTTPS")
    tls_key: Path | None = Field(None, description="With --tls-certificate: PEM file with its private key")
    host_name: tuple[str, ...] = Field((), description="Host name that requests may use; may be repeated")
    origin: tuple[str, ...] = Field((), description="Origin of other pages that may send requests; may be repeated")


class Settings(Options):
    """The settings of a service."""

    folder: Path
    events: Path
    placements: dict[str, dict[str, Any]] = {}  # tables of the file of the shop
    shop: str = ""  # its name, if there are several
    shops: tuple["Settings", ...] = ()  # several shops in one service, each with its own settings
    page_secret: str = ""  # signs the token of the page
    verbose: bool = False  # log a line for each request
    max_body: int = 1 << 20  # bytes
    max_head: int = 1 << 16  # bytes of the request line and the headers
    max_headers: int = 100
    max_pipelined: int = 16  # requests that may wait on a connection for the answers to earlier ones
    max_connections: int = 800  # per process; the usual limit of open files is 1,024
    max_waiting: int = 256  # requests that may wait for the scoring thread
    seconds: float = 10.0  # time limit for the head of a request, its body, its answer, and a client that does not read
