"""A small stand-in of the hub's API: the routes that pushing and downloading the repository ann/shop need."""

import base64
import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

TOKEN = "hf_local"


@dataclass
class Hub:
    """A hub with the routes that pushing and downloading a small folder need."""

    address: str = ""
    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)  # commit -> its files
    created: list[dict[str, Any]] = field(default_factory=list)

    @property
    def newest(self) -> str:
        return list(self.commits)[-1]

    def commit(self, lines: list[dict[str, Any]]) -> str:
        files = dict(self.commits[self.newest]) if self.commits else {}
        for line in lines:
            if line["key"] == "file":
                files[line["value"]["path"]] = base64.b64decode(line["value"]["content"])
        name = hashlib.sha1(str(len(self.commits)).encode()).hexdigest()
        self.commits[name] = files
        return name


def _handler(hub: Hub) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def reply(self, status: int, body: bytes, **headers: str) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name.replace("_", "-"), value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def answer(self, document: Any, status: int = 200) -> None:
            self.reply(status, json.dumps(document).encode(), Content_Type="application/json")

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            if self.headers.get("Authorization") != f"Bearer {TOKEN}":
                return self.answer({"error": "who are you?"}, 401)
            if self.path == "/api/repos/create":
                hub.created.append(json.loads(body))
                return self.answer({"url": f"{hub.address}/ann/shop", "name": "ann/shop"})
            if self.path == "/api/validate-yaml":
                assert json.loads(body)["content"].startswith("---\nlibrary_name: recfusion\n")
                return self.answer({"errors": [], "warnings": []})
            if self.path == "/api/models/ann/shop/preupload/main":
                files = json.loads(body)["files"]
                return self.answer(
                    {"files": [one | {"uploadMode": "regular", "shouldIgnore": False, "oid": None} for one in files]}
                )
            if self.path.startswith("/api/models/ann/shop/commit/main"):
                name = hub.commit([json.loads(line) for line in body.splitlines()])
                document = {"commitUrl": f"{hub.address}/ann/shop/commit/{name}", "commitOid": name}
                return self.answer(document | {"pullRequestUrl": None, "success": True})
            return self.answer({"error": self.path}, 404)

        def do_GET(self) -> None:
            path = self.path.partition("?")[0].strip("/").split("/")
            revision = path[-1] if path[0] == "api" else path[3] if len(path) > 4 else ""
            name = hub.newest if revision == "main" and hub.commits else revision
            if name not in hub.commits or "shop" not in path:
                return self.reply(404, b"{}", X_Error_Code="RepoNotFound")
            files = hub.commits[name]
            if path[0] == "api" and "tree" in path:
                found = [(one, hashlib.sha1(body).hexdigest(), len(body)) for one, body in files.items()]
                return self.answer([{"type": "file", "path": n, "oid": o, "size": size} for n, o, size in found])
            if path[0] == "api":
                listed = [{"rfilename": one} for one in files]
                return self.answer({"id": "ann/shop", "sha": name, "siblings": listed, "private": True})
            body = files[path[4]]
            etag = f'"{hashlib.sha1(body).hexdigest()}"'
            return self.reply(200, body, ETag=etag, X_Repo_Commit=name)

        do_HEAD = do_GET  # noqa: N815

        def log_message(self, *_: object) -> None:
            pass

    return Handler


@contextmanager
def serving_hub() -> Iterator[Hub]:
    """Serve a hub without repositories until the block ends."""
    hub = Hub()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(hub))
    server.daemon_threads = True
    hub.address = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
