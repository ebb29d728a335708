"""One whole fleet of the lab: chaos first, then everything heals and what was wanted must come to stand.

Walk it as a story: people commit, the controller plans and sends, the network loses and doubles, hosts obey, crash and
wake; after `chaos_ms` nothing fails any more, and within `heal_ms` all that is wanted runs, every command has its
outcome and no receipt is owed.
"""

from __future__ import annotations

from collections import Counter

from gridops.base.codes.protocol import RECEIPT_GAP
from gridops.base.ids import ScopeName
from gridops.controller.core.given_up import given_up
from gridops.controller.service import Controller
from gridops.lab.broken import Broken
from gridops.lab.callers import Callers
from gridops.lab.dice import Dice
from gridops.lab.forecasts import Forecasts
from gridops.lab.head import Head
from gridops.lab.head import Surroundings as HeadSurroundings
from gridops.lab.host import SIGNED_CONTEXT
from gridops.lab.losses import Losses
from gridops.lab.older import NOTICE_MS, Older
from gridops.lab.people import People
from gridops.lab.pusher import Pusher
from gridops.lab.rekeys import Rekeys
from gridops.lab.stage import Stage
from gridops.model.snapshot import ResidencyState


class World(Stage):
    """A fleet with its people."""

    def make_head(self, around: HeadSurroundings) -> Head:
        return Head(around)

    def begin(self) -> None:
        self.people = People(self.repository, self.keys, self.head)
        self.nemesis.every(self.options.commit_every_ms, self.people.change_their_minds)
        self.nemesis.every(self.options.apply_after_ms, self.people.look, always=True)
        self.nemesis.every(self.options.storm_every_ms, self.people.storm)
        self.nemesis.every(self.options.lose_every_ms, Losses(self.people, self).lose)
        self.nemesis.every(self.options.rekey_every_ms, Rekeys(self.people, self).ask)
        self.nemesis.every(self.options.forecast_every_ms, Forecasts(self.head).ask)
        if self.options.may_rebuild:
            older = Older(self.head, Dice(self.options.seed, "older journals"), self.forget)
            self.nemesis.every(self.options.restore_every_ms, older.restore)
            self.nemesis.every(NOTICE_MS, older.mend, always=True)
            self.nemesis.every(NOTICE_MS, self.people.look_at_hosts, always=True)
        callers = Callers(self.options, self.hosts, self.head, self.auditor.gone)
        self.nemesis.every(self.options.ask_every_ms, callers.ask, always=True)
        if self.repository.forge is not None:
            pusher = Pusher(self.repository, self.repository.forge, self.keys, self)
            self.nemesis.every(self.options.renew_every_ms, self.people.renew)
            self.nemesis.every(self.options.pusher_every_ms, pusher.push)

    def calm_down(self) -> None:
        """People want something that the fleet can do."""
        self.people.calm = True
        self.repository.drains.clear()
        options, replicas = self.options, self.repository.replicas
        self.repository.modes = dict.fromkeys(options.scope_names, "automatic" if options.automatic else "recommend")
        each = options.host_mib * 6 // 10 // options.replica_mib
        ours = [name for name in options.host_names if name not in self.repository.expunged]
        hosts, models = (Counter(options.scope_of(name) for name in names) for names in (ours, replicas))
        for profile, count in replicas.items():
            scope = options.scope_of(profile)
            replicas[profile] = min(count, hosts[scope], hosts[scope] * each // models[scope])
        if self.options.catalog:
            contexts = self.repository.contexts
            self.repository.contexts = {name: min(context, SIGNED_CONTEXT) for name, context in contexts.items()}
        self.repository.commit("heal")

    def whole(self) -> None:
        controller = self.head.current
        if controller is None:
            return
        for soft in controller.soft.scopes.values():
            if soft.unsafe:
                raise Broken("S15", soft.unsafe[0])
        super().whole()

    def not_as_wanted(self) -> list[str]:
        excused = self._excused()
        wanted = [
            (p, n) for p, n in sorted(self.repository.replicas.items()) if self.options.scope_of(p) not in excused
        ]
        return [f"{p} has {self._ready(p)} of {count} replicas" for p, count in wanted if self._ready(p) != count]

    def excused(self) -> bool:
        """People said no to what is wanted, or an engine was given up; or receipts were lost with a journal."""
        controller = self.head.current
        alarms = controller.state.alarms if controller is not None and self.options.may_rebuild else ()
        lost = bool(alarms) and all(key.startswith(f"{RECEIPT_GAP.code}:") for key in alarms)
        return lost or bool(self._excused())

    def _excused(self) -> frozenset[ScopeName]:
        controller = self.head.current
        if controller is None:
            return frozenset()
        return frozenset(scope for scope in self.options.scope_names if self._waits_for_people(controller, scope))

    def _waits_for_people(self, controller: Controller, scope: ScopeName) -> bool:
        soft, book = controller.soft.scope(scope), controller.state.scope(scope)
        rejected = soft.candidate is not None and soft.candidate.decisions_digest in book.rejected
        rights = controller.rights(scope, controller.now())
        return rejected or bool(given_up(rights, controller.soft, controller.roster))

    def _ready(self, profile: str) -> int:
        found = 0
        for name, host in self.hosts.items():
            if name in self.repository.expunged:
                continue
            for held in host.host.held.values():
                lives = host.processes.of(held.body) is not None
                found += held.profile == profile and held.state is ResidencyState.READY and lives
        return found
