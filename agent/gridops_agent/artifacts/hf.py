"""`hf://owner/repo@commit/path`: a file of a model hub, at one commit. A branch or a tag is refused: it may move.

The hub answers with a redirect to where the bytes are, to another host as a rule, and with the digest of a large file
in `X-Linked-ETag`; one that names another digest than the profile is turned away before anything is transferred.
"""

from __future__ import annotations

import re
from contextlib import AbstractAsyncContextManager
from urllib.parse import quote

from gridops.base.codes import host as codes
from gridops.base.errors import Refusal
from gridops.model.profile import Artifact, ArtifactFile
from gridops_agent.artifacts.http import bearer
from gridops_agent.artifacts.settings import Secrets, Settings
from gridops_agent.artifacts.sources import Stream
from gridops_agent.artifacts.wire import Ask, Wire

_FORM = re.compile(r"hf://([\w.-]+)/([\w.-]+)@([\w.-]+)(?:/([^\s?#]*))?")
_COMMIT = re.compile(r"[0-9a-f]{40}")


class HubSource:
    """One repository of the hub at one commit."""

    kind, trusted = "hf", True

    def __init__(self, artifact: Artifact, settings: Settings, secrets: Secrets) -> None:
        match = _FORM.fullmatch(artifact.source or "")
        if match is None:
            raise Refusal(codes.BAD_SOURCE.code, f"`{artifact.source}` is not hf://owner/repo@commit/path")
        owner, repo, revision, path = match.groups()
        if _COMMIT.fullmatch(revision) is None:
            short = re.fullmatch(r"[0-9a-f]{7,39}", revision) is not None
            what = (
                "part of a commit's hash, and the hub wants all 40 digits"
                if short
                else "a branch or a tag, which may move"
            )
            raise Refusal(
                codes.BAD_SOURCE.code,
                f"{owner}/{repo}@{revision}: `{revision}` is {what}",
                hints=(f"write the whole hash of the commit; {settings.hub}/{owner}/{repo}/commits/main lists them",),
            )
        self._base = f"{settings.hub}/{owner}/{repo}/resolve/{revision}/"
        self._path = (path or "").strip("/")
        self._single = len(artifact.files) == 1 and bool(self._path) and not (path or "").endswith("/")
        self._secret = bearer(secrets, artifact.credential)

    def _url(self, file: ArtifactFile) -> str:
        path = self._path if self._single else "/".join(p for p in (self._path, file.path) if p)
        return self._base + quote(path, safe="/")

    def open(
        self, wire: Wire, file: ArtifactFile, offset: int, etag: str | None
    ) -> AbstractAsyncContextManager[Stream]:
        ask = Ask(self._url(file), secret=self._secret, offset=offset, etag=etag, linked=file.sha256)
        return wire.bytes_of(ask, file.size_bytes)
