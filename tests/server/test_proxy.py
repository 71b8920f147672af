"""deploy/nginx.conf in a real nginx in front of a service: which requests reach the service, and from where."""

import re
import shutil
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from named_tests import ROOT
from recfusion.data.interactions import Interactions
from recfusion.server.keys import scope_of
from running import Client, running, self_signed, settings_for
from shop import shop

NGINX = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
pytestmark = pytest.mark.skipif(NGINX is None, reason="there is no nginx here")
NAME = {"Host": "shop.example"}


@contextmanager
def proxy(service: Client, folder: Path, own_network: str) -> Iterator[Client]:
    """Run nginx with the configuration of deploy/, other paths and ports, and another network."""
    made, key = self_signed(folder)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    text = (ROOT / "deploy" / "nginx.conf").read_text(encoding="utf-8")
    for old, new in (
        ("listen 443 ssl", f"listen 127.0.0.1:{port} ssl"),
        ("127.0.0.1:8000", f"127.0.0.1:{service.port}"),
        ("/etc/ssl/shop.example.pem", str(made)),
        ("/etc/ssl/private/shop.example.key", str(key)),
        ("10.0.0.0/8", own_network),
    ):
        assert text.count(old) == 1
        text = text.replace(old, new)
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    places = "".join(f"{kind}_temp_path {folder / kind};" for kind in kinds)
    (folder / "nginx.conf").write_text(
        f"daemon off; master_process off; pid {folder / 'pid'}; error_log {folder / 'log'};\n"
        f"events {{}}\nhttp {{ access_log off; {places}\n{text}\n}}\n"
    )
    assert NGINX is not None
    program = subprocess.Popen([NGINX, "-p", folder, "-c", folder / "nginx.conf"], stderr=subprocess.DEVNULL)
    client = Client(port, ssl.create_default_context(cafile=str(made)))
    try:
        until = time.monotonic() + 60
        while True:
            assert program.poll() is None
            assert time.monotonic() < until
            try:
                client.get("/live", NAME)
                break
            except OSError:
                time.sleep(0.05)
        yield client
    finally:
        program.kill()
        program.wait(20)


def test_writing_routes_are_reached_from_the_own_network_alone(groups: Interactions, tmp_path: Path) -> None:
    folder = shop(groups).save(tmp_path / "shop")
    (tmp_path / "near").mkdir()
    (tmp_path / "far").mkdir()
    with running(settings_for(folder, host_name=("shop.example",))) as service:
        routes = [
            (method.upper(), path)
            for path, methods in service.get("/openapi.json").json["paths"].items()
            for method in methods
        ]
        with proxy(service, tmp_path / "far", "10.0.0.0/8") as far:
            for method, path in routes:
                hidden = scope_of(method, path) != "read" or path == "/metrics"
                for place in (path, f"/shops/tea{path}"):
                    reply = far.ask(method, place, {} if method in ("POST", "PUT") else None, NAME)
                    by_proxy = re.search(rb"<html>", reply.body) is not None
                    assert (hidden, hidden) == (by_proxy, reply.status == 403), (method, place)
            for path in ("/%61dmin/reload", "//admin/reload", "/x/../admin/reload", "/live/../events/forget"):
                assert far.post(path, {"user": "u"}, NAME).status == 403, path
            assert far.post("/recommend", {"history": ["i01"]}, NAME).status == 200
            assert far.post("/recommend", b"x" * (1 << 21), NAME).status == 413
        with proxy(service, tmp_path / "near", "127.0.0.0/8") as near:
            assert near.post("/events", {"user": "u", "item": "i01"}, NAME).status == 201
            assert near.ask("DELETE", "/items", None, NAME).status == 200
            assert near.post("/admin/reload", {}, NAME).status == near.get("/metrics", NAME).status == 200
