"""Audio comes as a form: its model is found, renamed for the engine, and nothing else of it is touched."""

from __future__ import annotations

from dataclasses import replace

import aiohttp
import pytest
from aiohttp import web

from gridops_agent import front_asked
from gridops_agent.front import Table
from tests.agent.callers import front_alone, route
from tests.agent.engine_doubles import listening
from tests.agent.site import KEYS, Site, free_ports

WAVE = bytes(range(256)) * 40 + b'\r\nContent-Disposition: form-data; name="model"\r\n\r\nlies\r\n'
"""Audio is any bytes: also some that look like a field."""


def form(**fields: str) -> aiohttp.FormData:
    made = aiohttp.FormData()
    made.add_field("file", WAVE, filename="a.wav", content_type="audio/wav")
    for name, value in fields.items():
        made.add_field(name, value)
    return made


async def test_a_transcription_reaches_its_engine_under_the_engines_own_name(site: Site) -> None:
    seen: list[dict[str, object]] = []

    async def transcribe(request: web.Request) -> web.Response:
        got = await request.post()
        file = got["file"]
        assert isinstance(file, web.FileField)
        seen.append({**got, "file": file.file.read(), "name": file.filename})
        return web.json_response({"text": "hello"})

    app = web.Application()
    app.router.add_post("/v1/audio/transcriptions", transcribe)
    port = free_ports(1)[0]
    known = replace(route(port), serves=("tiny", "tiny-alias"))
    async with listening(app, port), front_alone(site, Table((known,), KEYS)) as (front, http):
        for model in ("tiny", "tiny-alias"):
            async with http.post("/v1/audio/transcriptions", data=form(model=model, language="en")) as answer:
                assert (answer.status, await answer.json()) == (200, {"text": "hello"})
        assert front.in_flight == {}
    assert seen == [{"file": WAVE, "name": "a.wav", "model": "tiny", "language": "en"}] * 2


async def test_a_form_that_names_no_model_of_ours_goes_nowhere(site: Site) -> None:
    async with front_alone(site, Table((route(1),), KEYS)) as (_, http):
        twice = form(model="tiny")
        twice.add_field("model", "other")
        for data, code in ((form(), "model_missing"), (form(model="else"), "model_not_found"), (twice, "invalid_form")):
            async with http.post("/v1/audio/transcriptions", data=data) as answer:
                assert (await answer.json())["error"]["code"] == code


@pytest.mark.parametrize(
    ("body", "kind", "code"),
    [
        (b"", "multipart/form-data", "invalid_form"),
        (b"no parts", "multipart/form-data; boundary=x", "model_missing"),
        (b'--x\r\nContent-Disposition: form-data; name="model"\r\n\r\ntiny', "multipart/form-data; boundary=x",
         "model_missing"),
        (b'--x\r\nContent-Disposition: form-data; name="model"\r\n\r\n' + b"t" * 9_999 + b"\r\n--x--",
         "multipart/form-data; boundary=x", "model_missing"),
        (b"{", "application/json", "invalid_json"),
        (b"[1]", "", "model_missing"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_refused_in_words(body: bytes, kind: str, code: str) -> None:
    with pytest.raises(front_asked.Refused) as refused:
        front_asked.read(body, kind)
    assert (refused.value.status, refused.value.kind) == (400, code)


def test_a_part_that_is_cut_off_is_no_part() -> None:
    whole = b'--"b"\r\ncontent-disposition: FORM-DATA; name="model"\r\n\r\ntiny\r\n--"b"--\r\n'
    plain = whole.replace(b'"b"', b"b")
    found = front_asked.read(plain, 'Multipart/Form-Data; charset=utf-8; boundary="b"')
    assert found.model == "tiny"
    assert found.renamed("longer-name") == plain.replace(b"tiny", b"longer-name")
