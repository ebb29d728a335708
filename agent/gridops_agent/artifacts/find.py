"""Finding artifacts: by digest, wherever they lie, and only after the whole content was hashed once.

A file goes on counting while it looks exactly as it did then (size, times, inode). Folders that people filled are only
read. Called by `artifacts.shelf`, and by the mirror, which serves nothing that is not proved. Fetches and deletes
nothing; raises Refusal with `no_artifact` or `wrong_digest`.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from threading import Event, Lock
from typing import BinaryIO

from gridops.base import limits
from gridops.base.codes import host as codes
from gridops.base.errors import Refusal
from gridops.base.ids import Digest
from gridops.base.units import render_bytes
from gridops.model.profile import Artifact, ArtifactFile
from gridops_agent.core.guesses import identity_of
from gridops_agent.ledger_rows import FileProof

CHUNK = 4 << 20
Keep = Callable[[str, FileProof | None], None]


class TakenBack(Exception):
    """The command that wanted the artifact was voided while it was being fetched or hashed."""


class Finder:
    """The artifact folders of one host. `keep` makes a proof durable, or with None forgets it."""

    def __init__(self, folders: tuple[Path, ...], cache: Path, proofs: Mapping[str, FileProof], keep: Keep) -> None:
        self._folders = folders
        self._cache = cache
        # A folder may have been taken out of agent.toml since: what lies there would be found by nobody.
        places = (cache, *folders)
        self._proofs = {path: p for path, p in proofs.items() if any(Path(path).is_relative_to(at) for at in places)}
        self._keep = keep
        self._apart: frozenset[Digest] = frozenset()
        """Files that are here, but not beside those that they were wanted with: a load has to bring them together."""
        self._lock = Lock()
        """Proofs are read by the loop while a thread adds some."""

    def cached(self) -> tuple[Digest, ...]:
        """Every digest this host holds and has proved, by files that still look as they did then."""
        here = {p.sha256 for path, p in self._rows() if look(Path(path), p.sha256) == p}
        return tuple(sorted(here - self._apart))

    def path_of(self, digest: Digest) -> Path | None:
        """A file that is proved to have this digest and still looks so."""
        for path, proof in self._rows():
            if proof.sha256 == digest and look(Path(path), digest) == proof:
                return Path(path)
        return None

    def guard(self, artifact: Artifact, first: Path) -> Callable[[], str]:
        """Asked later: which of an artifact's files is not what was proved any more, in words; empty while all are.

        Between a proof and the moment in which an engine has read its files they may be changed: the same size and an
        old time are no proof, but nobody who writes can hold back the time of the change itself.
        """
        base = first
        for _ in PurePosixPath(artifact.files[0].path).parts:
            base = base.parent
        files = [(first, artifact.files[0].sha256), *((base / f.path, f.sha256) for f in artifact.files[1:])]
        known = dict(self._rows())
        rows = [(path, known.get(str(path)) or look(path, digest), digest) for path, digest in files]
        # A path that was proved to be another file since is one that was changed, however it looks now.
        proved = [(path, row if row is not None and row.sha256 == digest else None) for path, row, digest in rows]

        def changed() -> str:
            for path, proof in proved:
                if proof is None or look(path, proof.sha256) != proof:
                    return f"{path} was changed while the engine started"
            return ""

        return changed

    def forget_below(self, folder: Path) -> None:
        """Forget every proof of a file in this folder: it was deleted."""
        for path, _ in self._rows():
            if Path(path).is_relative_to(folder):
                with self._lock:
                    self._proofs.pop(path, None)
                self._keep(path, None)

    def _rows(self) -> list[tuple[str, FileProof]]:
        with self._lock:
            return sorted(self._proofs.items())

    def find(self, artifact: Artifact, stop: Event) -> Path:
        """The proved first file; the others stand beside it by their relative paths.

        What is not found together is not said to be here from then on, though each file may be: else nobody would
        order a load, and its start would fail for ever.
        """
        wanted = frozenset(file.sha256 for file in artifact.files)
        try:
            first = self._find(artifact, stop)
        except Refusal:
            self._apart |= wanted
            raise
        self._apart -= wanted
        return first

    def _find(self, artifact: Artifact, stop: Event) -> Path:
        for file in artifact.files:
            require_relative(file)
        wrong: list[str] = []
        for base in self._bases(artifact):
            paths = [base / file.path for file in artifact.files]
            faults = [fault for p, f in zip(paths, artifact.files, strict=True) if (fault := self._fault(p, f, stop))]
            if not faults:
                return paths[0]
            wrong += faults
        if len(artifact.files) == 1:
            for path in self._of_size(artifact.files[0].size_bytes):
                if self._fault(path, artifact.files[0], stop) is None:
                    return path
        if wrong:
            raise Refusal(codes.WRONG_DIGEST.code, f"{wrong[0]}; it is not started", evidence=wrong[1:8])
        first = artifact.files[0]
        folders = ", ".join(str(f) for f in self._folders) or "none is configured"
        raise Refusal(
            codes.NO_ARTIFACT.code,
            f"{first.path} ({first.sha256}, {render_bytes(first.size_bytes)}) is in no artifact folder ({folders})",
        )

    def _bases(self, artifact: Artifact) -> Iterator[Path]:
        """Folders in which every file of the artifact stands by its path: the cache, then the folders, at any depth."""
        names = [PurePosixPath(file.path) for file in artifact.files]
        seen: set[Path] = set()
        for base in (self._cache / name_of(artifact), *self._folders):
            if base not in seen and all((base / name).is_file() for name in names):
                seen.add(base)
                yield base
        for folder in self._folders:
            for path in _files(folder):
                base = path.parent
                for _ in names[0].parts[1:]:
                    base = base.parent
                if path.name == names[0].name and base not in seen and all((base / n).is_file() for n in names):
                    seen.add(base)
                    yield base

    def _of_size(self, size: int) -> Iterator[Path]:
        for folder in self._folders:
            for path in _files(folder):
                with contextlib.suppress(OSError):
                    if path.stat().st_size == size:
                        yield path

    def _fault(self, path: Path, file: ArtifactFile, stop: Event) -> str | None:
        """What is wrong with a file; None when it is proved to be the one."""
        try:
            size = path.stat().st_size
        except OSError as error:
            return f"{path} cannot be read: {error.strerror}"
        if size != file.size_bytes:
            return f"{path} has {size} bytes, expected {file.size_bytes}"
        try:
            found = self._proved_digest(path, stop)
        except OSError as error:  # gone or changed hands since it was listed, or its disk fails
            return f"{path} cannot be read: {error.strerror}"
        if found != file.sha256:
            return f"{path} has SHA-256 {found.removeprefix('sha256:')}, expected {file.sha256.removeprefix('sha256:')}"
        return None

    def _proved_digest(self, path: Path, stop: Event) -> Digest:
        with self._lock:
            known = self._proofs.get(str(path))
        if known is not None and look(path, known.sha256) == known:
            return known.sha256
        with path.open("rb") as source:
            before = os.fstat(source.fileno())
            found = _hash(source, stop)
            after = os.fstat(source.fileno())
        if (before.st_size, before.st_mtime_ns, before.st_ctime_ns) != (
            after.st_size,
            after.st_mtime_ns,
            after.st_ctime_ns,
        ):
            raise Refusal(codes.WRONG_DIGEST.code, f"{path} changed while it was being read")
        proof = look(path, found)
        if proof is not None and self._room_for(path):
            with self._lock:
                self._proofs[str(path)] = proof
            self._keep(str(path), proof)
        return found

    def _room_for(self, path: Path) -> bool:
        """Whether one more proof may be kept. When there are too many, those of files that are gone make room."""
        rows = self._rows()
        if len(rows) < limits.CACHED_ARTIFACTS_PER_HOST or str(path) in dict(rows):
            return True
        for old, proof in rows:
            if look(Path(old), proof.sha256) is None:
                with self._lock:
                    self._proofs.pop(old, None)
                self._keep(old, None)
        return len(self._rows()) < limits.CACHED_ARTIFACTS_PER_HOST


def _hash(source: BinaryIO, stop: Event) -> Digest:
    hasher = hashlib.sha256()
    while chunk := source.read(CHUNK):
        if stop.is_set():
            raise TakenBack
        hasher.update(chunk)
    return Digest(f"sha256:{hasher.hexdigest()}")


def look(path: Path, digest: Digest) -> FileProof | None:
    """How a file looks now, as the proof that it has this digest."""
    try:
        seen = path.stat()
    except OSError:
        return None
    parts = (seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns, seen.st_ino, seen.st_dev)
    return FileProof(sha256=digest, look=":".join(str(part) for part in parts))


def _files(folder: Path) -> Iterator[Path]:
    """Regular files below a folder in a stable order, at most as many as the house bounds."""
    count = 0
    for here, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            count += 1
            if count > limits.FILES:
                return
            yield Path(here) / name


def name_of(artifact: Artifact) -> str:
    """The artifact's folder in the cache: one name per set of files, whatever the source."""
    return identity_of(artifact).removeprefix("sha256:")


def require_relative(file: ArtifactFile) -> None:
    path = PurePosixPath(file.path)
    if path.is_absolute() or not path.parts or ".." in path.parts:
        raise Refusal(codes.NO_ARTIFACT.code, f"`{file.path}` is not a relative path inside a folder")
