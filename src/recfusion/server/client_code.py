"""Clients of the service, generated from its OpenAPI document: a typed Python module and an ES module."""

import json
import keyword
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

_PLAIN = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}
_PYTHON = '''"""A client of a recfusion service, written from its OpenAPI document; it needs only Python 3.11."""

from __future__ import annotations

import json
from typing import Any, Literal, NotRequired, TypedDict
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import Request, urlopen


class ServiceError(Exception):
    """An error of the service: `status`, and the `field` of the request that it is about."""

    def __init__(self, status: int, error: str, field: str) -> None:
        super().__init__(error)
        self.status, self.field = status, field

'''
_PYTHON_CLASS = '''
class Client:
    """Sends requests to a service, with a key if it needs one."""

    def __init__(self, address: str = "http://127.0.0.1:8000", key: str | None = None, seconds: float = 10) -> None:
        self._address, self._key, self._seconds = address.rstrip("/"), key, seconds

    def _ask(self, method: str, path: str, sent: dict[str, Any]) -> Any:
        given = {name: value for name, value in sent.items() if value is not None}
        headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {self._key}"} if self._key else {})
        query = f"?{urlencode(given, doseq=True)}" if given and method in ("GET", "DELETE") else ""
        body = json.dumps(given).encode() if method in ("POST", "PUT") else None
        request = Request(f"{self._address}{path}{query}", body, headers, method=method)
        try:
            with urlopen(request, timeout=self._seconds) as answer:
                return json.load(answer)
        except HTTPError as error:
            found = json.load(error)
            raise ServiceError(error.code, found["error"], found["field"]) from None
'''
_JAVASCRIPT = """// A client of a recfusion service, written from its OpenAPI document.
export class ServiceError extends Error {
\tconstructor(status, { error, field }) {
\t\tsuper(error);
\t\tObject.assign(this, { status, field });
\t}
}

export class Client {
\tconstructor(address = "http://127.0.0.1:8000", key = undefined) {
\t\tObject.assign(this, { address: address.replace(/\\/$/, ""), key });
\t}
\tasync ask(method, path, sent = {}) {
\t\tconst headers = { "Content-Type": "application/json", ...(this.key && { Authorization: `Bearer ${this.key}` }) };
\t\tconst reads = method === "GET" || method === "DELETE";
\t\tconst pairs = Object.entries(sent).flatMap(([name, value]) => [value].flat().map((one) => [name, one]));
\t\tconst query = reads && pairs.length ? `?${new URLSearchParams(pairs)}` : "";
\t\tconst body = reads ? undefined : JSON.stringify(sent);
\t\tconst answer = await fetch(this.address + path + query, { method, headers, body });
\t\tconst data = await answer.json();
\t\tif (!answer.ok) throw new ServiceError(answer.status, data);
\t\treturn data;
\t}
"""


@dataclass(frozen=True)
class Operation:
    """A route of the document: its name in a client, the fields that it takes and the schema of its answer."""

    name: str
    method: str
    path: str
    summary: str
    fields: Mapping[str, Mapping[str, Any]]
    required: frozenset[str]
    answer: Mapping[str, Any]


def operations(document: Mapping[str, Any]) -> Iterator[Operation]:
    """Yield the routes that answer with JSON."""
    schemas = document["components"]["schemas"]
    for path, methods in document["paths"].items():
        for method, one in methods.items():
            good = next(answer for status, answer in one["responses"].items() if status.startswith("2"))
            answer = good.get("content", {}).get("application/json", {}).get("schema")
            if answer is None:
                continue
            name = re.sub(r"\W+", "_", path.strip("/"))
            if method not in ("get", "post") or (method == "post" and "get" in methods):
                name = f"{method}_{name}"
            content = one.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
            body = schemas.get(str(content.get("$ref", "")).rpartition("/")[2], {})
            query = {each["name"]: each for each in one.get("parameters", ())}
            fields = {name: each["schema"] for name, each in query.items()} | body.get("properties", {})
            required = {name for name, each in query.items() if each.get("required")} | set(body.get("required", ()))
            yield Operation(name, method.upper(), path, one["summary"], fields, frozenset(required), answer)


def named_schemas(part: Any, document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schemas that a part of the document names, and those that these name."""
    found: dict[str, Any] = {}
    pending = [part]
    while pending:
        for name in re.findall(r'"#/components/schemas/([^"]+)"', json.dumps(pending.pop())):
            if name not in found:
                found[name] = document["components"]["schemas"][name]
                pending.append(found[name])
    return found


def python_client(document: Mapping[str, Any]) -> str:
    """Return the source of a Python module with a method for each route and a type for each record."""
    every = list(operations(document))
    schemas = named_schemas([[one.fields, one.answer] for one in every], document)
    records = [_record(name, schemas[name]) for name in sorted(schemas)]
    methods = []
    for one in every:
        order = sorted(one.fields, key=lambda name: name not in one.required)
        taken = "".join(f", {_argument(name, one)}" for name in order)
        sent = ", ".join(f'"{name}": {_safe(name)}' for name in order)
        methods.append(
            f"    def {one.name}(self{', *' if order else ''}{taken}) -> {_kind(one.answer)}:\n"
            f'        """{one.summary}."""\n'
            f'        return self._ask("{one.method}", "{one.path}", {{{sent}}})  # type: ignore[no-any-return]\n'
        )
    return _PYTHON + "\n".join(records) + "\n" + _PYTHON_CLASS + "\n" + "\n".join(methods)


def javascript_client(document: Mapping[str, Any]) -> str:
    """Return the source of an ES module with a method for each route."""
    methods = ""
    for one in operations(document):
        name = re.sub(r"_(\w)", lambda match: match[1].upper(), one.name)
        methods += f"\t/** {one.summary}. Takes {', '.join(one.fields) or 'nothing'}. */\n"
        methods += f'\t{name}(sent) {{ return this.ask("{one.method}", "{one.path}", sent); }}\n'
    return f"{_JAVASCRIPT}{methods}}}\n"


def _safe(name: str) -> str:
    return f"{name}_" if keyword.iskeyword(name) else name


def _argument(name: str, one: Operation) -> str:
    kind = _kind(one.fields[name])
    return (
        f"{_safe(name)}: {kind}"
        if name in one.required
        else f"{_safe(name)}: {kind.removesuffix(' | None')} | None = None"
    )


def _record(name: str, schema: Mapping[str, Any]) -> str:
    """Return a TypedDict; a schema that is no record becomes an alias."""
    if "properties" not in schema:
        return f"\n{name} = {_kind(schema)!r}\n"
    required = schema.get("required", ())
    fields = {key: _kind(value) for key, value in schema["properties"].items()}
    rows = [f"    {key}: {kind if key in required else f'NotRequired[{kind}]'}\n" for key, kind in fields.items()]
    return f"\nclass {name}(TypedDict):\n{''.join(rows) or '    pass'}"


def _kind(schema: Any) -> str:
    """Return the Python type of a JSON schema."""
    if not isinstance(schema, Mapping):
        return "Any"
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "const" in schema or "enum" in schema:
        return f"Literal[{', '.join(map(repr, schema.get('enum', [schema.get('const')])))}]"
    if "anyOf" in schema:
        return " | ".join(dict.fromkeys(map(_kind, schema["anyOf"])))
    if schema.get("type") == "array":
        return f"list[{_kind(schema.get('items'))}]"
    if schema.get("type") == "object":
        return f"dict[str, {_kind(schema.get('additionalProperties'))}]"
    return _PLAIN.get(str(schema.get("type")), "Any")
