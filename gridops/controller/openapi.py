"""The OpenAPI 3.1 document, made from the table of endpoints and the records themselves, so it cannot fall behind."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from gridops import __version__
from gridops.base.record import adapter
from gridops.controller.endpoints import NUMBER_MOST, Endpoint

_REF = "#/components/schemas/{model}"
_ERROR: dict[str, Any] = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["code", "message", "evidence", "hints", "exit_code"],
            "properties": {
                "code": {"type": "string"},
                "message": {"type": "string"},
                "subject": {"type": "string"},
                "evidence": {"type": "array", "items": {"type": "string"}},
                "hints": {"type": "array", "items": {"type": "string"}},
                "exit_code": {"type": "integer"},
            },
        }
    },
}


def document(routes: Sequence[Endpoint]) -> dict[str, Any]:
    """The whole document."""
    schemas: dict[str, Any] = {"Error": _ERROR}
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, schemas)
    paths["/openapi.json"] = {
        "get": {"summary": "This document.", "responses": {"200": {"description": "OpenAPI 3.1."}}}
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": "gridops controller", "version": __version__, "license": {"name": "Apache-2.0"}},
        "paths": paths,
        "components": {"schemas": dict(sorted(schemas.items()))},
    }


def _operation(route: Endpoint, schemas: dict[str, Any]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "summary": route.summary,
        "operationId": re.sub(r"[^a-z0-9]+", "_", f"{route.method} {route.path}".lower()).strip("_"),
        "responses": {
            "200": {"description": "The answer.", "content": _content(route.answer, schemas)},
            "default": _no(),
        },
    }
    if route.waiting is not None:
        told = {"description": "Not yet, with the reasons.", "content": _content(route.waiting, schemas)}
        operation["responses"]["503"] = told
    parameters = [_parameter(name, "path") for name in re.findall(r"\{(\w+)\}", route.path)]
    parameters += [_parameter(name, "query") for name in route.query]
    if parameters:
        operation["parameters"] = parameters
    if route.request is not None:
        operation["requestBody"] = {"required": True, "content": _content(route.request, schemas)}
    return operation


def _content(kind: type[Any] | None, schemas: dict[str, Any]) -> dict[str, Any]:
    if kind is None:
        return {"text/plain": {"schema": {"type": "string"}}}
    if kind is dict:
        return {"application/json": {"schema": {"type": "object"}}}
    made = adapter(kind).json_schema(ref_template=_REF, mode="serialization")
    schemas.update(made.pop("$defs", {}))
    schemas[kind.__name__] = made
    return {"application/json": {"schema": {"$ref": _REF.format(model=kind.__name__)}}}


def _parameter(name: str, where: str) -> dict[str, Any]:
    number = {"type": "integer", "minimum": 0, "maximum": NUMBER_MOST}
    schema = number if where == "query" else {"type": "string", "minLength": 1}
    return {"name": name, "in": where, "required": where == "path", "schema": schema}


def _no() -> dict[str, Any]:
    content = {"application/json": {"schema": {"$ref": _REF.format(model="Error")}}}
    return {"description": "Refused, with a stable code and what to do.", "content": content}
