"""Hosts that fall silent, and what people say of them: written off until they speak again, or taken out for good.

Mostly the engines run on behind a cut wire, with commands that nobody knows the end of; people who write a host off
believe that it is gone, and it comes back all the same. A key that was expunged never returns. `auditor` sees to it
that nothing is asked or believed of either, and that what such a host runs counts for nobody.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from gridops.base.ids import HostId
from gridops.lab.dice import Dice
from gridops.lab.host import LabHost
from gridops.lab.people import People

if TYPE_CHECKING:
    from gridops.lab.stage import Stage

SILENT_MS = (20_000, 150_000)
NOTICED_MS = (1_000, 60_000)
"""So long after a host counts as silent somebody decides what is to become of it."""


class Losses:
    """Whoever loses hosts."""

    def __init__(self, people: People, stage: Stage) -> None:
        self._people = people
        self._repository = people.repository
        self._hosts: Mapping[HostId, LabHost] = stage.hosts
        self._stage = stage
        self._dice = Dice(people.repository.options.seed, "losses")

    def lose(self) -> None:
        """One host that is still ours falls silent, and people notice; or its key was copied, and it speaks on."""
        dice, left = self._dice, [name for name in self._hosts if name not in self._repository.expunged]
        host = dice.one_of(left)
        if dice.happens(200_000):
            self._expunge(host)
            return
        silent_ms = dice.between(*SILENT_MS)
        if dice.happens(800_000):
            self._stage.trace.add("network", f"loses {host} for {silent_ms} ms, and its engines run on")
            self._stage.net.cut(host, silent_ms, up=True, down=True)
        else:
            self._hosts[host].reboot()
            self._hosts[host].down(silent_ms)
        noticed_ms = self._repository.options.stale_ms + dice.between(*NOTICED_MS)
        self._stage.agenda.after(noticed_ms, lambda: self._decide(host))

    def _decide(self, host: HostId) -> None:
        if self._people.calm or host in self._repository.expunged:
            return
        if not self._dice.happens(500_000) or not self._expunge(host):
            self._people.write_off(host)

    def _expunge(self, host: HostId) -> bool:
        """Where its scope has another one: a fleet of nobody proves nothing."""
        options, gone = self._repository.options, self._repository.expunged
        mine = [name for name in self._hosts if options.scope_of(name) == options.scope_of(host) and name not in gone]
        if mine == [host]:
            return False
        self._repository.expunge(host, undeclared=self._dice.happens(500_000))
        self._stage.trace.add("people", f"expunge {host}")
        return True
