"""A service without memory, threads, files or disk answers with 503 or does not start, and works again later."""

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

from named_tests import ROOT
from recfusion.core.errors import InputError
from recfusion.data.interactions import Interactions
from recfusion.server import start
from recfusion.server.batcher import Batcher
from recfusion.server.service import Service
from running import running, settings_for
from shop import shop

if sys.platform.startswith("linux"):
    sys.path.insert(0, str(ROOT / "scripts"))
    import exhaust


class Panic(BaseException):
    """As polars raises it: no Exception."""


def test_a_panic_ends_its_request_and_not_the_thread() -> None:
    def handle(jobs: list[str]) -> list[str]:
        if jobs == ["panic"]:
            raise Panic
        return jobs

    async def ask() -> list[Any]:
        return [await asyncio.gather(batcher.ask(job), return_exceptions=True) for job in ("panic", "fine")]

    batcher: Batcher[str, str] = Batcher(handle, most=8, waiting=8, name="test")
    (first,), second = asyncio.run(asyncio.wait_for(ask(), 60))
    batcher.close()
    assert (type(first), second) == (RuntimeError, ["fine"])


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("can't start new thread")])
def test_a_request_without_memory_gets_503_and_the_next_one_works(
    groups: Interactions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    score, short = Service._score, True

    def fail(self: Service, jobs: list[Any]) -> list[Any]:
        if short:
            raise error
        return score(self, jobs)

    monkeypatch.setattr(Service, "_score", fail)
    with running(settings_for(shop(groups).save(tmp_path / "shop"))) as client:
        reply = client.post("/recommend", {"history": []})
        assert (reply.status, reply.json["field"], reply.headers["retry-after"]) == (503, "", "10")
        short = False
        assert client.post("/recommend", {"history": []}).status == 200


def test_few_open_files_allow_few_connections_or_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = settings_for(tmp_path)
    for limit, most in ((100, 36), (10_000, 800)):
        monkeypatch.setattr(start, "open_file_limit", lambda limit=limit: limit)
        assert start._most_connections(settings) == most
    shops = settings.model_copy(update={"shops": (settings, settings)})
    monkeypatch.setattr(start, "open_file_limit", lambda: 200)
    with pytest.raises(InputError, match="at least 208 open files, got 200"):
        start._most_connections(shops)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits of other processes exist on Linux")
@pytest.mark.parametrize(
    ("kind", "amount", "later", "expected"),
    [
        ("files", 100, False, "worked"),
        ("threads", 3, False, "refused"),  # at its end at the latest, and answers 503 before
        ("clock", 0, False, "worked"),
        ("disk", 500, True, "worked"),
    ],
)
def test_a_service_without_a_resource_works_or_says_what_is_missing(
    groups: Interactions, tmp_path: Path, kind: str, amount: int, later: bool, expected: str
) -> None:
    shop(groups).save(tmp_path / "model")
    assert exhaust.outcome(exhaust.Case(kind, amount, "serve", later), tmp_path)[0] == expected
