"""A mirror on the LAN: verified files by digest, for those with the key, and a peer that lies costs only time."""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event

import aiohttp
import pytest

from gridops.base import limits
from gridops.base.errors import Refusal
from gridops.base.ids import Digest
from gridops.model.profile import Artifact
from gridops.trust.secret import Secret
from gridops.trust.tls import fingerprint, self_signed
from gridops_agent.artifacts.mirror import Mirror
from gridops_agent.artifacts.settings import Peer
from gridops_agent.config import read_config, write_config
from gridops_agent.front import tls_context
from tests.agent.origin import Origin, Trick, serving
from tests.agent.shelf import Desk, artifact, file_of
from tests.agent.site import Site, wall_ms

BODY = b"verified weights" * 20_000
KEY = "the key of this network"


@dataclass
class Running:
    """A mirror in a thread and a loop of its own."""

    port: int
    cert: str
    mirror: Mirror

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    @property
    def peer(self) -> Peer:
        return Peer(self.url, self.cert)


@contextmanager
def mirroring(desk: Desk, folder: Path) -> Iterator[Running]:
    folder.mkdir(exist_ok=True)
    made = self_signed(("127.0.0.1",), wall_ms() - 86_400_000, 3_650)
    cert, key = folder / "front.pem", folder / "front.key"
    cert.write_text(made.cert_pem)
    key.write_bytes(made.key_pem)
    shelf = desk.shelf()
    mirror = Mirror(shelf.finder, Secret(KEY), shelf.pace)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    port = asyncio.run_coroutine_threadsafe(mirror.open("127.0.0.1:0", tls_context(cert, key)), loop).result(20)
    try:
        yield Running(port, fingerprint(made.cert_pem), mirror)
    finally:
        asyncio.run_coroutine_threadsafe(mirror.close(), loop).result(20)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def holder(tmp_path: Path) -> Desk:
    """A host that holds the file, proved."""
    desk = Desk(tmp_path / "holder")
    (desk.folder / "m.gguf").write_bytes(BODY)
    desk.shelf().obtain(artifact(file_of("m.gguf", BODY)), Event())
    return desk


def asker(tmp_path: Path, *peers: Peer) -> Desk:
    desk = Desk(tmp_path / "asker").with_(peers=peers, peer_credential="secret:lan")
    desk.secret("lan", KEY)
    return desk


@pytest.fixture
def origin() -> Iterator[Origin]:
    with serving(**{"m.gguf": BODY}) as made:
        yield made


def wanted(origin: Origin) -> Artifact:
    return artifact(file_of("m.gguf", BODY), source=f"{origin.url}/m.gguf")


def test_a_peer_is_asked_before_the_origin(tmp_path: Path, origin: Origin) -> None:
    with mirroring(holder(tmp_path), tmp_path / "tls") as running:
        found = asker(tmp_path, running.peer).fetch(wanted(origin))
        assert running.mirror.served == len(BODY)
    assert found.read_bytes() == BODY
    assert origin.asked == []


def test_a_part_is_asked_for_from_where_it_ends(tmp_path: Path, origin: Origin) -> None:
    desk = Desk(tmp_path / "asker")
    origin.tricks = [Trick(cut_after=100_000), *(Trick(status=503) for _ in range(4))]
    with pytest.raises(Refusal):
        desk.fetch(wanted(origin))
    with mirroring(holder(tmp_path), tmp_path / "tls") as running:
        desk.with_(peers=(running.peer,), peer_credential="secret:lan").secret("lan", KEY)
        assert desk.fetch(wanted(origin)).read_bytes() == BODY
        assert running.mirror.served == len(BODY) - 100_000


def test_a_peer_without_the_file_is_passed_over(tmp_path: Path, origin: Origin) -> None:
    with mirroring(Desk(tmp_path / "holder"), tmp_path / "tls") as running:
        assert asker(tmp_path, running.peer).fetch(wanted(origin)).read_bytes() == BODY
    assert len(origin.asked) == 1


def test_a_peer_that_is_off_or_is_somebody_else_is_passed_over(tmp_path: Path, origin: Origin) -> None:
    with mirroring(holder(tmp_path), tmp_path / "tls") as running:
        stranger, off = Peer(running.url, "0" * 64), Peer("https://127.0.0.1:1", "0" * 64)
        assert asker(tmp_path, off, stranger).fetch(wanted(origin)).read_bytes() == BODY
        assert running.mirror.served == 0, "the key was not even shown to it"
    assert len(origin.asked) == 1


def test_a_lying_peer_costs_only_time(tmp_path: Path, origin: Origin) -> None:
    liar = holder(tmp_path)
    path = liar.folder / "m.gguf"
    finder = liar.shelf().finder
    lie = tmp_path / "lie"
    lie.write_bytes(b"\0" * len(BODY))
    with mirroring(liar, tmp_path / "tls") as running:
        running.mirror._finder = finder
        finder.path_of = lambda digest: lie if digest == file_of("m.gguf", BODY).sha256 else path  # type: ignore[method-assign]
        assert asker(tmp_path, running.peer).fetch(wanted(origin)).read_bytes() == BODY
        assert running.mirror.served == len(BODY), "it sent all of its lie"
    assert origin.ranges() == [""]


def test_a_peer_that_lies_and_breaks_off_poisons_nothing(tmp_path: Path, origin: Origin) -> None:
    """The origin goes on from its bytes; the mixture does not verify and is begun anew from the origin alone."""
    liar = holder(tmp_path)
    lie = tmp_path / "lie"
    lie.write_bytes(b"\0" * len(BODY))
    with mirroring(liar, tmp_path / "tls") as running:
        finder = liar.shelf().finder
        running.mirror._finder = finder
        finder.path_of = lambda digest: lie  # type: ignore[method-assign]

        async def cut(source: object, span: object, answer: object) -> None:
            await answer.write(b"\0" * 1_000)  # type: ignore[attr-defined]
            raise ConnectionResetError

        running.mirror._copy = cut  # type: ignore[method-assign]
        assert asker(tmp_path, running.peer).fetch(wanted(origin)).read_bytes() == BODY
    assert origin.ranges() == ["bytes=1000-", ""]


# -- what a mirror gives to whom --------------------------------------------------------------------------------------


def ask(running: Running, path: str, key: str | None = KEY, **headers: str) -> tuple[int, bytes, dict[str, str]]:
    async def asked() -> tuple[int, bytes, dict[str, str]]:
        given = headers if key is None else {"Authorization": f"Bearer {key}", **headers}
        pin = aiohttp.Fingerprint(bytes.fromhex(running.cert))
        async with (
            aiohttp.ClientSession() as http,
            http.get(f"{running.url}{path}", headers=given, ssl=pin) as answer,
        ):
            return answer.status, await answer.read(), dict(answer.headers)

    return asyncio.run(asked())


def blob(digest: Digest | None = None) -> str:
    return f"/v1/blobs/{digest or file_of('m.gguf', BODY).sha256}"


@pytest.mark.parametrize("key", [None, "", "wrong", KEY + "!", KEY.upper()])
def test_without_the_key_a_mirror_says_nothing(tmp_path: Path, key: str | None) -> None:
    with mirroring(holder(tmp_path), tmp_path / "tls") as running:
        for path in (blob(), blob(Digest("sha256:" + "0" * 64))):
            assert ask(running, path, key)[0] == 401, "not even whether it has the file"


@pytest.mark.parametrize("path", ["/v1/blobs/", "/v1/blobs/m.gguf", "/v1/blobs/..%2fm.gguf", "/v1/blobs", "/"])
def test_a_mirror_knows_files_by_digest_alone(tmp_path: Path, path: str) -> None:
    with mirroring(holder(tmp_path), tmp_path / "tls") as running:
        assert ask(running, path)[0] == 404


def test_a_file_that_changed_since_it_was_proved_is_not_served(tmp_path: Path) -> None:
    desk = holder(tmp_path)
    with mirroring(desk, tmp_path / "tls") as running:
        assert ask(running, blob())[0] == 200
        (desk.folder / "m.gguf").write_bytes(BODY[:-1] + b"!")
        assert ask(running, blob())[0] == 404


@pytest.mark.parametrize(
    ("asked", "status", "begin", "end"),
    [
        (None, 200, 0, len(BODY)),
        ("bytes=0-", 206, 0, len(BODY)),
        ("bytes=100-199", 206, 100, 200),
        (f"bytes=100-{len(BODY) * 2}", 206, 100, len(BODY)),
        (f"bytes={len(BODY)}-", 416, 0, 0),
        ("bytes=5-4", 416, 0, 0),
        ("bytes=-5", 416, 0, 0),
        ("bytes=0-1,4-5", 416, 0, 0),
        ("lines=1-", 416, 0, 0),
    ],
)
def test_ranges_are_what_was_asked_or_refused(
    tmp_path: Path, asked: str | None, status: int, begin: int, end: int
) -> None:
    with mirroring(holder(tmp_path), tmp_path / "tls") as running:
        got, body, headers = ask(running, blob(), **({"Range": asked} if asked else {}))
    assert (got, body) == (status, BODY[begin:end])
    if status == 206:
        assert headers["Content-Range"] == f"bytes {begin}-{end - 1}/{len(BODY)}"


def test_a_mirror_serves_a_bounded_number_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MIRROR_STREAMS", 0)
    with mirroring(holder(tmp_path), tmp_path / "tls") as running:
        status, _, headers = ask(running, blob())
    assert (status, headers["Retry-After"]) == (503, "5")


def test_an_older_tls_is_not_spoken(tmp_path: Path) -> None:
    with mirroring(holder(tmp_path), tmp_path / "tls") as running:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        context.maximum_version = ssl.TLSVersion.TLSv1_2

        async def shake() -> None:
            await asyncio.open_connection("127.0.0.1", running.port, ssl=context)

        with pytest.raises((ssl.SSLError, ConnectionError)):
            asyncio.run(shake())


# -- agent.toml -------------------------------------------------------------------------------------------------------


async def test_an_agent_opens_its_mirror_with_the_fronts_certificate(site: Site, tmp_path: Path) -> None:
    from dataclasses import replace

    from gridops_agent.artifacts.opening import open_mirror
    from gridops_agent.artifacts.settings import Settings

    secrets = tmp_path / "secrets"
    secrets.mkdir(mode=0o700)
    (secrets / "lan").write_text(KEY + "\n")
    (secrets / "lan").chmod(0o600)
    settings = Settings(mirror="127.0.0.1:0", peer_credential="secret:lan")
    site.config = replace(site.config, artifacts=settings, secrets_folder=secrets)
    write_config(site.config)
    assert read_config(site.state) == site.config
    async with site.agent() as agent:
        mirror = await open_mirror(site.config, agent._artifacts)
        assert mirror is not None
        await mirror.close()
