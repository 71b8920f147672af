"""`recfusion diff`: the differences of two stores of results."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from recfusion.cli.options import JsonOption
from recfusion.cli.output import out, print_json
from recfusion.cli.result_output import interval_text
from recfusion.core.errors import InputError
from recfusion.experiments.result import is_store, read_results
from recfusion.experiments.result_diff import Changed, Outcome, diff_results


def diff(
    before: Annotated[Path, Argument(help="Store of results.")],
    after: Annotated[Path, Argument(help="Another store of results, or the same one with --labels.")],
    labels: Annotated[str | None, Option(help="Two labels, A,B: compare A of the first with B of the second.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Show what differs between two results: data and protocol, code, settings, and the outcome with intervals."""
    for path in (before, after):
        if not path.is_file() or not is_store(path):
            raise InputError(f"Expected a store of results at '{path}', got none: name another file.")
    pair = None if labels is None else [part.strip() for part in labels.split(",")]
    if pair is not None and len(pair) != 2:
        raise InputError(f"Expected two labels with a comma between them, got '{labels}'.", "labels")
    found = diff_results(read_results(before), read_results(after), None if pair is None else (pair[0], pair[1]))
    if as_json:
        print_json({"differences": [asdict(one) for one in found]})
        return
    console = out()
    for one in found:
        name = one.labels[0] if one.labels[0] == one.labels[1] else " and ".join(one.labels)
        console.print(f"{name}, splits {', '.join(map(str, one.seeds)) or 'none that both have'}", markup=False)
        for title in ("protocol", "code", "settings"):
            changes: tuple[Changed, ...] = getattr(one, title)
            lines = [f"    {each.what}: {_text(each.before)} -> {_text(each.after)}" for each in changes]
            console.print("\n".join([f"  {title}: {'the same' if not lines else ''}".rstrip(), *lines]), markup=False)
        for outcome in one.outcome:
            console.print(f"  {_sentence(outcome)}", markup=False)


def _text(value: Any) -> str:
    return "–" if value is None or value == "" else str(value)


def _sentence(outcome: Outcome) -> str:
    found = f"{outcome.metric}: {100 * outcome.before:.2f} -> {100 * outcome.after:.2f}"
    if outcome.paired is None:
        return f"{found} (not the same users: no test)"
    return f"{found}, a difference of {100 * outcome.paired.difference:+.2f}{interval_text(outcome.paired.ci95, '+')}"
