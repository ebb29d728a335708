"""Artifacts on this host: found by digest, proved before use, fetched where the source is a file.

An artifact is its files' SHA-256 and sizes; names are hints. A file counts only after its whole content was hashed, and
goes on counting while it looks exactly as it did then (size, times, inode). Folders that people filled are only read;
what this module writes lies in the cache, under the artifact's digest, published whole or not at all.
Called by the effects runner in a thread; raises Refusal with `no_artifact`, `wrong_digest` or `no_space`.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from threading import Event
from typing import BinaryIO
from urllib.parse import unquote, urlsplit

from gridops.base import limits
from gridops.base.codes import refusals as codes
from gridops.base.errors import Refusal
from gridops.base.ids import Digest
from gridops.base.record import digest_of
from gridops.base.units import render_bytes
from gridops.disk.atomic import sync_directory
from gridops.disk.quarantine import set_aside
from gridops.model.profile import Artifact, ArtifactFile
from gridops_agent.ledger import Proof

_CHUNK = 4 << 20
Keep = Callable[[str, Proof | None], None]


class TakenBack(Exception):
    """The command that wanted the artifact was voided while it was being fetched or hashed."""


class Artifacts:
    """The artifact folders of one host. `keep` makes a proof durable."""

    def __init__(self, folders: tuple[Path, ...], cache: Path, proofs: Mapping[str, Proof], keep: Keep) -> None:
        self._folders = folders
        self._cache = cache
        self._proofs = dict(proofs)
        self._keep = keep

    def locate(self, artifact: Artifact, stop: Event) -> Path:
        """The proved first file; the others stand beside it by their relative paths. Fetches what it may."""
        return self._present(artifact, stop)[0]

    def obtain(self, artifact: Artifact, stop: Event) -> int | None:
        """Make it present and proved: the bytes that had to come. None: it was there, and was only proved."""
        return sum(file.size_bytes for file in artifact.files) if self._present(artifact, stop)[1] else None

    def _present(self, artifact: Artifact, stop: Event) -> tuple[Path, bool]:
        """The proved first file, and whether the files had to come."""
        try:
            return self._find(artifact, stop), False
        except Refusal as refusal:
            if artifact.source is None:
                raise
            if not artifact.source.startswith("file://"):
                scheme = artifact.source.partition(":")[0]
                raise Refusal(
                    refusal.code,
                    f"{refusal.message}; this agent does not fetch from {scheme}: sources",
                    evidence=refusal.evidence,
                    hints=("put the file into a folder that agent.toml lists under artifact_folders",),
                ) from refusal
        self._fetch(artifact, Path(unquote(urlsplit(artifact.source).path)), stop)
        return self._find(artifact, stop), True

    def cached(self) -> tuple[Digest, ...]:
        """Every digest this host holds and has proved, by files that still look as they did then."""
        return tuple(sorted({p.sha256 for path, p in self._proofs.items() if _look(Path(path), p.sha256) == p}))

    # --- finding --------------------------------------------------------------------------------------------------

    def _find(self, artifact: Artifact, stop: Event) -> Path:
        for file in artifact.files:
            _require_relative(file)
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
        for base in (self._cache / _name(artifact), *self._folders):
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
        known = self._proofs.get(str(path))
        if known is not None and _look(path, known.sha256) == known:
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
        proof = _look(path, found)
        if proof is not None and len(self._proofs) < limits.CACHED_ARTIFACTS_PER_HOST:
            self._proofs[str(path)] = proof
            self._keep(str(path), proof)
        return found

    # --- fetching -------------------------------------------------------------------------------------------------

    def _fetch(self, artifact: Artifact, origin: Path, stop: Event) -> None:
        wanted = sum(file.size_bytes for file in artifact.files)
        self._cache.mkdir(parents=True, exist_ok=True, mode=0o700)
        free = shutil.disk_usage(self._cache).free
        if free < wanted:
            raise Refusal(
                codes.NO_SPACE.code, f"{self._cache} has {render_bytes(free)} free, {render_bytes(wanted)} are needed"
            )
        staging = self._cache / f".{_name(artifact)}.part"
        shutil.rmtree(staging, ignore_errors=True)
        try:
            for file in artifact.files:
                one = origin if origin.is_file() and len(artifact.files) == 1 else origin / file.path
                _copy(one, staging / file.path, file, stop)
            target = self._cache / _name(artifact)
            if target.exists():  # it was there and did not verify, or we would not be here
                set_aside(target, "its files did not verify", os.stat(target).st_mtime_ns // 1_000_000)
            os.rename(staging, target)
            sync_directory(self._cache)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise Refusal(codes.NO_SPACE.code, f"the disk of {self._cache} is full") from error
            raise Refusal(codes.NO_ARTIFACT.code, f"{origin} cannot be copied: {error.strerror}") from error
        finally:
            shutil.rmtree(staging, ignore_errors=True)


def _copy(origin: Path, target: Path, file: ArtifactFile, stop: Event) -> None:
    """Copy at most the declared size while hashing; only what matches the digest stays."""
    target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    hasher, left = hashlib.sha256(), file.size_bytes
    with origin.open("rb") as source, target.open("xb") as sink:
        while left and (chunk := source.read(min(_CHUNK, left))):
            if stop.is_set():
                raise TakenBack
            hasher.update(chunk)
            sink.write(chunk)
            left -= len(chunk)
        rest = source.read(1)
        sink.flush()
        os.fsync(sink.fileno())
    if left or rest:
        raise Refusal(codes.WRONG_DIGEST.code, f"{origin} has not the declared size of {file.size_bytes} bytes")
    found = f"sha256:{hasher.hexdigest()}"
    if found != file.sha256:
        raise Refusal(codes.WRONG_DIGEST.code, f"{origin} has {found}, expected {file.sha256}; it was not kept")


def _hash(source: BinaryIO, stop: Event) -> Digest:
    hasher = hashlib.sha256()
    while chunk := source.read(_CHUNK):
        if stop.is_set():
            raise TakenBack
        hasher.update(chunk)
    return Digest(f"sha256:{hasher.hexdigest()}")


def _look(path: Path, digest: Digest) -> Proof | None:
    """How a file looks now, as the proof that it has this digest."""
    try:
        seen = path.stat()
    except OSError:
        return None
    parts = (seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns, seen.st_ino, seen.st_dev)
    return Proof(sha256=digest, look=":".join(str(part) for part in parts))


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


def _name(artifact: Artifact) -> str:
    """The artifact's folder in the cache: one name per set of files, whatever the source."""
    return digest_of(Artifact(format=artifact.format, files=artifact.files)).removeprefix("sha256:")


def _require_relative(file: ArtifactFile) -> None:
    path = PurePosixPath(file.path)
    if path.is_absolute() or not path.parts or ".." in path.parts:
        raise Refusal(codes.NO_ARTIFACT.code, f"`{file.path}` is not a relative path inside a folder")
