"""What a request at the front asks for: the model it names, in JSON or in a form, and how it refuses in OpenAI's words.

Audio comes as a form (`multipart/form-data`, by OpenAI's reference of /v1/audio/transcriptions), everything else as
JSON. Called by the front. Reads the one field that names the model and touches no other byte; never logs a body.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from aiohttp import web

_NAME = re.compile(rb'^content-disposition:[ \t]*form-data;[^\r\n]*?\bname="model"', re.IGNORECASE | re.MULTILINE)
_FORM = "multipart/form-data"
_BOUNDARY = re.compile(r'boundary=(?:"([^"\r\n]{1,70})"|([^;,\s"]{1,70}))', re.IGNORECASE)
MODEL_BYTES = 512


@dataclass(eq=False)
class Refused(Exception):
    """An answer in the form OpenAI clients understand."""

    status: int
    kind: str
    message: str
    headers: Mapping[str, str] = field(default_factory=dict)

    def answer(self) -> web.Response:
        error = {"message": self.message, "type": self.kind, "code": self.kind}
        return web.json_response({"error": error}, status=self.status, headers=self.headers)


@web.middleware
async def refusals(request: web.Request, handler: Any) -> web.StreamResponse:
    """Whatever is refused is said in the one form that clients know."""
    try:
        answer: web.StreamResponse = await handler(request)
        return answer
    except Refused as refused:
        return refused.answer()
    except web.HTTPException as error:
        return Refused(error.status, "not_found" if error.status == 404 else "bad_request", error.reason).answer()


@dataclass(frozen=True, slots=True)
class Asked:
    """A request's model, and the same request under another name of it."""

    model: str
    renamed: Callable[[str], bytes]
    """With the one name that every engine knows its model by: some refuse any other."""


def read(body: bytes, content_type: str) -> Asked:
    """What a body asks for. Raises Refused."""
    return _form(body, content_type) if content_type.lower().startswith(_FORM) else _json(body)


def parsed(body: bytes) -> dict[str, Any]:
    """A body that must be a JSON object. Raises Refused."""
    try:
        asked = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise Refused(400, "invalid_json", "the request is not JSON") from error
    return asked if isinstance(asked, dict) else {}


def _json(body: bytes) -> Asked:
    asked = parsed(body)
    return Asked(_named(asked.get("model")), lambda alias: json.dumps({**asked, "model": alias}).encode())


def _form(body: bytes, content_type: str) -> Asked:
    """The one field `model` of a form. Two of them might be read one way here and another way by the engine."""
    whole = b"\r\n" + body
    values = [(low, high) for head, low, high in parts(whole, content_type) if _NAME.search(head) is not None]
    if len(values) > 1:
        raise Refused(400, "invalid_form", "the form names `model` more than once")
    low, high = values[0] if values else (0, 0)
    text = whole[low:high].decode("utf-8", "replace") if high - low <= MODEL_BYTES else ""
    return Asked(_named(text), lambda alias: (whole[:low] + alias.encode() + whole[high:])[2:])


def parts(whole: bytes, content_type: str) -> list[tuple[bytes, int, int]]:
    """The parts of a form: the head of each, with bare line ends, and where its value begins and ends.

    `whole` is the body after one line end. Raises Refused.
    """
    found = _BOUNDARY.search(content_type)
    if found is None:
        raise Refused(400, "invalid_form", "the form has no boundary")
    mark = b"\r\n--" + (found.group(1) or found.group(2)).encode()
    starts, at = [], 0
    while (at := whole.find(mark, at)) >= 0:
        starts.append(at)
        at += len(mark)
    made: list[tuple[bytes, int, int]] = []
    for start, end in pairwise(starts):
        head = whole.find(b"\r\n\r\n", start, end)
        if head >= 0:
            made.append((whole[start + len(mark) : head].replace(b"\r\n", b"\n"), head + 4, end))
    return made


def _named(model: Any) -> str:
    if not isinstance(model, str) or not model:
        raise Refused(400, "model_missing", "the request names no `model`")
    return model
