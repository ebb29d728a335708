"""Keys that were believed once: whose they were, as what, until when. For people who look back; nothing counts by them.

Nothing of it is written down a second time: root N+1 leaves a key out, and the moment in which it was issued is the one
until which the key was accepted. So it holds for every root document there ever was, and no host has to read anything
new to believe a revocation. `RootChain.advance` asks here while it walks; `gridops trust show` and `verify` show it.
Must never let a former key count towards anything: who asks what counts asks `RootChain.keys`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gridops.base import canon, limits
from gridops.base.ids import PersonName
from gridops.base.units import render_instant
from gridops.trust.keys import PublicKey, parse_key

if TYPE_CHECKING:
    from gridops.trust.envelope import Sealed
    from gridops.trust.root import Root, RootChain


@dataclass(frozen=True, slots=True)
class Former:
    """A key that a root document left out of roles that the one before it had named it in."""

    holder: PersonName
    key: str
    roles: tuple[str, ...]
    """What it may say no more, sorted."""
    accepted_until_ms: int
    """When that document was issued, by the clock of whoever made it."""
    root: int
    """Its version."""
    stolen: bool = False
    """A controller's key that went with its epoch: nothing that it ever signed is believed."""


def gone(old: Root, new: Root) -> tuple[Former, ...]:
    """The keys that the next root names no more, or in fewer roles, by holder."""
    was, stays = _named(old), _named(new)
    stolen = new.controller_epoch != old.controller_epoch
    found = []
    for (holder, key), roles in sorted(was.items()):
        lost = tuple(sorted(roles - stays.get((holder, key), set())))
        if lost:
            ended = stolen and "controller" in lost
            found.append(Former(PersonName(holder), key, lost, new.issued_ms, new.version, ended))
    return tuple(found)


def kept(former: Iterable[Former]) -> tuple[Former, ...]:
    """As many as are remembered, the newest last."""
    return tuple(former)[-limits.FORMER_KEYS :]


def signers(chain: RootChain, sealed: Sealed, kind: str, roles: Iterable[str]) -> tuple[tuple[PublicKey, Former], ...]:
    """Who of those that may say such things no more signed this; each key with its last end."""
    from gridops.trust.envelope import verified  # it is below `root`, which asks here

    asked = set(roles)
    believed = {key for role in asked for key in chain.keys(role)}
    ends = {parse_key(one.key): one for one in chain.former if asked & set(one.roles)}
    left = tuple(key for key in ends if key not in believed)
    return tuple((key, ends[key]) for key in verified(sealed, kind, left))


def issued_ms(sealed: Sealed) -> int | None:
    """When a document says that it was issued. Its own word: whoever holds the key can write any moment."""
    try:
        said = canon.loads(sealed.payload)
    except canon.NotCanonical:
        return None
    found = said.get("issued_ms", said.get("created_ms")) if isinstance(said, dict) else None
    return found if isinstance(found, int) else None


def words(one: Former) -> str:
    """Until when a key was accepted, and as what."""
    stolen = "; it was stolen, and nothing that it ever signed is believed" if one.stolen else ""
    return f"{', '.join(one.roles)} until {render_instant(one.accepted_until_ms)} (root {one.root}){stolen}"


def compared(one: Former, sealed: Sealed) -> str:
    """Whether a document says that it was issued while its key was accepted."""
    at_ms = issued_ms(sealed)
    if at_ms is None:
        return "it does not say when it was issued"
    when = "before that" if at_ms < one.accepted_until_ms else "not before that"
    return f"it says that it was issued at {render_instant(at_ms)}, {when}"


def _named(root: Root) -> dict[tuple[str, str], set[str]]:
    found: dict[tuple[str, str], set[str]] = {}
    for role in root.roles:
        for entry in role.keys:
            found.setdefault((entry.holder, entry.key), set()).add(role.name.value)
    return found
