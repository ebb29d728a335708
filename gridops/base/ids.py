"""Names of things: one type per kind of identity, and the rules a name must meet.

Names reach file names, URLs, git refs, process arguments and log lines, so the alphabet is small on purpose:
lower-case letters, digits, `-`, `.` and `_`, beginning with a letter or digit.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NewType

from gridops.base.limits import REPLICA_NAMES_KEPT

HostId = NewType("HostId", str)
DeviceId = NewType("DeviceId", str)
"""Alias of a device on its host: `gpu0`, `cpu0`, `unified0`."""
ProfileName = NewType("ProfileName", str)
ConfigName = NewType("ConfigName", str)
ReplicaId = NewType("ReplicaId", str)
"""`<profile>/<number>`, numbers from 1."""
ScopeName = NewType("ScopeName", str)
PersonName = NewType("PersonName", str)
EngineName = NewType("EngineName", str)
Digest = NewType("Digest", str)
"""`sha256:` and 64 lower-case hex digits."""
PlanId = NewType("PlanId", str)
"""`20261129T090712Z-7f3a2c19`: second of creation and the first 8 digits of the decisions digest."""
CommitId = NewType("CommitId", str)
KeyId = NewType("KeyId", str)
"""Digest over key type and raw public key (trust.md B2)."""

NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_REPLICA = re.compile(r"([a-z0-9][a-z0-9._-]{0,62})/([1-9][0-9]{0,5})")


def is_name(text: str) -> bool:
    """True for a name that may stand for a host, a profile, a config, a scope, a device or a person."""
    return NAME.fullmatch(text) is not None


def is_digest(text: str) -> bool:
    return DIGEST.fullmatch(text) is not None


def is_replica(text: str) -> bool:
    """True for a replica id: a name and a number from 1."""
    return _REPLICA.fullmatch(text) is not None


def replica_id(profile: ProfileName, number: int) -> ReplicaId:
    """The id of replica `number` (from 1) of a profile."""
    return ReplicaId(f"{profile}/{number}")


@lru_cache(maxsize=REPLICA_NAMES_KEPT)
def nobody(profile: ProfileName) -> ReplicaId:
    """Stands where a step on files names a replica that is none: numbers of replicas begin with 1."""
    return ReplicaId(f"{profile}/0")


@lru_cache(maxsize=REPLICA_NAMES_KEPT)
def split_replica(replica: str) -> tuple[ProfileName, int]:
    """Profile and number of a replica id. Raises ValueError for anything that is not one."""
    match = _REPLICA.fullmatch(replica)
    if match is None:
        raise ValueError(f"`{replica}` is not a replica: expected NAME/NUMBER, such as coder/1")
    return ProfileName(match.group(1)), int(match.group(2))


@lru_cache(maxsize=REPLICA_NAMES_KEPT)
def replica_key(replica: str) -> tuple[str, int]:
    """Sort key that puts `a/2` before `a/10`."""
    name, _, number = replica.rpartition("/")
    return name, int(number) if number.isascii() and number.isdigit() else 0


def short(digest: str, digits: int = 8) -> str:
    """The first hex digits of a digest or commit id, for text only; JSON never shortens."""
    return digest.removeprefix("sha256:")[:digits]
