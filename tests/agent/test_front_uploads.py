"""Pictures and interrupts of ComfyUI's callers through the front: each caller's own, and nobody else's."""

from __future__ import annotations

import asyncio
from hashlib import sha256
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from gridops.model.snapshot import HostState
from gridops_agent import front_uploads
from gridops_agent.core.protection import Verdict
from gridops_agent.front_asked import Refused
from tests.agent.callers import BODY, MINE
from tests.agent.engine_doubles import ComfyUi
from tests.agent.site import Site, until
from tests.agent.test_front_prompts import THEIRS, Office, office

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) + b"\r\n--not the end\r\n\r\n"


async def sent(at: Office, content: bytes = PNG, headers: dict[str, str] = MINE, **fields: str) -> tuple[int, Any]:
    form = aiohttp.FormData()
    form.add_field("image", content, filename="../../evil.png", content_type="image/png")
    for name, value in fields.items():
        form.add_field(name, value)
    async with at.http.post("/comfyui/pictures/upload/image", data=form, headers=headers) as answer:
        return answer.status, await answer.json()


async def test_a_picture_lies_under_its_content_in_a_folder_of_its_caller_and_is_seen_by_nobody_else(
    site: Site, tmp_path: Path
) -> None:
    async with office(site, tmp_path) as at:
        status, mine = await sent(at, subfolder="gridops/of-another", overwrite="true")
        assert (status, mine["name"], mine["type"]) == (200, f"{sha256(PNG).hexdigest()}.png", "input")
        assert at.double.files[mine["name"], mine["subfolder"], "input"] == PNG, "every byte as it was"
        assert (await sent(at))[1] == mine, "once"
        _, theirs = await sent(at, headers=THEIRS)
        assert theirs["name"] == mine["name"]
        assert theirs["subfolder"] != mine["subfolder"]
        assert len(at.double.files) == 3
        where = f"/comfyui/pictures/view?filename={mine['name']}&subfolder={mine['subfolder']}&type=input"
        async with at.http.get(where) as answer:
            assert (answer.status, await answer.read()) == (200, PNG)
        async with at.http.get(where, headers=THEIRS) as answer:
            assert answer.status == 404
        assert at.front.in_flight == {}


@pytest.mark.parametrize(
    ("content", "fields", "code"),
    [
        (b"MZ\x90 a program", {}, "not_a_picture"),
        (b"", {}, "not_a_picture"),
        (b"<svg onload=alert(1)>", {}, "not_a_picture"),
        (PNG, {"type": "output"}, "invalid_form"),
        (PNG, {"type": "temp"}, "invalid_form"),
    ],
)
async def test_what_is_no_picture_for_a_prompt_goes_nowhere(
    site: Site, tmp_path: Path, content: bytes, fields: dict[str, str], code: str
) -> None:
    async with office(site, tmp_path) as at:
        status, said = await sent(at, content, **fields)
        assert (status, said["error"]["code"]) == (400, code)
        assert len(at.double.files) == 1


async def test_pictures_are_admitted_as_prompts_are(site: Site, tmp_path: Path) -> None:
    async with office(site, tmp_path) as at:
        assert (await sent(at, headers={"Authorization": "Bearer nobody"}))[0] == 401
        at.front.verdict = Verdict(state=HostState.PAUSED)
        assert (await sent(at))[1]["error"]["code"] == "host_paused"
        at.front.verdict = Verdict()
        at.double.mute = True
        assert (await sent(at))[1]["error"]["code"] == "engine_failed"
        assert len(at.double.files) == 1


@pytest.mark.parametrize(
    ("start", "kind"),
    [(b"\xff\xd8\xff", "jpg"), (b"GIF89a", "gif"), (b"BM", "bmp"), (b"RIFF1234WEBP", "webp"), (b"RIFF1234WAVE", None)],
)
def test_a_kind_is_known_by_its_first_bytes(start: bytes, kind: str | None) -> None:
    body = b'--b\r\nContent-Disposition: form-data; name="image"; filename="x"\r\n\r\n' + start + b"\r\n--b--\r\n"
    if kind is None:
        with pytest.raises(Refused):
            front_uploads.read(body, "multipart/form-data; boundary=b")
        return
    picture = front_uploads.read(body, "multipart/form-data; boundary=b")
    assert (picture.kind, picture.content) == (kind, start)
    with pytest.raises(Refused) as caught:
        front_uploads.read(body[:-5] + b"\r\n" + body, "multipart/form-data; boundary=b")
    assert caught.value.message == "the form names `image` more than once"


async def interrupt(at: Office, headers: dict[str, str] = MINE, **asked: Any) -> int:
    async with at.http.post("/comfyui/pictures/interrupt", json=asked or None, headers=headers) as answer:
        return answer.status


async def test_an_interrupt_ends_the_callers_own_prompt_and_no_other(site: Site, tmp_path: Path) -> None:
    async with office(site, tmp_path) as at:
        first, second = [(await at.send())[1]["prompt_id"] for _ in range(2)]
        assert await interrupt(at, THEIRS, prompt_id=first) == 200
        assert await interrupt(at, THEIRS) == 200
        assert await interrupt(at, prompt_id=second) == 200
        assert (at.double.running, at.double.pending) == ([first], [second]), "not another's, and not one that waits"
        assert await interrupt(at, prompt_id=first) == 200
        assert at.double.running == [second]
        await until(lambda: at.front.in_flight[BODY] == 1, "the one that was ended to be over")
        assert at.front.outcomes.counts()[BODY][1] == 0, "what a caller ends is nobody's failure"
        assert await interrupt(at) == 200
        await until(lambda: at.front.in_flight == {})


@pytest.mark.parametrize("version", ["0.3.59", "0.2.99", "unknown", ""])
async def test_a_service_that_might_end_anothers_prompt_is_not_asked(site: Site, tmp_path: Path, version: str) -> None:
    async with office(site, tmp_path) as at:
        at.double.version = version
        await at.send()
        assert await interrupt(at) == 501
        await asyncio.sleep(0)
        assert len(at.double.running) == 1
        at.double.version = "v1.0.0"
        assert await interrupt(at) == 200
    assert ComfyUi().version == "0.3.60"
