"""Test a service with random requests: `python scripts/fuzz_service.py --cases 10000`.

The requests are generated from the service's OpenAPI document, valid and invalid ones. Every invalid request must be
refused, every 4xx must be JSON with the name of a field, and the only allowed 5xx is the 503 of a full queue. This
needs schemathesis (the extra `dev`).
"""

import argparse
import collections
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from schemathesis.generation import GenerationMode

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
import recfusion as rf
from running import Client, running, settings_for

KINDS = ("Tea", "Coffee|Gift", "Cups", "Books|Gift")


def small_shop(folder: Path, l2: float = 10.0) -> Path:
    """Train a model of forty items in four categories."""
    rng = np.random.default_rng(0)
    rows = [(f"u{n}", f"i{item}") for n in range(80) for item in rng.permutation(10)[:7] + 10 * (n % 4)]
    items = pl.DataFrame(
        {
            "item": [f"i{n}" for n in range(40)],
            "title": [f"Thing {n}" for n in range(40)],
            "kind": [KINDS[n // 10] for n in range(40)],
            "price": [n / 2 for n in range(40)],
            "stock": list(range(40)),
        }
    )
    data = rf.load(pl.DataFrame(rows, schema=["user", "item"], orient="row"), items=items, name="shop")
    return rf.train(rf.EASE(l2=l2), data, all_users=True).save(folder / "shop")


def fault_of(reply: Any) -> str | None:
    """Return the problem of an answer (empty if there is none)."""
    if reply.status_code >= 500 and reply.status_code != 503:
        return f"status {reply.status_code}"
    if 400 <= reply.status_code < 500:
        try:
            answer = json.loads(reply.content)
        except ValueError:
            return f"status {reply.status_code} without JSON"
        if not isinstance(answer.get("field"), str) or not answer["field"] or not isinstance(answer.get("error"), str):
            return f"status {reply.status_code} without a field"
    return None


def fuzz(client: Client, cases: int, first: int = 0) -> tuple[collections.Counter[str], list[str]]:
    """Send `cases` requests to all operations; return the answers by status and the problems."""
    base = f"http://127.0.0.1:{client.port}"
    document = client.get("/openapi.json").json
    answers: collections.Counter[str] = collections.Counter()
    wrong: list[str] = []
    modes = (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)
    schema = schemathesis.openapi.from_dict(document)
    operations: list[Any] = [found.ok() for found in schema.get_all_operations()]  # type: ignore[union-attr]
    each = -(-cases // (len(operations) * len(modes)))
    for operation in operations:
        for mode in modes:

            @seed(first)
            @settings(
                max_examples=each,
                deadline=None,
                database=None,
                phases=[Phase.generate],
                suppress_health_check=list(HealthCheck),
            )
            @given(case=operation.as_strategy(generation_mode=mode))
            def send(case: Any) -> None:
                reply = case.call(base_url=base)
                answers[f"{reply.status_code}"] += 1
                if fault := fault_of(reply):
                    wrong.append(f"{fault}: {case.as_curl_command()[:400]} -> {reply.text[:200]}")

            try:
                send()
            except Exception as error:  # an operation without parameters has no invalid requests
                if "negative" not in str(error).lower() and "unsatisfiable" not in type(error).__name__.lower():
                    raise
    return answers, wrong


def main() -> None:
    """Send the requests and print a summary."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="print the counts as JSON")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, running(settings_for(small_shop(Path(folder)))) as client:
        answers, wrong = fuzz(client, arguments.cases, arguments.seed)
    counts = dict(sorted(answers.items()))
    if arguments.json:
        print(json.dumps({"cases": sum(counts.values()), "faults": len(wrong), "statuses": counts}))
    else:
        print(f"{sum(counts.values()):,} requests: {counts}; wrong answers: {len(wrong)}")
    for line in wrong[:20]:
        print(line, file=sys.stderr)
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
