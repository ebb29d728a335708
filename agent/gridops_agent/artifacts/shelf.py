"""Artifacts on this host: found by digest, proved before use, fetched from their source, deleted if they were a guess.

An artifact is its files' SHA-256 and sizes; names are hints. Folders that people filled are only read; what is written
here lies in the cache, under the artifact's digest, published whole or not at all. What a model file says about itself
is checked before anything is started from it. Called by the effects runner in a thread; raises Refusal.
"""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import TypeVar

from gridops.base import limits
from gridops.base.codes import host as codes
from gridops.base.errors import Refusal
from gridops.base.ids import Digest
from gridops.disk.atomic import sync_directory
from gridops.disk.failpoint import point
from gridops.disk.quarantine import set_aside
from gridops.model.profile import Artifact, ArtifactFile
from gridops_agent.artifacts import sanity
from gridops_agent.artifacts.find import Finder, Keep, TakenBack, name_of, require_relative
from gridops_agent.artifacts.pace import Board, Pace, Progress
from gridops_agent.artifacts.peers import peers_of
from gridops_agent.artifacts.room import NOTES, STAGED, Claims, Room
from gridops_agent.artifacts.settings import Secrets, Settings
from gridops_agent.artifacts.sources import HeldSource, Source, origin_of
from gridops_agent.artifacts.transfer import Job, Means, bring
from gridops_agent.ledger_rows import FileProof

T = TypeVar("T")
_FULL = (errno.ENOSPC, errno.EDQUOT)


@dataclass(frozen=True, slots=True)
class Ways:
    """How this host fetches: settings, secrets, and what of its downloads is spoken for."""

    settings: Settings = field(default_factory=Settings)
    secrets: Secrets = field(default_factory=lambda: Secrets(None))
    claims: Callable[[], Claims] = Claims


class Artifacts:
    """The artifact folders of one host. `keep` makes a proof durable."""

    def __init__(
        self,
        folders: tuple[Path, ...],
        cache: Path,
        proofs: Mapping[str, FileProof],
        keep: Keep,
        ways: Ways | None = None,
    ) -> None:
        self._ways = ways or Ways()
        settings = self._ways.settings
        self._cache = cache
        self.finder = Finder(folders, cache, proofs, keep)
        self._room = Room(cache, settings, self._ways.claims, self.finder.forget_below)
        self._means = Means(settings, Pace(settings.rate_bps), Board())
        # Threads of its own: a source that hangs must not take those that write the ledger.
        self._threads = ThreadPoolExecutor(limits.ARTIFACT_THREADS, thread_name_prefix="artifacts")

    async def away(self, work: Callable[..., T], *given: object) -> T:
        """Run one of the methods below in a thread."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, work, *given)

    def locate(self, artifact: Artifact, stop: Event) -> Path:
        """The proved first file; the others stand beside it by their relative paths. Fetches nothing: whoever starts an
        engine holds a device, and a fetch would keep it from being unloaded."""
        first = self.finder.find(artifact, stop)
        self._use(artifact, first)
        return first

    def obtain(self, artifact: Artifact, stop: Event, guess: bool = False) -> int | None:
        """Make it present and proved: the bytes that had to come. None: it was there, and was only proved."""
        brought = None
        try:
            first = self.finder.find(artifact, stop)
        except Refusal:
            if artifact.source is None:
                raise
            self._fetch(artifact, stop, guess=guess)
            first = self.finder.find(artifact, stop)
            brought = sum(file.size_bytes for file in artifact.files)
        self._use(artifact, first)
        return brought

    def cached(self) -> tuple[Digest, ...]:
        """Every digest this host holds and has proved, by files that still look as they did then."""
        return self.finder.cached()

    def delete(self, name: Digest) -> bool:
        """Delete an artifact that was fetched into the cache. False when it is not there (any more)."""
        return self._room.delete(name.removeprefix("sha256:"))

    @property
    def pace(self) -> Pace:
        """The limit that everything here shares."""
        return self._means.pace

    def drop(self, artifact: Artifact) -> None:
        """Forget what has arrived of it: whoever wanted it does not any more."""
        self._room.drop(name_of(artifact))

    def transfers(self) -> tuple[Progress, ...]:
        """What is being fetched now, and how far it is."""
        return self._means.board.rows()

    def tidy(self) -> None:
        """Take away what an earlier run left half done and nobody came back for."""
        self._room.tidy()

    def leave(self) -> None:
        """The agent is leaving: nothing new begins here."""
        self._threads.shutdown(wait=False)

    def _use(self, artifact: Artifact, first: Path) -> None:
        sanity.check(artifact, first)
        if first.is_relative_to(self._cache):
            self._room.touch(name_of(artifact))

    def _fetch(self, artifact: Artifact, stop: Event, *, guess: bool) -> None:
        for file in artifact.files:
            require_relative(file)
        name = name_of(artifact)
        origin = origin_of(artifact, self._ways.settings, self._ways.secrets)
        near = peers_of(self._ways.settings, self._ways.secrets)

        def sources(file: ArtifactFile) -> Sequence[Source]:
            held = self.finder.path_of(file.sha256)
            return (*((HeldSource(held),) if held is not None else ()), *near, origin)

        staging, notes = self._cache / f".{name}{STAGED}", self._cache / f".{name}{NOTES}"
        job = Job(artifact, Digest(f"sha256:{name}"), staging, notes, sources)
        size = sum(file.size_bytes for file in artifact.files)
        keep = False
        try:
            with self._room.kept(name, size, guess=guess):
                bring(job, self._means, stop)
                self._publish(name, staging)
        except TakenBack:
            # Its owner wants the machine, or the agent leaves: what has arrived is not asked for again. Who does not
            # want it any more says so by `drop`.
            keep = self._room.staged(name) > 0
            raise
        except Refusal as refusal:
            # A source that did not answer may be back tomorrow; what it has given is not asked for again.
            keep = refusal.code == codes.FETCH_FAILED.code
            raise
        except OSError as error:
            if error.errno in _FULL:
                raise Refusal(codes.NO_SPACE.code, f"the disk of {self._cache} is full") from error
            raise Refusal(codes.FETCH_FAILED.code, f"{self._cache} cannot be written: {error.strerror}") from error
        finally:
            if not keep:
                shutil.rmtree(staging, ignore_errors=True)
                notes.unlink(missing_ok=True)

    def _publish(self, name: str, staging: Path) -> None:
        """One rename: before it the old state, after it the new one. Every file is durable already."""
        for here, _, _ in os.walk(staging, topdown=False):
            sync_directory(here)
        target = self._cache / name
        if target.exists():  # it was there and did not verify, or we would not be here
            set_aside(target, "its files did not verify", os.stat(target).st_mtime_ns // 1_000_000)
        with point("shelf.publish"):
            os.rename(staging, target)
            sync_directory(self._cache)
