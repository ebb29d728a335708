"""Signed qualifications of this host, as files in its state folder: written whole, read back only with its signature.

A file is named by the digest of what it says. What does not verify is set aside and said, never used. Called by
`qualify` and by the shell, which reports what was measured.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from gridops.base import limits
from gridops.base.codes import host as codes
from gridops.base.errors import GridopsError, Refusal
from gridops.base.ids import Digest
from gridops.disk.atomic import write_atomic
from gridops.model.measured import Measured
from gridops.protocol.qualification import Qualification, measured_of, open_qualification, seal_qualification
from gridops.trust.keys import MachineSigner, PublicKey
from gridops_agent.alarms import Alarms


def keep(folder: Path, made: Qualification, signer: MachineSigner) -> tuple[Path, Digest]:
    """Sign and write. Raises Failed."""
    text = seal_qualification(made, signer)
    _, digest = open_qualification(text, signer.public)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    file = folder / f"{digest.removeprefix('sha256:')}.json"
    write_atomic(file, text.encode())
    return file, digest


def reported(folder: Path, key: PublicKey, alarms: Alarms, *former: PublicKey) -> tuple[Measured, ...]:
    """What the host reports; what could not be believed becomes an alarm."""
    found, doubts = measured(folder, key, *former)
    for words in doubts:
        alarms.warn(codes.EVIDENCE_DOUBTFUL.code, words, about=words)
    return found


def measured(folder: Path, key: PublicKey, *former: PublicKey) -> tuple[tuple[Measured, ...], tuple[str, ...]]:
    """What this host has measured, newest of each configuration, and what could not be believed, in words."""
    found, bad = used(folder, key, *former)
    return tuple(one for one, _ in found), bad


def used(
    folder: Path, key: PublicKey, *former: PublicKey
) -> tuple[tuple[tuple[Measured, Qualification], ...], tuple[str, ...]]:
    """The same with the qualification that each measurement is from. What a former key signed stays true."""
    found: dict[tuple[object, ...], tuple[Measured, Qualification]] = {}
    bad: list[str] = []
    files = sorted(folder.glob("*.json")) if folder.is_dir() else []
    for file in files:
        try:
            made, digest = _opened(file.read_bytes(), (key, *former))
            if file.stem != digest.removeprefix("sha256:"):
                raise Refusal("bad_name", "it is not what its name says")
        except (GridopsError, OSError) as error:
            bad.append(f"{file} is not used: {error}")
            continue
        one = measured_of(made, digest)
        if one is None:
            continue
        key_of = (one.engine, one.backend, one.revision, one.settings, one.context, one.lanes, one.kind, one.device)
        before = found.get(key_of)
        if before is None or (before[0].at_ms, before[0].evidence) < (one.at_ms, one.evidence):
            found[key_of] = one, made
    newest = sorted(found.values(), key=lambda pair: (-pair[0].at_ms, pair[0].evidence))[: limits.MEASURED_PER_HOST]
    return tuple(sorted(newest, key=lambda pair: pair[0].evidence)), tuple(bad)


def _opened(raw: bytes, keys: tuple[PublicKey, ...]) -> tuple[Qualification, Digest]:
    for key in keys[1:]:
        with contextlib.suppress(Refusal):
            return open_qualification(raw, key)
    return open_qualification(raw, keys[0])
