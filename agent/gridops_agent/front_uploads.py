"""Pictures that callers of ComfyUI send for their prompts: named by their content, each in its caller's own folder.

By the documented `POST /upload/image`. The name is the digest of the content, so that nothing that a queued prompt
names is ever replaced; the folder is made from the caller's key, which no other caller knows, so that nobody can name
another's picture. Called by `front_results`. Keeps nothing: the service does, until a person clears its input folder.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from hashlib import sha256

import aiohttp

from gridops.base import limits
from gridops.protocol.messages import GatewayKey
from gridops_agent import front_asked
from gridops_agent.front_asked import Refused

_FIELD = re.compile(
    rb'^content-disposition:[ \t]*form-data;[^\r\n]*?\bname="([a-z_]{1,32})"', re.IGNORECASE | re.MULTILINE
)
_KINDS = (
    (b"\x89PNG\r\n\x1a\n", "png"),
    (b"\xff\xd8\xff", "jpg"),
    (b"GIF87a", "gif"),
    (b"GIF89a", "gif"),
    (b"BM", "bmp"),
)
_PATIENCE = aiohttp.ClientTimeout(total=60)


@dataclass(frozen=True, slots=True)
class Picture:
    """What was sent."""

    content: bytes = field(repr=False)
    kind: str

    @property
    def name(self) -> str:
        return f"{sha256(self.content).hexdigest()}.{self.kind}"


def read(body: bytes, content_type: str) -> Picture:
    """The one picture of a form. Raises Refused."""
    whole = b"\r\n" + body
    found: dict[str, bytes] = {}
    for head, low, high in front_asked.parts(whole, content_type):
        name = _FIELD.search(head)
        if name is not None:
            key = name.group(1).decode()
            if key in found:
                raise Refused(400, "invalid_form", f"the form names `{key}` more than once")
            found[key] = whole[low:high]
    if found.get("type", b"input") != b"input":
        raise Refused(400, "invalid_form", "only `type=input` is taken: what prompts make is the service's own")
    content = found.get("image", b"")
    kind = _kind_of(content)
    if kind is None:
        raise Refused(400, "not_a_picture", "the form holds no `image` that is PNG, JPEG, WebP, GIF or BMP")
    return Picture(content, kind)


def _kind_of(content: bytes) -> str | None:
    """By its first bytes; a name may say anything."""
    if content[:4] == b"RIFF" and content[8:12] == b"WEBP":
        return "webp"
    return next((kind for mark, kind in _KINDS if content.startswith(mark)), None)


def folder_of(key: GatewayKey) -> str:
    """A caller's own folder below the service's input folder."""
    return f"gridops/{sha256(f'pictures {key.sha256}'.encode()).hexdigest()[:32]}"


async def send(http: aiohttp.ClientSession, url: str, folder: str, picture: Picture) -> tuple[str, str, str]:
    """To the service; what it is called there: name, subfolder and kind of folder. Raises Refused."""
    form = aiohttp.FormData()
    form.add_field("image", picture.content, filename=picture.name, content_type=f"image/{picture.kind}")
    form.add_field("subfolder", folder)
    form.add_field("type", "input")
    try:
        async with http.post(f"{url}/upload/image", data=form, timeout=_PATIENCE, allow_redirects=False) as answer:
            said = await answer.content.read(limits.ENGINE_ANSWER_BYTES)
            status = answer.status
    except (aiohttp.ClientError, OSError, TimeoutError) as error:
        raise Refused(502, "engine_unreachable", "the service does not answer", {"Retry-After": "2"}) from error
    if status != 200:
        raise Refused(502, "engine_failed", f"the service does not take the picture (HTTP {status})")
    if front_asked.parsed(said).get("name") != picture.name:
        raise Refused(502, "engine_failed", "the service gave the picture another name")
    return picture.name, folder, "input"
