"""Downloads from a server on this machine that obeys, ignores or breaks the rules."""

import hashlib
import io
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from recfusion.core.errors import InputError
from recfusion.data import catalog
from recfusion.data.published.fetch import fetch


def make_content() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(zipfile.ZipInfo("ml-1m/ratings.dat"), "1::10::5::978300760\n" * 50_000)
        archive.writestr(zipfile.ZipInfo("ml-1m/movies.dat"), "10::Toy Story (1995)::Animation\n")
    return buffer.getvalue()


CONTENT = make_content()


@dataclass
class Server:
    """What the server offers, how it behaves, and which ranges it was asked for."""

    content: bytes = CONTENT
    ranges: bool = True
    wrong_range: bool = False
    send_length: bool = True
    break_after: int | None = None
    status: int | None = None
    asked: list[str | None] = field(default_factory=list)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """Start a server in place of the publisher's."""
    behaviour = Server()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked = self.headers.get("Range")
            behaviour.asked.append(asked)
            if behaviour.status is not None:
                self.send_error(behaviour.status)
                return
            start = int(asked[6:-1]) if asked and behaviour.ranges else 0
            total = len(behaviour.content)
            if start >= total:
                self.send_error(416)
                return
            self.send_response(206 if start else 200)
            if start:
                start = 1 if behaviour.wrong_range else start
                self.send_header("Content-Range", f"bytes {start}-{total - 1}/{total}")
            if behaviour.send_length:
                self.send_header("Content-Length", str(total - start))
            self.end_headers()
            end = None if behaviour.break_after is None else start + behaviour.break_after
            self.wfile.write(behaviour.content[start:end])

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        monkeypatch.setattr(catalog, "_PUBLISHER", f"http://127.0.0.1:{http.server_port}/")
        thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield behaviour
        http.shutdown()
        thread.join()


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty cache, and make CONTENT the published ml-1m."""
    entry = replace(catalog.CATALOG["ml-1m"], md5=hashlib.md5(CONTENT).hexdigest())
    monkeypatch.setattr(catalog, "CATALOG", {**catalog.CATALOG, "ml-1m": entry})
    monkeypatch.delenv("RECFUSION_DATA", raising=False)
    monkeypatch.setenv("RECFUSION_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def write_part(cache: Path, content: bytes) -> Path:
    cache.mkdir()
    (cache / "ml-1m.zip.part").write_bytes(content)
    return cache / "ml-1m.zip.part"


def test_a_download_ends_in_the_cache_and_can_be_loaded(server: Server, cache: Path) -> None:
    steps: list[tuple[int, int | None]] = []
    path = fetch("ml-1m", on_progress=lambda done, total: steps.append((done, total)))
    assert path == cache / "ml-1m.zip"
    assert path.read_bytes() == CONTENT
    assert [file.name for file in cache.iterdir()] == ["ml-1m.zip"]
    assert len(steps) > 1
    assert steps == sorted(steps)
    assert steps[-1] == (len(CONTENT), len(CONTENT))
    assert catalog.read_named("ml-1m").rows.height == 50_000


def test_what_is_present_is_not_downloaded_again(server: Server, cache: Path) -> None:
    first = fetch("ml-1m")
    assert fetch("ml-1m") == first
    assert len(server.asked) == 1


def test_the_embedded_set_is_always_present(cache: Path) -> None:
    assert fetch("ml-latest-small") == catalog.locate("ml-latest-small")


def test_a_server_that_does_not_tell_the_length_is_fine(server: Server, cache: Path) -> None:
    server.send_length = False
    totals: set[int | None] = set()
    path = fetch("ml-1m", on_progress=lambda done, total: totals.add(total))
    assert path.read_bytes() == CONTENT
    assert totals == {None}


def test_a_broken_download_goes_on_where_it_stopped(server: Server, cache: Path) -> None:
    server.break_after = 300_000
    with pytest.raises(InputError, match=r"failed \(the connection ended after 300,000 of|IncompleteRead"):
        fetch("ml-1m")
    assert (cache / "ml-1m.zip.part").stat().st_size == 300_000
    server.break_after = None
    done: list[int] = []
    path = fetch("ml-1m", on_progress=lambda now, total: done.append(now))
    assert path.read_bytes() == CONTENT
    assert server.asked == [None, "bytes=300000-"]
    assert done[0] > 300_000
    assert not (cache / "ml-1m.zip.part").exists()


def test_a_server_without_ranges_sends_all_again(server: Server, cache: Path) -> None:
    write_part(cache, CONTENT[:1000])
    server.ranges = False
    assert fetch("ml-1m").read_bytes() == CONTENT
    assert server.asked == ["bytes=1000-"]


def test_a_server_that_sends_another_range_is_asked_for_the_whole(server: Server, cache: Path) -> None:
    write_part(cache, CONTENT[:1000])
    server.wrong_range = True
    assert fetch("ml-1m").read_bytes() == CONTENT
    assert server.asked == ["bytes=1000-", None]


def test_a_part_longer_than_the_file_is_downloaded_anew(server: Server, cache: Path) -> None:
    write_part(cache, CONTENT + b"more")
    assert fetch("ml-1m").read_bytes() == CONTENT
    assert server.asked == [f"bytes={len(CONTENT) + 4}-", None]


def test_a_part_that_is_already_whole_needs_no_network(server: Server, cache: Path) -> None:
    write_part(cache, CONTENT)
    assert fetch("ml-1m").read_bytes() == CONTENT
    assert server.asked == []


def test_a_wrong_checksum_removes_the_download_and_says_both(server: Server, cache: Path) -> None:
    server.content = b"something else"
    expected, got = hashlib.md5(CONTENT).hexdigest(), hashlib.md5(b"something else").hexdigest()
    with pytest.raises(InputError, match=f"expected MD5 {expected}, got {got}"):
        fetch("ml-1m")
    assert list(cache.iterdir()) == []


def test_an_http_error_says_what_failed_and_what_to_do(server: Server, cache: Path) -> None:
    part = write_part(cache, CONTENT[:1000])
    server.status = 503
    with pytest.raises(InputError, match=r"failed \(HTTP 503 Service Unavailable\)") as caught:
        fetch("ml-1m")
    assert f"put ml-1m.zip into '{cache}' by hand" in str(caught.value)
    assert part.stat().st_size == 1000


def test_no_server_at_all_is_an_input_error(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog, "_PUBLISHER", "http://127.0.0.1:1/")
    with pytest.raises(InputError, match=r"Downloading 'http://127\.0\.0\.1:1/ml-1m\.zip' failed"):
        fetch("ml-1m")


def test_an_interrupted_download_keeps_its_part(server: Server, cache: Path) -> None:
    def interrupt(done: int, total: int | None) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch("ml-1m", on_progress=interrupt)
    part = (cache / "ml-1m.zip.part").read_bytes()
    assert part
    assert CONTENT.startswith(part)
    assert fetch("ml-1m").read_bytes() == CONTENT


def test_netflix_cannot_be_fetched(cache: Path) -> None:
    with pytest.raises(InputError, match=r"'netflix' cannot be fetched: .* put nf_prize_dataset\.tar\.gz"):
        fetch("netflix")


def test_a_cache_that_cannot_be_written_is_an_input_error(server: Server, cache: Path) -> None:
    cache.write_text("a file where the folder should be")
    with pytest.raises(InputError, match=r"Cannot write to the folder .* set RECFUSION_CACHE"):
        fetch("ml-1m")
    assert server.asked == []
