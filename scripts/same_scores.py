"""Whether models give the same scores, bit by bit, as in an earlier commit:

    python scripts/same_scores.py e10b194 --data ml-1m --models ease,thinning-linear --set tune_trials=6

Each model is fitted on split 0 by one thread, in both trees; settings that a model does not have are not set.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
FIT = """
import hashlib, json, sys
import recfusion as rf
asked = json.loads(sys.argv[1])
data = rf.load(asked["data"])
parts = rf.split(data)
for name in asked["models"] or rf.MODELS:
    known = set(vars(rf.make_model(name, {}))) if name in rf.MODELS else None
    if known is None:
        print(json.dumps([name, "not there"]), flush=True)
        continue
    model = rf.make_model(name, {key: text for key, text in asked["settings"].items() if key in known})
    scores = model.fit(parts.train, parts.valid, rng=0).score(parts.test.history)
    print(json.dumps([name, hashlib.blake2b(scores.tobytes(), digest_size=8).hexdigest()]), flush=True)
"""


def digests(tree: Path, asked: dict[str, object]) -> dict[str, str]:
    """Return a digest of each model's scores as a tree's code gives them."""
    one = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "POLARS_MAX_THREADS"), "1")
    run = subprocess.run(
        [sys.executable, "-c", FIT, json.dumps(asked)],
        env={**os.environ, **one, "PYTHONPATH": str(tree / "src")},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return dict(json.loads(line) for line in run.stdout.splitlines())


def main() -> None:
    """Compare this tree with a commit."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("commit")
    parser.add_argument("--data", default="ml-latest-small")
    parser.add_argument("--models", default="", help="names, separated by commas; all without")
    parser.add_argument("--set", action="append", default=[], metavar="SETTING=VALUE")
    arguments = parser.parse_args()
    asked = {
        "data": arguments.data,
        "models": [name for name in arguments.models.split(",") if name],
        "settings": dict(pair.split("=", 1) for pair in arguments.set),
    }
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "--quiet", "--detach", str(tree), arguments.commit], check=True)
        try:
            before = digests(tree, asked)
        finally:
            subprocess.run([*git, "remove", "--force", str(tree)], check=True)
    now = digests(ROOT, asked)
    different = 0
    for name in {**before, **now}:
        was, is_ = before.get(name, "not there"), now.get(name, "not there")
        different += was != is_ and "not there" not in (was, is_)
        print(f"{name:18} {was:18} {is_:18} {'same' if was == is_ else 'DIFFERENT'}")
    sys.exit(1 if different else 0)


if __name__ == "__main__":
    main()
