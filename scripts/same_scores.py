"""Check that models give the same scores, bit by bit, as an earlier commit. Use it to verify refactors:

    python scripts/same_scores.py e10b194 --data ml-1m --models ease,thinning-linear --set tune_trials=6
    python scripts/same_scores.py e10b194 --signals graded,timed --split temporal   # models that read these signals
    python scripts/same_scores.py --save before.json                                # store this tree's digests ...
    python scripts/same_scores.py --against before.json                             # ... and compare with them later

Each model is fitted on split 0 with one thread, in both trees. `--set` is ignored by models without that setting.
Models that exist in only one of the trees are listed and are no failure.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parent.parent
MISSING = "missing"  # instead of the digest of a model that a tree does not have
SIGNALS = {"graded": "grades", "timed": "times"}
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "POLARS_MAX_THREADS")
FIT = """
import hashlib, json, sys
import recfusion as rf
request = json.loads(sys.argv[1])
used = frozenset(request["signals"])
data = rf.load(request["data"])
parts = rf.split(data, rf.SplitPlan(kind=request["split"]), used=tuple(request["signals"]))
for name in request["models"] or rf.MODELS:
    if name not in rf.MODELS:
        continue
    model = rf.make_model(name, {})
    reads = frozenset(getattr(model, "reads", ()))  # as `signals_read` does, which earlier commits do not have
    if used and not used & reads:
        continue
    known = vars(model)
    model = rf.make_model(name, {key: text for key, text in request["settings"].items() if key in known})
    training = {"extra": parts.extra.only(reads)} if used else {}
    test = {"extra": parts.test.extra.only(reads)} if used else {}
    try:
        scores = model.fit(parts.train, parts.valid, rng=0, **training).score(parts.test.history, **test)
    except rf.InputError:  # such as half stars for a model of whole ones
        print(json.dumps([name, "refused"]), flush=True)
        continue
    print(json.dumps([name, hashlib.blake2b(scores.tobytes(), digest_size=8).hexdigest()]), flush=True)
"""


def digests(tree: Path, request: Mapping[str, object]) -> dict[str, str]:
    """Return a digest of each model's scores according to the code of a tree."""
    run = subprocess.run(
        [sys.executable, "-c", FIT, json.dumps(request)],
        env={**os.environ, **dict.fromkeys(THREADS, "1"), "PYTHONPATH": str(tree / "src")},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return dict(json.loads(line) for line in run.stdout.splitlines())


def digests_of_commit(commit: str, request: Mapping[str, object]) -> dict[str, str]:
    """Return the digests according to the code of a commit, which is checked out into a temporary folder."""
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "--quiet", "--detach", str(tree), commit], check=True)
        try:
            return digests(tree, request)
        finally:
            subprocess.run([*git, "remove", "--force", str(tree)], check=True)


def stored_digests(path: Path, request: Mapping[str, object]) -> dict[str, str]:
    """Return the digests that `--save` wrote; those of another request are refused."""
    document = json.loads(path.read_text(encoding="utf-8"))
    differences = [key for key in request if key != "models" and document["request"].get(key) != request[key]]
    if differences:
        raise SystemExit(f"{path} was made with other values of: {', '.join(differences)}. Use the same options.")
    chosen = request["models"] or list(document["digests"])
    assert isinstance(chosen, list)
    return {name: text for name, text in document["digests"].items() if name in chosen}


def report(before: Mapping[str, str], now: Mapping[str, str]) -> int:
    """Print one line per model and return how many models of both trees differ."""
    different = 0
    for name in {**before, **now}:
        old, new = before.get(name, MISSING), now.get(name, MISSING)
        verdict = "same" if old == new else "only in one tree" if MISSING in (old, new) else "DIFFERENT"
        different += verdict == "DIFFERENT"
        print(f"{name:24} {old:18} {new:18} {verdict}")
    return different


def main() -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("commit", nargs="?", help="the commit to compare with")
    parser.add_argument("--against", type=Path, help="compare with a file of digests instead of a commit")
    parser.add_argument("--save", type=Path, help="write this tree's digests to a file")
    parser.add_argument("--data", default="ml-latest-small")
    parser.add_argument("--models", default="", help="names, separated by commas (default: all)")
    parser.add_argument("--set", action="append", default=[], metavar="SETTING=VALUE")
    parser.add_argument("--signals", default="", help="graded, timed or both: only models that read one of them")
    parser.add_argument("--split", default="strong", choices=("strong", "weak", "temporal", "global"))
    options = parser.parse_args()
    if options.commit and options.against:
        parser.error("give a commit or --against, not both")
    if not (options.commit or options.against or options.save):
        parser.error("give a commit, --against FILE or --save FILE")
    unknown = set(filter(None, options.signals.split(","))) - set(SIGNALS)
    if unknown:
        parser.error(f"expected signals among {', '.join(SIGNALS)}, got {', '.join(sorted(unknown))}")
    request: dict[str, object] = {
        "data": options.data,
        "models": [name for name in options.models.split(",") if name],
        "settings": dict(pair.split("=", 1) for pair in options.set),
        "signals": [SIGNALS[name] for name in options.signals.split(",") if name],
        "split": options.split,
    }
    before = digests_of_commit(options.commit, request) if options.commit else {}
    before |= stored_digests(options.against, request) if options.against else {}
    now = digests(ROOT, request)
    if options.save:
        options.save.write_text(json.dumps({"request": request, "digests": now}, indent=1) + "\n", encoding="utf-8")
    if not (options.commit or options.against):
        print(f"wrote the digests of {len(now)} models to {options.save}")
        return 0
    return 1 if report(before, now) else 0


if __name__ == "__main__":
    sys.exit(main())
