"""Waiting lines of one host, as `gridops_agent.lanes` keeps them with locks: in order, on every name at once."""

from __future__ import annotations

from collections import defaultdict
from typing import assert_never

from gridops.base.ids import Digest
from gridops.model.action import Action, Drain, Evict, Load, Operate, Unload, Warm
from gridops_agent.core.state import Host

Names = tuple[tuple[str, str], ...]


class Lines:
    """Tickets in lines by name."""

    def __init__(self) -> None:
        self._lines: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
        self._given = 0

    def join(self, names: Names) -> int:
        """A ticket at the end of every named line."""
        self._given += 1
        for name in names:
            self._lines[name].append(self._given)
        return self._given

    def turn(self, ticket: int, names: Names) -> bool:
        """Whether it is first in all of them."""
        return all(self._lines[name][0] == ticket for name in names)

    def leave(self, ticket: int, names: Names) -> None:
        for name in names:
            self._lines[name].remove(ticket)


def names_of(host: Host, body: Digest, action: Action) -> Names:
    """The lines of a command."""
    match action:
        case Load() | Evict():
            return (("transfer", ""),)
        case Warm():
            return residency(host, body)
        case Drain() | Operate():
            return (("residency", action.incarnation),)
        case Unload():
            return residency(host, action.incarnation)
        case _:
            assert_never(action)


def residency(host: Host, body: Digest) -> Names:
    """One residency and the devices whose memory it changes."""
    command, held = host.commands.get(body), host.held.get(body)
    warm = held.warm if held is not None else command.body.action if command is not None else None
    devices = warm.devices if isinstance(warm, Warm) else ()
    return (("residency", body), *(("device", device) for device in sorted(set(devices))))
