"""`https://`: a file at an address, or several below one. A credential is a bearer token, for that host alone."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

from gridops.model.profile import Artifact, ArtifactFile
from gridops_agent.artifacts.settings import Secrets
from gridops_agent.artifacts.sources import Stream, url_of
from gridops_agent.artifacts.wire import Ask, Wire


def bearer(secrets: Secrets, credential: str | None) -> str | None:
    """The Authorization value of a credential, read now. Raises Refusal."""
    return None if credential is None else f"Bearer {secrets.get(credential).reveal_text()}"


class HttpSource:
    """One server."""

    kind, trusted = "https", True

    def __init__(self, artifact: Artifact, secrets: Secrets) -> None:
        self._base = artifact.source or ""
        self._single = len(artifact.files) == 1
        self._secret = bearer(secrets, artifact.credential)

    def open(
        self, wire: Wire, file: ArtifactFile, offset: int, etag: str | None
    ) -> AbstractAsyncContextManager[Stream]:
        url = url_of(self._base, file.path, single=self._single)
        return wire.bytes_of(Ask(url, secret=self._secret, offset=offset, etag=etag), file.size_bytes)
