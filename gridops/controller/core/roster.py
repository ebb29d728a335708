"""Who is who in the accepted intent: hosts and their keys by name, indexed once, because every pass asks for each.

A host is admitted when it is declared and a commit holds its key that is not expunged. Nothing else admits one.
"""

from __future__ import annotations

from gridops.base.ids import HostId, ScopeName
from gridops.model.fleet import Host, HostKey
from gridops.model.intent import Desired
from gridops.model.profile import Profile
from gridops.trust.keys import PublicKey, parse_key


class Roster:
    """An index over one `Desired`; as immutable as it."""

    def __init__(self, desired: Desired) -> None:
        self.desired = desired
        self.hosts: dict[HostId, Host] = {h.id: h for h in desired.hosts}
        self.keys: dict[HostId, HostKey] = {k.host: k for k in desired.keys}
        self.draining = frozenset(d.host for d in desired.drains)
        self._parsed: dict[HostId, PublicKey] = {}

    def admitted(self, host: HostId) -> HostKey | None:
        """The key that speaks for a host; None when nobody may."""
        key = self.keys.get(host)
        return key if key is not None and not key.expunged and host in self.hosts else None

    def key_of(self, host: HostId) -> PublicKey | None:
        """The key of an admitted host, read from its text once: every heartbeat asks."""
        admitted, known = self.admitted(host), self._parsed.get(host)
        if admitted is None or known is not None:
            return known if admitted is not None else None
        return self._parsed.setdefault(host, parse_key(admitted.key))

    def scope_of(self, host: HostId) -> ScopeName | None:
        found = self.hosts.get(host)
        return found.scope if found is not None else None

    def hosts_of(self, scope: ScopeName) -> tuple[Host, ...]:
        return tuple(h for h in self.desired.hosts if h.scope == scope)

    def profiles_of(self, scope: ScopeName) -> tuple[Profile, ...]:
        return tuple(p for p in self.desired.profiles if p.scope == scope)
