"""Disk for artifacts: what a fetch may take at the moment it begins, and which of our own downloads may go for it.

Free space is counted less what must stay free and less what other transfers still need. What makes room is, longest
unused first: what is left of fetches that broke off and that nobody waits for; files fetched on a guess and never used;
and only where the operator set a limit for this cache, others of our own downloads. Never a file that people put there,
never one that something here is made of. Deletes a whole artifact or nothing: it is renamed first, so that a crash
leaves no half of one under its name.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from threading import Lock

from gridops.base import limits
from gridops.base.codes import host as codes
from gridops.base.errors import Refusal
from gridops.base.units import render_bytes, render_need
from gridops.disk.atomic import sync_directory
from gridops.disk.failpoint import point
from gridops_agent.artifacts.settings import Settings

_HEX = frozenset("0123456789abcdef")
GONE, STAGED, NOTES = ".gone", ".part", ".etags"


@dataclass(frozen=True, slots=True)
class Claims:
    """What of this host's downloads is spoken for, by the name of the artifact's folder."""

    busy: frozenset[str] = frozenset()
    """Something here is made of it or about to be: never deleted."""
    guesses: frozenset[str] = frozenset()
    """Fetched on a guess and never used."""


@dataclass(frozen=True, slots=True)
class _Entry:
    name: str
    size_bytes: int
    used_ns: int
    part: bool = False
    """What is left of a fetch that broke off."""


class Room:
    """The cache folder of one host. Safe to use from several threads."""

    def __init__(self, cache: Path, settings: Settings, claims: Callable[[], Claims], forget: Callable[[Path], None]):
        self._cache = cache
        self._settings = settings
        self._claims = claims
        self._forget = forget
        self._coming: dict[str, int] = {}
        self._lock = Lock()

    @contextlib.contextmanager
    def kept(self, name: str, size_bytes: int, *, guess: bool) -> Iterator[None]:
        """Room for an artifact of this size while it is fetched. Raises Refusal `no_space`."""
        with self._lock:
            self._admit(name, size_bytes, guess=guess)
            self._coming[name] = size_bytes
        try:
            yield
        finally:
            with self._lock:
                del self._coming[name]

    def _admit(self, name: str, size_bytes: int, *, guess: bool) -> None:
        self._cache.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._tidy(spared=(name, *self._coming))
        needed = max(0, size_bytes - self.staged(name))
        others = sum(max(0, size - self.staged(one)) for one, size in self._coming.items())
        claims, settings = self._claims(), self._settings
        entries = sorted(self._entries(), key=lambda e: (e.used_ns, e.name))
        parts = [e for e in self._parts() if e.name not in self._coming and e.name != name]
        loose = [e for e in entries if e.name not in claims.busy and e.name != name]
        may_go = [e for e in loose if not guess and (e.name in claims.guesses or settings.limit_bytes is not None)]
        may_go.sort(key=lambda e: e.name not in claims.guesses)  # stable: guesses first, each group by its last use
        may_go = [e for e in parts if not guess and e.name not in claims.busy] + may_go
        free = shutil.disk_usage(self._cache).free
        short = needed + others + settings.keep_free_bytes - free
        if settings.limit_bytes is not None:
            held = sum(e.size_bytes for e in (*entries, *parts)) + sum(self._coming.values())
            short = max(short, held + size_bytes - settings.limit_bytes)
        if short <= 0:
            return
        if sum(e.size_bytes for e in may_go) < short:
            raise Refusal(codes.NO_SPACE.code, self._words(free, needed, others), hints=self._advice(loose))
        for entry in may_go:
            if short <= 0:
                break
            self.drop(entry.name) if entry.part else self.delete(entry.name)
            short -= entry.size_bytes

    def _words(self, free: int, needed: int, others: int) -> str:
        settings = self._settings
        more = f", {render_need(others)} more by transfers under way" if others else ""
        kept = f", and {render_bytes(settings.keep_free_bytes)} stay free" if settings.keep_free_bytes else ""
        limit = settings.limit_bytes
        bound = f"; downloads may hold {render_bytes(limit)} here (artifacts.limit)" if limit is not None else ""
        return f"{self._cache} has {render_bytes(free)} free, {render_need(needed)} are needed{more}{kept}{bound}"

    def _advice(self, loose: list[_Entry]) -> tuple[str, ...]:
        if not loose:
            return (f"free some space: df -h {self._cache}",)
        size = render_bytes(sum(e.size_bytes for e in loose))
        words = f"downloads that nothing uses now hold {size} in {self._cache}; `limit` under [artifacts] in agent.toml"
        return (f"{words} lets the agent delete the longest unused ones",)

    def delete(self, name: str) -> bool:
        """Delete one artifact of the cache. False when it is not there."""
        folder = self._cache / name
        if not _is_name(name) or not folder.is_dir() or folder.is_symlink():
            return False
        gone = self._cache / f".{name}{GONE}"
        shutil.rmtree(gone, ignore_errors=True)
        with point("shelf.delete"):
            os.rename(folder, gone)
            sync_directory(self._cache)
        self._forget(folder)
        shutil.rmtree(gone, ignore_errors=True)
        return True

    def touch(self, name: str) -> None:
        """It is used now."""
        with contextlib.suppress(OSError):
            os.utime(self._cache / name)

    def drop(self, name: str) -> None:
        """Forget what has arrived of an artifact that nobody waits for."""
        shutil.rmtree(self._cache / f".{name}{STAGED}", ignore_errors=True)
        (self._cache / f".{name}{NOTES}").unlink(missing_ok=True)

    def tidy(self) -> None:
        """Take away what a crash left half deleted, and parts that nobody came back for. Called at start, and again
        before each fetch: an agent may run for years."""
        with self._lock:
            self._tidy(spared=tuple(self._coming))

    def _tidy(self, spared: tuple[str, ...]) -> None:
        oldest_ns = time.time_ns() - limits.STAGED_MS * 1_000_000
        with contextlib.suppress(OSError):
            for path in sorted(self._cache.iterdir()):
                stem, _, kind = path.name.removeprefix(".").rpartition(".")
                if not path.name.startswith(".") or stem in spared:
                    continue
                if f".{kind}" == GONE:
                    shutil.rmtree(path, ignore_errors=True)
                alone = f".{kind}" == NOTES and not (self._cache / f".{stem}{STAGED}").exists()
                if alone or (f".{kind}" == STAGED and _touched_ns(path) < oldest_ns):
                    self.drop(stem)

    def staged(self, name: str) -> int:
        """What has arrived of an artifact that is not whole yet."""
        return _size(self._cache / f".{name}{STAGED}")

    def _entries(self) -> Iterator[_Entry]:
        for path in sorted(self._cache.iterdir()):
            if _is_name(path.name) and path.is_dir() and not path.is_symlink():
                yield _Entry(path.name, _size(path), path.stat().st_mtime_ns)

    def _parts(self) -> Iterator[_Entry]:
        """What is left of fetches that broke off, the oldest first."""
        found = [p for p in self._cache.iterdir() if p.name.startswith(".") and p.name.endswith(STAGED)]
        for path in sorted(found, key=lambda p: (_touched_ns(p), p.name)):
            yield _Entry(path.name[1 : -len(STAGED)], _size(path), _touched_ns(path), part=True)


def _is_name(text: str) -> bool:
    return len(text) == 64 and _HEX.issuperset(text)


def _size(folder: Path) -> int:
    """Bytes of the regular files below a folder."""
    total = 0
    for here, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(here, name)).st_size
    return total


def _touched_ns(path: Path) -> int:
    """When anything was last written there: a folder's own time is that of its newest entry, not of its bytes."""
    newest = path.lstat().st_mtime_ns
    for here, _, names in os.walk(path):
        for name in names:
            with contextlib.suppress(OSError):
                newest = max(newest, os.lstat(os.path.join(here, name)).st_mtime_ns)
    return newest
