"""Model folders on a hub: the real client against a small stand-in of the hub's API."""

import base64
import hashlib
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from recfusion.core.errors import InputError
from recfusion.core.extras import is_installed
from recfusion.data.interactions import Interactions
from recfusion.experiments.train import train
from recfusion.inference.bundle import Bundle
from recfusion.inference.bundle_files import FILES
from recfusion.inference.recommending import recommend

pytestmark = pytest.mark.skipif(not is_installed("huggingface_hub"), reason="the extra hub is not installed")

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


def handler(hub: Hub) -> type[BaseHTTPRequestHandler]:
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


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    found = Hub()
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler(found))
    server.daemon_threads = True
    found.address = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield found
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def bundle(groups: Interactions) -> Bundle:
    return train("thinning-linear", groups, {"tune_trials": 0}, signals="binary", updatable=True)


def push(bundle: Bundle, hub: Hub, name: str = "ann/shop", token: str = TOKEN) -> str:
    return bundle.push_to_hub(name, token=token, endpoint=hub.address)


def pull(hub: Hub, name: str = "ann/shop", revision: str | None = None) -> Bundle:
    return Bundle.from_hub(name, revision=revision, token=TOKEN, endpoint=hub.address)


def test_a_pushed_model_gives_the_same_lists_and_no_rows_of_users_leave(bundle: Bundle, hub: Hub) -> None:
    assert bundle.training is not None
    address = push(bundle, hub)
    assert address == f"{hub.address}/ann/shop/commit/{hub.newest}"
    assert hub.created == [{"name": "shop", "organization": "ann", "visibility": "private"}]
    pushed = hub.commits[hub.newest]
    assert set(pushed) == {"README.md", "config.json", "layout.safetensors", *FILES}
    assert b"holds the items of the training users" not in pushed["README.md"]
    found = pull(hub)
    assert found.training is None
    asked = {"new": ["i01", "i02"]}
    assert recommend(found, asked).to_frame().equals(recommend(bundle, asked).to_frame())


def test_a_revision_is_the_model_of_that_commit(bundle: Bundle, hub: Hub) -> None:
    push(replace(bundle, seed=1), hub)
    first = hub.newest
    push(replace(bundle, seed=2), hub)
    assert pull(hub).seed == 2
    assert pull(hub, revision=first).seed == 1


def test_other_files_of_a_repository_are_not_downloaded_and_damage_is_found(
    bundle: Bundle, hub: Hub, tmp_path: Path
) -> None:
    push(bundle, hub)
    files = hub.commits[hub.newest]
    files |= {"model.pkl": b"cos\nsystem\n", "modeling.py": b"raise SystemExit", "training.safetensors": b"rows"}
    pull(hub)
    assert {path.name for path in (tmp_path / "cache").rglob("*")} & {"model.pkl", "modeling.py"} == set()
    files["items.parquet"] = files["items.parquet"][:-1] + b"x"
    hub.commits = {"f" * 40: files}
    with pytest.raises(InputError, match=r"items\.parquet"):
        pull(hub)


def test_what_cannot_be_pushed_or_found_is_one_sentence(groups: Interactions, bundle: Bundle, hub: Hub) -> None:
    with pytest.raises(InputError, match="rows of training users"):
        push(train("user-knn", groups), hub)
    with pytest.raises(InputError, match="status 401"):
        push(bundle, hub, token="hf_wrong")
    for name in ("ann/other", "no name at all/x/y"):
        with pytest.raises(InputError, match="OWNER/NAME"):
            pull(hub, name)
    assert not hub.commits


def test_without_the_package_the_extra_is_named(bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recfusion.core.extras.find_spec", lambda _: None)
    with pytest.raises(InputError, match=r"recfusion\[hub\]"):
        bundle.push_to_hub("ann/shop")
    with pytest.raises(InputError, match=r"recfusion\[hub\]"):
        Bundle.from_hub("ann/shop")
