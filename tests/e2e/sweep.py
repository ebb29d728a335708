"""Looks for secrets in everything that a run of real processes leaves behind, and in those processes while they run.

`Sweep` watches from the start: environments and command lines of whoever has the stage's home, and every key file, for
engines' keys go when their engine does. `leaks` then looks for each secret, in every form that it could be written in,
in all git objects, database rows, logs, documents and answers, and inside of whatever is encoded there.
"""

from __future__ import annotations

import base64
import contextlib
import re
import sqlite3
import stat
import subprocess
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_ssh_private_key

from examples.demo.stage import Stage
from gridops.base.errors import Refusal
from gridops.trust.join import join_key, parse_token

EVERY_S = 0.2
_ENCODED = re.compile(rb"[A-Za-z0-9+/_-]{24,}={0,2}")
_HEX = re.compile(rb"[0-9a-fA-F]{32,}")


class Sweep:
    """Use as a context manager around everything that happens on a stage."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.told: set[bytes] = set()
        """Environments and command lines."""
        self.secrets: dict[str, set[bytes]] = {}
        """By what it is: the bytes that nobody else may see."""
        self.loose: set[str] = set()
        """Secret files that somebody else could read."""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join(10)

    def _watch(self) -> None:
        while not self._over.is_set():
            self.look()
            self._over.wait(EVERY_S)

    def look(self) -> None:
        """One look at processes and key files."""
        home = b"HOME=" + str(self._stage.root).encode() + b"\0"
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                environment = (folder / "environ").read_bytes()
                if home in environment:
                    self.told |= {environment, (folder / "cmdline").read_bytes()}
        for path in secret_files(self._stage.root):
            with contextlib.suppress(OSError):
                if stat.S_IMODE(path.stat().st_mode) & 0o077:
                    self.loose.add(str(path))
                self.secrets.setdefault(str(path.relative_to(self._stage.root)), set()).update(inside(path))
        for token in self._stage.typed:
            with contextlib.suppress(Refusal):
                secret = parse_token(token).secret
                self.secrets[f"join token {token[:16]}"] = {secret.reveal(), join_key(secret), token.encode()}

    def leaks(self, *answers: str) -> list[str]:
        """Each secret that was found where it has no place, and where."""
        self.look()
        places = {"processes": b"\n".join(sorted(self.told)), "answers": "\n".join(answers).encode()}
        places |= dict(left_behind(self._stage.root))
        found = []
        for where, raw in sorted(places.items()):
            everything = b"\n".join((raw, *decoded(raw)))
            for what, values in sorted(self.secrets.items()):
                if any(form in everything for value in values for form in forms(value)):
                    found.append(f"{what} stands in {where}")
        return found


def secret_files(root: Path) -> Iterator[Path]:
    """Where secrets have their place: keyrings, invitations, and the key of each engine that runs."""
    for path in (*root.glob("*/keys/**/*"), *root.glob("keys/**/*"), *root.glob("*/engines/*/engine.key")):
        if path.is_file() and path.suffix != ".pub" and b"BEGIN CERTIFICATE" not in path.read_bytes():
            yield path


def inside(path: Path) -> set[bytes]:
    """The secret in a file: as it is, and of a private key the number itself."""
    raw = path.read_bytes().strip()
    found = {raw}
    if b"OPENSSH PRIVATE KEY" in raw:
        key = load_ssh_private_key(raw, None)
    elif b"PRIVATE KEY" in raw:
        key = load_pem_private_key(raw, None)  # type: ignore[assignment]
    else:
        return found
    if isinstance(key, Ed25519PrivateKey):
        found.add(key.private_bytes_raw())
    if isinstance(key, EllipticCurvePrivateKey):
        found.add(key.private_numbers().private_value.to_bytes(32, "big"))
    return found | {line for line in raw.splitlines() if len(line) >= 40 and b" " not in line}


def forms(value: bytes) -> Iterator[bytes]:
    """Every form in which a program might write it."""
    assert len(value) >= 16, "too short to be told from chance"
    yield from (value, value.hex().encode(), value.hex().upper().encode())
    yield base64.b64encode(value).rstrip(b"=")
    yield base64.urlsafe_b64encode(value).rstrip(b"=")


def decoded(raw: bytes) -> Iterator[bytes]:
    """What is encoded inside: the payloads of signed envelopes, above all."""
    for run in set(_ENCODED.findall(raw)):
        plain = run.rstrip(b"=").replace(b"-", b"+").replace(b"_", b"/")
        with contextlib.suppress(ValueError):
            yield base64.b64decode(plain + b"=" * (-len(plain) % 4))
    for run in set(_HEX.findall(raw)):
        with contextlib.suppress(ValueError):
            yield bytes.fromhex(run.decode())


def left_behind(root: Path) -> Iterator[tuple[str, bytes]]:
    """Everything else that lies there: files, rows of databases, and every object of every repository."""
    own = set(secret_files(root))
    for path in sorted(root.rglob("*")):
        if path in own or not path.is_file() or path.is_symlink():
            continue
        yield str(path.relative_to(root)), path.read_bytes()
        if path.suffix == ".sqlite":
            yield f"rows of {path.relative_to(root)}", "\n".join(_rows(path)).encode("utf-8", "replace")
    for repository in sorted({p.parent for p in root.rglob("HEAD") if (p.parent / "objects").is_dir()}):
        yield f"objects of {repository.relative_to(root)}", objects(repository)


def _rows(path: Path) -> Iterable[str]:
    database = sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=5)
    try:
        return list(database.iterdump())
    finally:
        database.close()


def objects(repository: Path) -> bytes:
    """Every object that is there, also what no branch reaches any more."""
    made = subprocess.run(
        ["git", "--git-dir", str(repository), "cat-file", "--batch-all-objects", "--batch"],
        capture_output=True,
        check=True,
    )
    return made.stdout
