"""Random experiment files, search spaces, trial files and `--set` values."""

import json
import math
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from fuzz_folders import shop
from hostile import NUMBERS, changed, mutated, value, word

from recfusion.cli.options import parse_settings
from recfusion.core.jsonl import json_line
from recfusion.data.split import Split, split
from recfusion.experiments.experiment_file import read_experiment
from recfusion.experiments.tuning.space_file import tuning_space
from recfusion.experiments.tuning.trials_file import Search, read_trials
from recfusion.models.registry import MODELS, find
from recfusion.models.settings import settings_of

EXPERIMENT: dict[str, Any] = {
    "name": "tiny",
    "title": "A title",
    "data": {"data": "data.csv", "user": "user", "separator": ";", "max_bad_share": 0.1},
    "preparation": {"min_rating": 4.0, "min_items_per_user": 5},
    "split": {"kind": "temporal", "valid": 0.1, "test": 0.1, "fold_in": 0.8},
    "run": {"seeds": [0, 1], "metrics": ["recall@10", "ndcg@100"]},
    "models": {
        "ease": {"l2": 100.0, "tune_trials": 0},
        "ours": {"model": "recfusion", "preset": "paper", "max_epochs": 3, "seeds": 1},
        "thinning": {"parts": {"thinning-linear": {}, "ials": {"factors": 8}}},
    },
}
SPACE: dict[str, Any] = {"space": {"l2": {"low": 1.0, "high": 100.0, "log": True}, "tune_trials": {"choices": [0, 3]}}}


def experiments(rng: np.random.Generator, folder: Path) -> None:
    """Read an experiment."""
    read_experiment(_toml_file(rng, folder, EXPERIMENT))


def spaces(rng: np.random.Generator, folder: Path) -> None:
    """Read a search space."""
    tuning_space(find("ease"), {}, _toml_file(rng, folder, SPACE))


def _toml_file(rng: np.random.Generator, folder: Path, document: dict[str, Any]) -> Path:
    if rng.integers(4):
        document = changed(rng, document)
    text = "\n".join(_lines(document, "")).encode("utf-8", "surrogatepass")
    path = folder / "case.toml"
    path.write_bytes(mutated(rng, text, 5) if rng.integers(3) == 0 else text)
    return path


def _lines(table: Any, prefix: str) -> list[str]:
    """Return a document as TOML; values that TOML cannot express give invalid TOML."""
    if not isinstance(table, dict):
        return [f"x = {_toml(table)}"]
    deeper = {key: inner for key, inner in table.items() if isinstance(inner, dict)}
    lines = [f"{_key(key)} = {_toml(inner)}" for key, inner in table.items() if key not in deeper]
    for key, inner in deeper.items():
        lines += [f"[{prefix}{_key(key)}]", *_lines(inner, f"{prefix}{_key(key)}.")]
    return lines


def _key(name: object) -> str:
    return json.dumps(str(name))


def _toml(given: Any) -> str:
    if isinstance(given, float) and not math.isfinite(given):
        return str(given)
    if isinstance(given, dict):
        return "{" + ", ".join(f"{_key(key)} = {_toml(inner)}" for key, inner in given.items()) + "}"
    if isinstance(given, list):
        return "[" + ", ".join(map(_toml, given)) + "]"
    return json.dumps(given)


@cache
def _trial() -> tuple[Search, dict[str, Any]]:
    search = Search(protocol="x", seed=0, model="ease", metric="ndcg@100", fixed={}, space={"l2": [1, 2]})
    trial = {"number": 0, "settings": {"l2": 3.0}, "score": 0.5, "seconds": 1.0}
    line = {"recfusion_trial": 2, "trial": trial, "finished": "2026-01-01T00:00:00Z", "search": search.model_dump()}
    return search, line


def trials(rng: np.random.Generator, folder: Path) -> None:
    """Read the trials of a search."""
    search, line = _trial()
    lines = [json.dumps(changed(rng, line)).encode() + b"\n" if rng.integers(2) else json_line(line) for _ in range(3)]
    text = b"".join(lines)
    (folder / "trials.jsonl").write_bytes(mutated(rng, text, 4) if rng.integers(3) == 0 else text)
    read_trials(folder / "trials.jsonl", search)


@cache
def _parts() -> Split:
    from recfusion.data.options import SplitPlan

    return split(shop(), SplitPlan(valid=0.2, test=0.2), seed=0)


# Models that fit twenty items immediately with any accepted setting.
_QUICK = (
    "popularity",
    "ease",
    "edlae",
    "rdlae",
    "ease-dan",
    "thinning-linear",
    "infinite-ae",
    "ials",
    "bspm",
)


def settings(rng: np.random.Generator, _: Path) -> None:
    """Make a model from `--set` values, and fit it if that is fast."""
    names: tuple[str, ...] = _QUICK if rng.integers(2) else tuple(MODELS)
    name = names[rng.integers(len(names))]
    known = [*settings_of(MODELS[name].load()), "preset", word(rng)]
    given: dict[str, Callable[[], object]] = {
        "number": lambda: NUMBERS[rng.integers(len(NUMBERS))],
        "text": lambda: word(rng),
        "json": lambda: json.dumps(value(rng)),
        "small": lambda: rng.integers(0, 9),
    }
    pairs = [
        f"{known[rng.integers(len(known))]}={given[list(given)[rng.integers(len(given))]]()}"
        for _ in range(int(rng.integers(1, 4)))
    ]
    texts = parse_settings(pairs)
    model = MODELS[name].make(texts)
    values = vars(model)
    if name not in _QUICK or values.get("tune_trials") or values.get("iterations", 0) > 50:
        return
    parts = _parts()
    model.fit(parts.train, None, rng=0)
    if model.score(parts.test.history).shape != parts.test.history.shape:
        raise AssertionError("the scores have another shape than the histories")


TARGETS = {"experiments": experiments, "spaces": spaces, "trials": trials, "settings": settings}
