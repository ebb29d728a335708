"""Where the bytes of a file may come from: one small source for each scheme, chosen by the artifact's source.

A source turns a file into a stream that begins at an offset, and knows nothing of staging, hashing or retries, which
`transfer` does for all alike. Adding one is a module and a line in `origin_of`.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol
from urllib.parse import quote, unquote, urlsplit

from gridops.base.codes import host as codes
from gridops.base.errors import Refusal
from gridops.model.profile import Artifact, ArtifactFile
from gridops_agent.artifacts.find import CHUNK
from gridops_agent.artifacts.settings import Secrets, Settings
from gridops_agent.artifacts.wire import Broken, Hopeless, Wire


class Stream(Protocol):
    """Bytes of a file from `offset` on."""

    @property
    def offset(self) -> int: ...

    @property
    def etag(self) -> str | None: ...

    def chunks(self) -> AsyncIterator[bytes]: ...


class Source(Protocol):
    """One place that may have the file. `trusted` is False for peers: what they say is never held against the file."""

    kind: str
    trusted: bool

    def open(
        self, wire: Wire, file: ArtifactFile, offset: int, etag: str | None
    ) -> AbstractAsyncContextManager[Stream]:
        """Raises Broken (another try may do) or Hopeless."""
        ...


@dataclass(frozen=True, slots=True)
class _Local:
    offset: int
    path: Path
    etag: str | None = None

    async def chunks(self) -> AsyncIterator[bytes]:
        with self.path.open("rb") as source:
            source.seek(self.offset)
            while chunk := await asyncio.to_thread(source.read, CHUNK):
                yield chunk


class FileSource:
    """`file://`: a folder that is mounted here. The path is the one file, or the folder that holds all of them."""

    kind, trusted = "file", True

    def __init__(self, artifact: Artifact, base: Path) -> None:
        self._single = len(artifact.files) == 1
        self._base = base

    def _path(self, file: ArtifactFile) -> Path:
        return self._base if self._single and self._base.is_file() else self._base / file.path

    @asynccontextmanager
    async def open(self, wire: Wire, file: ArtifactFile, offset: int, etag: str | None) -> AsyncIterator[Stream]:
        path = self._path(file)
        try:
            seen = os.stat(path)
            if seen.st_size != file.size_bytes:
                raise Hopeless(codes.WRONG_DIGEST, f"{path} has {seen.st_size} bytes, expected {file.size_bytes}")
            look = f"{seen.st_ino}:{seen.st_mtime_ns}"
            yield _Local(offset if etag == look else 0, path, look)
        except OSError as error:
            if error.filename != str(path):
                raise  # our own disk: whoever writes knows what it means
            raise Hopeless(codes.NO_ARTIFACT, f"{path} cannot be copied: {error.strerror}") from error


class HeldSource:
    """The same file as part of something else that is proved here already: copied, not fetched."""

    kind, trusted = "here", False

    def __init__(self, path: Path) -> None:
        self._path = path

    @asynccontextmanager
    async def open(self, wire: Wire, file: ArtifactFile, offset: int, etag: str | None) -> AsyncIterator[Stream]:
        try:
            yield _Local(offset, self._path)
        except OSError as error:
            if error.filename != str(self._path):
                raise
            raise Broken(f"{self._path} cannot be read: {error.strerror}") from error


def url_of(base: str, path: str, *, single: bool) -> str:
    """The address of a file: the source itself where it names one file, else the file's path below it."""
    whole = single and not base.endswith("/") and bool(urlsplit(base).path.strip("/"))
    return base if whole else f"{base.rstrip('/')}/{quote(path, safe='/')}"


def origin_of(artifact: Artifact, settings: Settings, secrets: Secrets) -> Source:
    """The artifact's own source. Raises Refusal when there is none, or it names nothing immutable."""
    from gridops_agent.artifacts.hf import HubSource
    from gridops_agent.artifacts.http import HttpSource
    from gridops_agent.artifacts.oci import OciSource

    text = artifact.source or ""
    scheme = text.partition("://")[0]
    match scheme:
        case "file":
            return FileSource(artifact, Path(unquote(urlsplit(text).path)))
        case "https" | "http":
            return HttpSource(artifact, secrets)
        case "hf":
            return HubSource(artifact, settings, secrets)
        case "oci":
            return OciSource(artifact, settings, secrets)
        case _:
            raise Refusal(
                codes.BAD_SOURCE.code,
                f"`{text[:200]}` is no source that this agent fetches from",
                hints=("sources are hf://owner/repo@commit, https://, oci:// and file://",),
            )
