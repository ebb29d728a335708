"""The reference page of the controller's endpoints, from the OpenAPI document that it serves."""

from __future__ import annotations

from typing import Any

from gridops.controller.endpoints import ROUTES
from gridops.controller.openapi import document

HEAD = """\
The controller listens on HTTPS (TLS 1.3) at the address in `policies/fleet.yaml`; its certificate is pinned by the
trust root. Reading needs no key. What changes something takes a signed envelope, and nothing but the signature in it
gives authority. The same as OpenAPI 3.1: `GET /openapi.json`.

A refusal answers 4xx with `{"error": {"code", "message", "evidence", "hints", "exit_code"}}`; the code is one of
[these](codes.md), and `exit_code` is what `gridops` exits with."""


def http_page() -> str:
    """docs/reference/http.md."""
    api = document(ROUTES)
    parts = ["# HTTP", HEAD]
    rows = []
    for path, methods in api["paths"].items():
        for method, operation in methods.items():
            rows.append(f"| `{method.upper()} {path}` | {operation['summary']} | {_answer(operation)} |")
    parts.append("\n".join(["| request | what it does | answer |", "| --- | --- | --- |", *rows]))
    parts.append("## Documents")
    parts += [_model(name, schema) for name, schema in api["components"]["schemas"].items()]
    return "\n\n".join(parts) + "\n"


def _answer(operation: dict[str, Any]) -> str:
    content = operation["responses"]["200"].get("content", {})
    for kind, body in content.items():
        reference = body["schema"].get("$ref", "")
        name = reference.rpartition("/")[2]
        return f"[{name}](#{name.lower()})" if name else f"`{kind}`"
    return ""


def _model(name: str, schema: dict[str, Any]) -> str:
    must = set(schema.get("required", ()))
    if "enum" in schema:
        return f"### {name}\n\nOne of: " + ", ".join(f"`{item}`" for item in schema["enum"])
    rows = [
        f"| {f'**`{field}`**' if field in must else f'`{field}`'} | {_type(below)} |"
        for field, below in schema.get("properties", {}).items()
    ]
    told = schema.get("description", "").split("\n\n")[0].replace("\n", " ")
    head = f"### {name}\n\n{told}\n\n" if told else f"### {name}\n\n"
    return head + "\n".join(["| field | value |", "| --- | --- |", *rows])


def _type(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(_type(choice) for choice in schema["anyOf"])
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}))}"
    if "const" in schema:
        return f"`{schema['const']}`"
    return str(schema.get("type", "any"))
