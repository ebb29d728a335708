"""Brings the files of one artifact into a staging folder: resumed where they were left, bounded, hashed as they come.

Sources are asked in order, what is near first. A peer that fails or lies costs time and nothing else; the artifact's
own source is tried again with growing pauses for as long as it may still succeed. Nothing is published here. Runs in a
loop and a thread of its own, so that a large file never keeps the agent from anything; `stop` ends it at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Event

from gridops.base import limits
from gridops.base.codes import host as codes
from gridops.base.errors import GridopsError, Refusal
from gridops.base.ids import Digest
from gridops.disk.atomic import write_atomic
from gridops.model.profile import Artifact, ArtifactFile
from gridops_agent.artifacts.find import TakenBack
from gridops_agent.artifacts.pace import Board, Pace
from gridops_agent.artifacts.part import Part
from gridops_agent.artifacts.settings import Settings
from gridops_agent.artifacts.sources import Source, Stream
from gridops_agent.artifacts.wire import Broken, Hopeless, NoRange, Wire

STOP_LOOK_S = 0.05
RESTARTS = 2
"""So often a file that came in several answers and did not verify is begun anew from one source."""
LEAST_BYTES_PER_S = 1_024
"""A source that gives less than this over the stall time is as good as dead."""


@dataclass(frozen=True, slots=True)
class Means:
    """What every transfer of this host shares."""

    settings: Settings
    pace: Pace
    board: Board


@dataclass(frozen=True, slots=True)
class Job:
    """One artifact to bring. `sources` gives those of a file, in the order in which they are asked."""

    artifact: Artifact
    name: Digest
    staging: Path
    notes: Path
    """Beside the staging folder: which validator the bytes there came with."""
    sources: Callable[[ArtifactFile], Sequence[Source]]


def bring(job: Job, means: Means, stop: Event) -> None:
    """All files, whole and proved, in the staging folder. Raises Refusal, TakenBack or OSError."""
    size = sum(file.size_bytes for file in job.artifact.files)
    means.board.begin(job.name, size)
    try:
        asyncio.run(_unless_stopped(_Transfer(job, means, stop), stop))
    finally:
        means.board.end(job.name)


async def _unless_stopped(transfer: _Transfer, stop: Event) -> None:
    task = asyncio.ensure_future(transfer.run())
    while not task.done():
        await asyncio.wait({task}, timeout=STOP_LOOK_S)
        if stop.is_set() and not task.done():
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            raise TakenBack
    await task


class _Transfer:
    def __init__(self, job: Job, means: Means, stop: Event) -> None:
        self._job = job
        self._means = means
        self._stop = stop
        self._done = 0
        """Bytes of the files before the one that is arriving."""
        self._validators = _read_notes(job.notes, job.artifact.source)

    async def run(self) -> None:
        async with Wire(self._means.settings) as wire:
            for file in self._job.artifact.files:
                with Part(self._job.staging / file.path, file, self._stop) as part:
                    await self._file(wire, part)
                self._done += file.size_bytes

    async def _file(self, wire: Wire, part: Part) -> None:
        if part.full and part.settle() == part.file.sha256:
            return
        if part.full:
            part.drop()
        said: list[str] = []
        for source in self._job.sources(part.file):
            try:
                await self._from(wire, source, part)
                return
            except Hopeless as error:
                said.append(f"{source.kind}: {error}")
                if source.trusted:
                    hints = (error.hint,) if error.hint else ()
                    raise Refusal(error.code.code, str(error), evidence=said[:-1][:8], hints=hints) from error
            except Broken as error:
                said.append(f"{source.kind}: {error}")
        words = said[-1] if said else "no source is known"
        raise Refusal(
            codes.FETCH_FAILED.code, f"{part.file.path} could not be fetched: {words}", evidence=said[:-1][:8]
        )

    async def _from(self, wire: Wire, source: Source, part: Part) -> None:
        """The whole file from one source. Raises Hopeless, or Broken when it was tried often enough."""
        settings, failed, restarts = self._means.settings, 0, 0
        while True:
            before = part.size
            try:
                await self._stream(wire, source, part)
            except Broken as error:
                if isinstance(error, NoRange):
                    part.drop()
                failed = 1 if part.size - before >= limits.FETCH_PROGRESS_BYTES else failed + 1
                if failed > (settings.retries if source.trusted else 0):
                    raise
                pause_ms = min(settings.backoff_ms << min(failed - 1, 10), limits.FETCH_LATER_MS)
                await asyncio.sleep(max(pause_ms / 1_000, error.later_s))
                continue
            found = part.settle()
            if found == part.file.sha256:
                return
            mixed = part.answers > 1
            part.drop()
            if not mixed or restarts >= RESTARTS:
                raise Hopeless(codes.WRONG_DIGEST, f"it has {found}, expected {part.file.sha256}; it was not kept")
            restarts += 1

    async def _stream(self, wire: Wire, source: Source, part: Part) -> None:
        etag = self._validators.get(part.file.path) if source.trusted and part.size else None
        async with source.open(wire, part.file, part.size, etag) as stream:
            part.begin(stream.offset)
            if source.trusted:
                self._note(part.file.path, stream.etag)
            await self._take(source, stream, part)
        if not part.full:
            raise Broken(f"it ended after {part.size} of {part.file.size_bytes} bytes")

    async def _take(self, source: Source, stream: Stream, part: Part) -> None:
        pace, waited_s, got = self._means.pace, 0.0, 0
        stall_s = self._means.settings.stall_ms / 1_000
        chunks = aiter(stream.chunks())
        while True:
            asked = time.monotonic()
            chunk = await anext(chunks, None)
            if chunk is None:
                return
            waited_s += time.monotonic() - asked
            got += len(chunk)
            if part.size + len(chunk) > part.file.size_bytes:
                part.drop()
                raise Hopeless(codes.WRONG_DIGEST, f"it sends more than the {part.file.size_bytes} bytes expected")
            part.add(chunk)
            self._means.board.note(self._job.name, source.kind, self._done + part.size)
            if waited_s >= stall_s:
                if got < LEAST_BYTES_PER_S * waited_s:
                    raise Broken(f"only {got} bytes came in {waited_s:.0f} s")
                waited_s, got = 0.0, 0
            if self._stop.is_set():
                raise TakenBack
            await asyncio.sleep(pace.owed(len(chunk)))

    def _note(self, path: str, etag: str | None) -> None:
        """Remember the validator of what arrives, so that a resumed fetch is told when the file was changed."""
        if self._validators.get(path) == etag:
            return
        if etag is None:
            del self._validators[path]
        else:
            self._validators[path] = etag
        document = {"source": self._job.artifact.source, "etags": self._validators}
        # Without it a resumed file is merely begun anew when it does not verify.
        with contextlib.suppress(GridopsError):
            write_atomic(self._job.notes, json.dumps(document, sort_keys=True).encode(), mode=0o600)


def _read_notes(path: Path, source: str | None) -> dict[str, str]:
    try:
        document = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    rows = document.get("etags") if isinstance(document, dict) and document.get("source") == source else None
    return {str(k): v for k, v in rows.items() if isinstance(v, str)} if isinstance(rows, dict) else {}
