"""A shelf of artifacts for tests: folders, cache, proofs, and settings that are impatient."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Event

from gridops.base.ids import Digest
from gridops.model.profile import Artifact, ArtifactFile
from gridops_agent.artifacts import Artifacts, Ways
from gridops_agent.artifacts.room import Claims
from gridops_agent.artifacts.settings import Secrets, Settings
from gridops_agent.ledger_rows import FileProof

QUICK = Settings(
    keep_free_bytes=0, stall_ms=400, retries=3, backoff_ms=10, plain_loopback=True, hub="http://127.0.0.1:1"
)


def file_of(path: str, content: bytes) -> ArtifactFile:
    digest = Digest("sha256:" + hashlib.sha256(content).hexdigest())
    return ArtifactFile(path=path, sha256=digest, size_bytes=len(content))


def artifact(*files: ArtifactFile, source: str | None = None, credential: str | None = None) -> Artifact:
    return Artifact(format="weights", files=files, source=source, credential=credential)


@dataclass
class Desk:
    """One host's disk. `shelf` is the real thing, made anew as after a restart."""

    home: Path
    settings: Settings = QUICK
    claims: Claims = field(default_factory=Claims)
    proofs: dict[str, FileProof] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.folder, self.cache, self.secrets = self.home / "models", self.home / "cache", self.home / "secrets"
        self.folder.mkdir(parents=True)
        self.secrets.mkdir(mode=0o700)

    def secret(self, name: str, value: str, mode: int = 0o600) -> None:
        path = self.secrets / name
        path.write_text(value)
        path.chmod(mode)

    def with_(self, **changes: object) -> Desk:
        self.settings = replace(self.settings, **changes)  # type: ignore[arg-type]
        return self

    def keep(self, path: str, proof: FileProof | None) -> None:
        if proof is None:
            self.proofs.pop(path, None)
        else:
            self.proofs[path] = proof

    def shelf(self) -> Artifacts:
        ways = Ways(self.settings, Secrets(self.secrets), lambda: self.claims)
        return Artifacts((self.folder,), self.cache, self.proofs, self.keep, ways)

    def fetch(self, wanted: Artifact, stop: Event | None = None, *, guess: bool = False) -> Path:
        """Bring it here and give its first file."""
        shelf = self.shelf()
        shelf.obtain(wanted, stop or Event(), guess)
        return shelf.locate(wanted, Event())

    def left(self) -> list[str]:
        """Names in the cache, whatever they are."""
        return sorted(p.name for p in self.cache.iterdir()) if self.cache.exists() else []

    def parts(self) -> list[bytes]:
        """What has arrived and is not published."""
        found = [p for p in self.cache.rglob("*") if p.is_file() and ".part" in str(p)] if self.cache.exists() else []
        return [p.read_bytes() for p in sorted(found)]
