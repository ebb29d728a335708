"""Hubs and registries: a double of each that follows its documented protocol, and sources that may move."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from gridops.base.errors import Refusal
from gridops.model.profile import Artifact
from tests.agent.origin import Asked, Origin, Trick
from tests.agent.shelf import Desk, artifact, file_of

BODY = b"weights" * 10_000
COMMIT = "1a2b3c4d" * 5
SHA = hashlib.sha256(BODY).hexdigest()


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path / "host")


@pytest.fixture
def origin() -> Iterator[Origin]:
    with Origin() as made:
        yield made


def refused(desk: Desk, of: Artifact, code: str) -> Refusal:
    with pytest.raises(Refusal) as caught:
        desk.fetch(of)
    assert caught.value.code == code, caught.value
    return caught.value


# -- a hub ------------------------------------------------------------------------------------------------------------


class Hub:
    """A model hub as documented: `resolve` answers large files with a redirect to a signed address at another host,
    with the file's digest and size beside it; small ones with a relative redirect. Private ones want a token.
    """

    def __init__(self, origin: Origin, private: bool = False, linked: str = SHA) -> None:
        self.origin, self.private, self.linked = origin, private, linked
        origin.files = {"/cdn/blob": BODY, "/api/resolve-cache/config.json": b"{}"}
        origin.answer = self.answer

    def answer(self, asked: Asked) -> Trick | None:
        base = f"/owner/repo/resolve/{COMMIT}/"
        if not asked.path.startswith("/owner/"):
            return None
        if self.private and asked.headers.get("authorization") != "Bearer hf_token":
            words = {"X-Error-Code": "GatedRepo", "X-Error-Message": "Access to model owner/repo is restricted"}
            return Trick(status=401, headers=words)
        if asked.path == base + "q4/m.gguf":
            headers = {"X-Linked-ETag": f'"{self.linked}"', "X-Linked-Size": str(len(BODY)), "X-Repo-Commit": COMMIT}
            return Trick(
                status=302, headers=headers | {"Location": f"{self.origin.other_url}/cdn/blob?Signature=s1gned"}
            )
        if asked.path == base + "config.json":
            return Trick(status=307, headers={"Location": "/api/resolve-cache/config.json", "X-Repo-Commit": COMMIT})
        return Trick(status=404, headers={"X-Error-Code": "EntryNotFound"})


def at_hub(source: str = f"hf://owner/repo@{COMMIT}", **more: str) -> Artifact:
    return artifact(file_of("q4/m.gguf", BODY), source=source, **more)


def test_a_hub_file_comes_by_its_redirects_from_one_commit(desk: Desk, origin: Origin) -> None:
    Hub(origin)
    desk.with_(hub=origin.url)
    both = artifact(file_of("q4/m.gguf", BODY), file_of("config.json", b"{}"), source=f"hf://owner/repo@{COMMIT}")
    found = desk.fetch(both)
    assert (found.read_bytes(), (found.parent.parent / "config.json").read_bytes()) == (BODY, b"{}")


def test_the_hubs_token_stays_with_the_hub(desk: Desk, origin: Origin) -> None:
    Hub(origin, private=True)
    desk.with_(hub=origin.url).secret("hub", "hf_token")
    desk.fetch(at_hub(credential="secret:hub"))
    assert [a.headers.get("authorization") for a in origin.asked] == ["Bearer hf_token", None]


def test_a_gated_file_says_what_it_wants(desk: Desk, origin: Origin) -> None:
    Hub(origin, private=True)
    refusal = refused(desk.with_(hub=origin.url), at_hub(), "no_credential")
    assert "restricted" in refusal.message
    assert "credential: secret:NAME" in refusal.hints[0]


def test_a_hub_that_has_another_digest_is_left_before_anything_comes(desk: Desk, origin: Origin) -> None:
    Hub(origin, linked="0" * 64)
    refusal = refused(desk.with_(hub=origin.url), at_hub(), "wrong_digest")
    assert "nothing was transferred" in refusal.message
    assert len(origin.asked) == 1


@pytest.mark.parametrize("path", ["/q4/", "/q4/m.gguf"])
def test_a_source_may_name_the_folder_or_the_file(desk: Desk, origin: Origin, path: str) -> None:
    Hub(origin)
    name = "m.gguf" if path.endswith("/") else "called-otherwise.gguf"
    wanted = artifact(file_of(name, BODY), source=f"hf://owner/repo@{COMMIT}{path}")
    assert desk.with_(hub=origin.url).fetch(wanted).read_bytes() == BODY


@pytest.mark.parametrize(
    ("revision", "words"), [("main", "a branch or a tag"), ("v1.0", "a branch or a tag"), ("1a2b3c4", "all 40 digits")]
)
def test_a_revision_that_may_move_is_refused_with_advice(desk: Desk, origin: Origin, revision: str, words: str) -> None:
    refusal = refused(desk.with_(hub=origin.url), at_hub(f"hf://owner/repo@{revision}"), "bad_source")
    assert words in refusal.message
    assert "/owner/repo/commits" in refusal.hints[0]
    assert origin.asked == []


@pytest.mark.parametrize("source", ["ftp://host/m", "s3://bucket/m", "m.gguf", "hf://owner@x", "oci://reg/repo:latest"])
def test_a_source_that_is_none_is_refused(desk: Desk, source: str) -> None:
    refused(desk, at_hub(source), "bad_source")


# -- a registry -------------------------------------------------------------------------------------------------------


class Registry:
    """A registry as the OCI distribution specification has it: manifests and blobs by digest, a token service, and
    blobs that are stored elsewhere."""

    def __init__(self, origin: Origin, auth: str = "none") -> None:
        self.origin, self.auth = origin, auth
        self.manifest = json.dumps(
            {
                "schemaVersion": 2,
                "mediaType": "application/vnd.oci.image.manifest.v1+json",
                "config": {"mediaType": "application/vnd.oci.empty.v1+json", "digest": "sha256:" + "0" * 64, "size": 2},
                "layers": [
                    {
                        "mediaType": "application/vnd.cncf.model.weight.v1.raw",
                        "digest": f"sha256:{SHA}",
                        "size": len(BODY),
                        "annotations": {"org.opencontainers.image.title": "m.gguf"},
                    }
                ],
            }
        ).encode()
        origin.files = {"/storage/blob": BODY}
        origin.answer = self.answer

    @property
    def host(self) -> str:
        return urlsplit(self.origin.url).netloc

    @property
    def digest(self) -> str:
        return "sha256:" + hashlib.sha256(self.manifest).hexdigest()

    def source(self, digest: str | None = None) -> str:
        return f"oci://{self.host}/models/tiny@{digest or self.digest}"

    def answer(self, asked: Asked) -> Trick | None:
        path, query = urlsplit(asked.path).path, parse_qs(urlsplit(asked.path).query)
        if path == "/token":
            wanted = {"service": ["reg"], "scope": ["repository:models/tiny:pull"]}
            pair = "Basic " + base64.b64encode(b"ada:pass").decode()
            good = query == wanted and asked.headers.get("authorization") == (pair if self.auth == "user" else None)
            return Trick(body=b'{"token": "t0ken", "expires_in": 300}') if good else Trick(status=401)
        if not path.startswith("/v2/"):
            return None
        if self.auth in ("anonymous", "user") and asked.headers.get("authorization") != "Bearer t0ken":
            scope = f'realm="{self.origin.url}/token",service="reg",scope="repository:models/tiny:pull"'
            return Trick(status=401, headers={"WWW-Authenticate": f"Bearer {scope}"})
        if self.auth == "basic" and not asked.headers.get("authorization", "").startswith("Basic "):
            return Trick(status=401, headers={"WWW-Authenticate": 'Basic realm="registry"'})
        if path == f"/v2/models/tiny/manifests/{self.digest}":
            assert "application/vnd.oci.image.manifest.v1+json" in asked.headers["accept"]
            return Trick(body=self.manifest)
        if path == f"/v2/models/tiny/blobs/sha256:{SHA}":
            return Trick(status=307, headers={"Location": f"{self.origin.other_url}/storage/blob"})
        return Trick(status=404)


def in_registry(registry: Registry, source: str | None = None, **more: str) -> Artifact:
    return artifact(file_of("m.gguf", BODY), source=source or registry.source(), **more)


@pytest.mark.parametrize("auth", ["none", "anonymous", "user", "basic"])
def test_a_blob_comes_through_its_manifest_with_whatever_the_registry_asks(
    desk: Desk, origin: Origin, auth: str
) -> None:
    registry = Registry(origin, auth)
    desk.secret("reg", "ada:pass")
    more = {"credential": "secret:reg"} if auth in ("user", "basic") else {}
    assert desk.fetch(in_registry(registry, **more)).read_bytes() == BODY
    stored = [a for a in origin.asked if a.path == "/storage/blob"]
    assert [a.headers.get("authorization") for a in stored] == [None], "the storage is shown nothing"


def test_a_blob_may_be_named_directly(desk: Desk, origin: Origin) -> None:
    registry = Registry(origin)
    desk.fetch(in_registry(registry, registry.source(f"sha256:{SHA}")))
    assert not any("manifests" in a.path for a in origin.asked)


def test_a_cut_blob_goes_on_and_the_token_is_not_asked_for_again(desk: Desk, origin: Origin) -> None:
    registry = Registry(origin, "anonymous")
    first = True

    def answer(asked: Asked) -> Trick | None:
        nonlocal first
        if asked.path == "/storage/blob" and first:
            first = False
            return Trick(cut_after=1_000)
        return registry.answer(asked)

    origin.answer = answer
    assert desk.fetch(in_registry(registry)).read_bytes() == BODY
    assert [a.headers.get("range", "") for a in origin.asked if a.path == "/storage/blob"] == ["", "bytes=1000-"]
    assert sum("/token" in a.path for a in origin.asked) == 1


def test_a_manifest_with_another_digest_is_not_believed(desk: Desk, origin: Origin) -> None:
    registry = Registry(origin)
    source = registry.source()
    other = registry.manifest + b" "
    origin.answer = lambda asked: Trick(body=other) if "manifests" in asked.path else registry.answer(asked)
    refusal = refused(desk, in_registry(registry, source), "wrong_digest")
    assert "sends a manifest with" in refusal.message
    assert len(origin.asked) == 1, "nothing that it lists is asked for"


def test_a_manifest_that_does_not_list_the_file_says_what_it_lists(desk: Desk, origin: Origin) -> None:
    registry = Registry(origin)
    registry.manifest = registry.manifest.replace(SHA.encode(), b"1" * 64)
    refusal = refused(desk, in_registry(registry), "no_artifact")
    assert "1" * 64 in refusal.message


def test_an_index_of_platforms_is_no_manifest(desk: Desk, origin: Origin) -> None:
    registry = Registry(origin)
    registry.manifest = json.dumps({"schemaVersion": 2, "manifests": []}).encode()
    refusal = refused(desk, in_registry(registry), "bad_source")
    assert "one platform" in refusal.hints[0]


def test_a_wrong_password_is_a_credential_that_does_not_do(desk: Desk, origin: Origin) -> None:
    desk.secret("reg", "ada:wrong")
    refused(desk, in_registry(Registry(origin, "user"), credential="secret:reg"), "no_credential")


def test_a_token_service_without_tls_elsewhere_is_not_asked(desk: Desk, origin: Origin) -> None:
    registry = Registry(origin)
    challenge = {"WWW-Authenticate": 'Bearer realm="http://token.example/",service="x"'}
    origin.answer = lambda asked: Trick(status=401, headers=challenge)
    desk.secret("reg", "ada:pass")
    refused(desk, in_registry(registry, credential="secret:reg"), "bad_source")
