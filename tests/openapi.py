"""Compares answers of a service with its OpenAPI document."""

import json
import re
from typing import Any


def problems(value: Any, schema: Any, root: Any, place: str = "") -> list[str]:
    """Return where a value violates a JSON schema, for the keywords that the document uses."""
    if "$ref" in schema:
        name = schema["$ref"].removeprefix("#/components/schemas/")
        return problems(value, root["components"]["schemas"][name], root, place)
    if "anyOf" in schema:
        every = [problems(value, one, root, place) for one in schema["anyOf"]]
        return [] if not all(every) else [f"{place}: {value!r} is none of the alternatives"]
    kinds: dict[str, Any] = {
        "string": str,
        "boolean": bool,
        "null": type(None),
        "object": dict,
        "array": list,
        "integer": int,
        "number": (int, float),
    }
    kind = schema.get("type")
    if kind is not None and (
        not isinstance(value, kinds[kind]) or (isinstance(value, bool) and kind in ("integer", "number"))
    ):
        return [f"{place}: {value!r} is no {kind}"]
    if "enum" in schema and value not in schema["enum"]:
        return [f"{place}: {value!r} is none of {schema['enum']}"]
    if isinstance(value, list):
        items = schema.get("items", {})
        return [one for n, part in enumerate(value) for one in problems(part, items, root, f"{place}.{n}")]
    if not isinstance(value, dict):
        return []
    known, others = schema.get("properties", {}), schema.get("additionalProperties", True)
    found = [f"{place}: no {name}" for name in schema.get("required", ()) if name not in value]
    for name, part in value.items():
        if name in known:
            found += problems(part, known[name], root, f"{place}.{name}")
        elif others is False:
            found.append(f"{place}: {name} is not declared")
        elif isinstance(others, dict):
            found += problems(part, others, root, f"{place}.{name}")
    return found


def schema_of(document: Any, method: str, path: str, status: int) -> Any:
    answers = document["paths"][path.partition("?")[0]][method.lower()]["responses"]
    answer = answers.get(str(status)) or answers[f"{status // 100}XX"]
    return answer["content"].get("application/json", {}).get("schema")


def wrong_answer(document: Any, method: str, path: str, status: int, body: bytes) -> str | None:
    """Return how an answer differs from the document; None if it agrees, or if the document leaves it open."""
    route = re.sub(r"^/shops/[^/]+(?=/)", "", path.partition("?")[0])
    declared = document["paths"].get(route, {}).get(method.lower(), {}).get("responses")
    schema = document["components"]["schemas"]["Error"]
    if declared is not None:
        answer = declared.get(str(status)) or declared.get(f"{status // 100}XX")
        if answer is None:
            return f"{method} {route}: the status {status} is not declared"
        schema = answer["content"].get("application/json", {}).get("schema")
    elif status < 400:
        return None  # a page or a file
    if schema is None or method == "HEAD":
        return None
    try:
        found = problems(json.loads(body), schema, document)
    except ValueError:
        found = ["no JSON"]
    return f"{method} {route}, {status}: {found}" if found else None
