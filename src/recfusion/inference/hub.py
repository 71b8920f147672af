"""Model folders on the Hugging Face hub: only the files of a model folder are sent and read, never rows of users."""

import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

import httpx2
from huggingface_hub import HfApi
from huggingface_hub.errors import HFValidationError

from recfusion.core.errors import InputError
from recfusion.inference import bundle_files as files
from recfusion.inference.bundle import Bundle
from recfusion.models.base import Recommender

SHARED = ["README.md", files.CONFIG, *files.FILES, *(name for name in files.OPTIONAL if name != files.TRAINING)]


def push(
    bundle: Bundle, name: str, private: bool, revision: str | None, token: str | None, endpoint: str | None
) -> str:
    """Save the bundle without rows of training users, push the folder and return the address of the commit."""
    api = _api(token, endpoint)
    with tempfile.TemporaryDirectory(prefix="recfusion-hub-") as folder, _explained(name):
        path = bundle.without_rows().save(Path(folder) / "model")
        api.create_repo(name, private=private, exist_ok=True)
        done = api.upload_folder(
            repo_id=name,
            folder_path=path,
            allow_patterns=SHARED,
            revision=revision,
            commit_message=f"Add {bundle.name} on {bundle.protocol.name}",
        )
    return str(done.commit_url)


def pull(
    name: str, revision: str | None, trust: Iterable[type[Recommender]], token: str | None, endpoint: str | None
) -> Bundle:
    """Download a model folder and load it with the usual checks."""
    with _explained(name):
        path = _api(token, endpoint).snapshot_download(name, revision=revision, allow_patterns=SHARED)
    return Bundle.load(path, trust=trust)


def _api(token: str | None, endpoint: str | None) -> HfApi:
    return HfApi(endpoint, token=token, library_name="recfusion", library_version=version("recfusion"))


@contextmanager
def _explained(name: str) -> Iterator[None]:
    """Turn an error of the hub into one sentence."""
    try:
        yield
    except (HFValidationError, httpx2.HTTPError, OSError) as error:
        status = getattr(getattr(error, "response", None), "status_code", None)
        reason = type(error).__name__ + (f", status {status}" if status else "")
        raise InputError(
            f"Cannot use '{name}' on the hub ({reason}): expected OWNER/NAME of a repository that your token may use "
            "(`hf auth login`), and a connection to the hub.",
            "repo_id",
        ) from None
