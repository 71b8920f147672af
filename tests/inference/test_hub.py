"""Model folders on a hub: the real client against a small stand-in of the hub's API."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from hub import TOKEN, Hub, serving_hub
from recfusion.core.errors import InputError
from recfusion.core.extras import is_installed
from recfusion.data.interactions import Interactions
from recfusion.experiments.train import train
from recfusion.inference.bundle import Bundle
from recfusion.inference.bundle_files import FILES
from recfusion.inference.recommending import recommend

pytestmark = pytest.mark.skipif(not is_installed("huggingface_hub"), reason="the extra hub is not installed")


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    with serving_hub() as found:
        yield found


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
