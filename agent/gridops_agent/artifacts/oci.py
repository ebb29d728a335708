"""`oci://registry/repository@sha256:...`: files as blobs of a registry, reached through a manifest or directly.

Manifest and blobs are content-addressed: the manifest's bytes must have the digest that the source names, and must list
each file's digest with its size; a blob is then asked for by that digest. A registry that wants a token names the
service to get it from; the credential (`user:password`, or a token) goes there, and the token back to the registry.
A tag is refused: it may move. Follows the OCI distribution specification 1.1 and the token flow of its registries.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from urllib.parse import urlencode

from gridops.base import limits
from gridops.base.codes import host as codes
from gridops.base.errors import Refusal
from gridops.model.profile import Artifact, ArtifactFile
from gridops.trust.secret import Secret
from gridops_agent.artifacts.settings import Secrets, Settings
from gridops_agent.artifacts.sources import Stream
from gridops_agent.artifacts.wire import Ask, Broken, Hopeless, Wire, shown
from gridops_agent.hearsay import document

_NAME = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_FORM = re.compile(rf"oci://([\w.-]+(?::\d{{1,5}})?)/({_NAME}(?:/{_NAME})*)@(sha256:[0-9a-f]{{64}})")
_CHALLENGE = re.compile(r'([a-z_]+)="([^"]*)"')
_MANIFESTS = "application/vnd.oci.image.manifest.v1+json, application/vnd.docker.distribution.manifest.v2+json"


class OciSource:
    """One manifest, or one blob, of one repository."""

    kind, trusted = "oci", True

    def __init__(self, artifact: Artifact, settings: Settings, secrets: Secrets) -> None:
        match = _FORM.fullmatch(artifact.source or "")
        if match is None:
            raise Refusal(
                codes.BAD_SOURCE.code,
                f"`{artifact.source}` is not oci://registry/repository@sha256:DIGEST",
                hints=("name the manifest by its digest; a tag may move: oras resolve REGISTRY/REPOSITORY:TAG",),
            )
        registry, self._repository, self._digest = match.groups()
        host = registry.partition(":")[0]
        plain = settings.plain_loopback and host in ("127.0.0.1", "localhost")
        self._base = f"{'http' if plain else 'https'}://{registry}/v2/{self._repository}"
        self._files = {f.sha256: f.size_bytes for f in artifact.files}
        credential = artifact.credential
        self._credential = secrets.get(credential) if credential is not None else None
        self._authorised: str | None = None
        self._known = False

    @asynccontextmanager
    async def open(self, wire: Wire, file: ArtifactFile, offset: int, etag: str | None) -> AsyncIterator[Stream]:
        if not self._known and self._digest not in self._files:
            await self._look_up(wire)
        self._known = True
        ask = replace(self._ask(wire, f"blobs/{file.sha256}"), offset=offset, etag=etag)
        async with wire.bytes_of(ask, file.size_bytes) as reply:
            yield reply

    async def _look_up(self, wire: Wire) -> None:
        """Every file must stand in the manifest, by digest and with its size."""
        url = f"{self._base}/manifests/{self._digest}"
        ask = replace(self._ask(wire, f"manifests/{self._digest}"), headers={"Accept": _MANIFESTS})
        raw = await wire.document(ask, limits.MANIFEST_BYTES)
        found = "sha256:" + hashlib.sha256(raw).hexdigest()
        if found != self._digest:
            raise Hopeless(codes.WRONG_DIGEST, f"{shown(url)} sends a manifest with {found}")
        listed = _layers(raw, url)
        for digest, size in sorted(self._files.items()):
            if digest not in listed:
                names = ", ".join(sorted(listed)[:3]) or "nothing"
                raise Hopeless(
                    codes.NO_ARTIFACT, f"the manifest {self._digest} does not list {digest}; it lists {names}"
                )
            if listed[digest] != size:
                raise Hopeless(
                    codes.WRONG_DIGEST,
                    f"the manifest {self._digest} says {listed[digest]} bytes of {digest}, not {size}",
                )

    def _ask(self, wire: Wire, path: str) -> Ask:
        async def login(challenge: str) -> str:
            self._authorised = await self._token(wire, challenge)
            return self._authorised

        return Ask(f"{self._base}/{path}", secret=self._authorised, login=login)

    async def _token(self, wire: Wire, challenge: str) -> str:
        """What to present, by the registry's challenge. Raises Hopeless or Broken."""
        scheme, _, rest = challenge.partition(" ")
        basic = _basic(self._credential)
        if scheme.lower() == "basic" and basic is not None:
            return basic
        said = dict(_CHALLENGE.findall(rest))
        if scheme.lower() != "bearer" or not said.get("realm"):
            raise Hopeless(
                codes.NO_CREDENTIAL,
                f"{shown(self._base)} wants a credential",
                "name one in the profile (credential: secret:NAME); its value is user:password",
            )
        if self._credential is not None and basic is None and self._authorised is None:
            return f"Bearer {self._credential.reveal_text()}"
        query = {
            "service": said.get("service", ""),
            "scope": said.get("scope") or f"repository:{self._repository}:pull",
        }
        url = said["realm"] + ("&" if "?" in said["realm"] else "?") + urlencode({k: v for k, v in query.items() if v})
        said_there = document(await wire.document(Ask(url, secret=basic), limits.MANIFEST_BYTES))
        token = said_there.get("token") or said_there.get("access_token") if isinstance(said_there, dict) else None
        if not isinstance(token, str) or not token.isprintable():
            raise Broken(f"{shown(url)} gives no token")
        return f"Bearer {token}"


def _basic(credential: Secret | None) -> str | None:
    """`user:password` as a Basic value; None for what is no pair."""
    raw = credential.reveal() if credential is not None else b""
    return "Basic " + base64.b64encode(raw).decode() if b":" in raw else None


def _layers(raw: bytes, url: str) -> dict[str, int]:
    """Blobs of a manifest by digest. Raises Hopeless for anything that is none."""
    found = document(raw)
    if found is None:
        raise Hopeless(codes.FETCH_FAILED, f"{shown(url)} sends a manifest that is not JSON")
    layers = found.get("layers") if isinstance(found, dict) else None
    if not isinstance(layers, list):
        hint = "name the manifest of one platform, not the index of all" if isinstance(found, dict) else None
        raise Hopeless(codes.BAD_SOURCE, f"{shown(url)} is a document without layers", hint)
    rows = [layer for layer in layers if isinstance(layer, dict)]
    return {r["digest"]: r["size"] for r in rows if type(r.get("size")) is int and isinstance(r.get("digest"), str)}
