"""One fleet of the lab: chaos first, then everything heals and what was wanted must come to stand.

Walk it as a story: people commit, the controller plans and sends, the network loses and doubles, hosts obey, crash and
wake; after `chaos_ms` nothing fails any more, and within `heal_ms` all that is wanted runs, every command has its
outcome and no receipt is owed. `watchers` look after every step.
"""

from __future__ import annotations

from collections.abc import Callable

from gridops.base.ids import HostId
from gridops.controller.core.given_up import given_up
from gridops.controller.core.pack import pack
from gridops.controller.service import Controller
from gridops.lab.agenda import Agenda
from gridops.lab.auditor import Auditor
from gridops.lab.broken import Broken
from gridops.lab.dice import Dice
from gridops.lab.head import SCOPE, Head
from gridops.lab.head import Surroundings as HeadSurroundings
from gridops.lab.host import LabHost, Surroundings
from gridops.lab.net import Net
from gridops.lab.options import Options
from gridops.lab.people import Keys, People, Repository
from gridops.lab.trace import Trace
from gridops.lab.watchers import Watchers
from gridops.model.snapshot import ResidencyState

LOOK_MS = 5_000
QUIET_MS = 30_000
"""So long a healed fleet in which everything stands must be left alone."""
_OF_A_START = {"term", "starts"}
"""Each start takes a term of its own."""


class World:
    """Everything of one run."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.agenda = Agenda()
        self.trace = Trace(self.agenda)
        self.net = Net(self.agenda, options, Dice(options.seed, "net"))
        self.watchers = Watchers()
        self._dice = Dice(options.seed, "world")
        self._healed = False
        self._look_ms = 0
        self._quiet: tuple[int, int] | None = None
        """Since when nothing has been left to do, and how many commands there were then."""
        keys = Keys.made()
        self.repository = Repository(options, keys.root)
        around = HeadSurroundings(
            self.agenda, self.trace, options, keys.root, keys.machine, self._down, lambda: self.repository.tip
        )
        self.hosts: dict[HostId, LabHost] = {}
        self.head = Head(around)
        stale_ms = self.repository.stale_ms
        self.auditor = Auditor(self.head.platter, self.hosts, stale_ms)
        self.people = People(self.repository, keys, self.head)
        shared = Surroundings(
            self.agenda, self.net, self.trace, options, keys.root, self.head.receive, self.watchers.look
        )
        for name in self.repository.hosts:
            self.hosts[name] = LabHost(name, shared)
        self._faults()

    def run(self, until_step: int | None = None) -> None:
        """Chaos, healing, and the account of it. Raises Broken, or whatever the product lets out."""
        end_ms = self.options.chaos_ms + self.options.heal_ms
        self.agenda.after(self.options.chaos_ms, self._heal)
        rested = False
        while not rested and self.agenda.step(end_ms):
            if self.agenda.steps == until_step:
                return
            self._whole()
            rested = self._at_rest()
        left = self.unsettled()
        if left:
            raise Broken("L1", "; ".join(left))
        if not rested:
            raise Broken("L5", f"nothing is left to do, and yet it does not come to rest for {QUIET_MS} ms")
        self._no_alarms()
        self.replayed()

    def _at_rest(self) -> bool:
        """Everything stands, and for a while nobody has been told to do anything."""
        now_ms = self.agenda.now_ms
        if not self._healed or now_ms < self._look_ms:
            return False
        self._look_ms = now_ms + LOOK_MS
        given = sum(1 for _, _, kind, _ in self.head.platter.rows if kind == "body_queued")
        if self.unsettled():
            self._quiet = None
        elif self._quiet is None or self._quiet[1] != given:
            self._quiet = now_ms, given
        return self._quiet is not None and now_ms - self._quiet[0] >= QUIET_MS

    def _no_alarms(self) -> None:
        controller = self.head.current
        if controller is not None and controller.state.alarms and not self._waits_for_people(controller):
            raise Broken("L4", "; ".join(sorted(controller.state.alarms)))

    def _down(self, host: HostId, text: str) -> None:
        self.net.send(host, False, text, self.hosts[host].hear)

    # --- faults -----------------------------------------------------------------------------------------------------

    def _faults(self) -> None:
        options, dice = self.options, self._dice
        self._every(options.commit_every_ms, self.people.change_their_minds)
        self._every(options.apply_after_ms, self.people.look, always=True)
        self._every(options.cut_every_ms, self._cut)
        self._every(options.reboot_every_ms, lambda: dice.one_of(tuple(self.hosts.values())).reboot())
        self._every(options.engine_death_every_ms, self._kill)
        self._every(options.clock_step_every_ms, self._step_clock)

    def _every(self, every_ms: int, do: Callable[[], None], *, always: bool = False) -> None:
        if every_ms == 0:
            return

        def turn() -> None:
            if self._healed and not always:
                return
            do()
            self.agenda.after(self._dice.between(every_ms // 2, every_ms * 3 // 2), turn)

        self.agenda.after(self._dice.between(every_ms // 2, every_ms * 3 // 2), turn)

    def _cut(self) -> None:
        host, for_ms = self._dice.one_of(tuple(self.hosts)), self._dice.between(5_000, 150_000)
        up, down = self._dice.one_of(((True, True), (True, False), (False, True)))
        self.trace.add("network", f"cuts {host} off for {for_ms} ms{'' if up and down else ', one way'}")
        self.net.cut(host, for_ms, up=up, down=down)

    def _kill(self) -> None:
        host = self._dice.one_of(tuple(self.hosts.values()))
        if host.processes.living:
            pid = self._dice.one_of(tuple(host.processes.living))
            self.trace.add(host.name, f"process {pid} dies")
            host.processes.end(pid)

    def _step_clock(self) -> None:
        by_ms = self._dice.between(-3_600_000, 3_600_000)
        who = self._dice.one_of((None, *self.hosts))
        clock = self.head.clock if who is None else self.hosts[who].clock
        clock.wrong_ms = by_ms
        self.trace.add(who or "controller", f"the wall clock is {by_ms} ms off")

    # --- healing ----------------------------------------------------------------------------------------------------

    def _heal(self) -> None:
        """Nothing fails any more, and people want something that the fleet can do."""
        self._healed = True
        self.trace.add("world", "heals")
        self.net.heal()
        self.head.kind = self.people.calm = True
        self.head.clock.wrong_ms = 0
        for host in self.hosts.values():
            host.ledger.crash_ppm = 0
            host.clock.wrong_ms = 0
            host.processes.settle()
            if not host.up:
                host.down(0)
        self.repository.drains.clear()
        self.repository.mode = "automatic" if self.options.automatic else "recommend"
        room = self.options.hosts * (self.options.host_mib * 6 // 10 // self.options.replica_mib)
        for profile, count in self.repository.replicas.items():
            self.repository.replicas[profile] = min(count, room // len(self.repository.replicas))
        self.repository.commit("heal")

    def unsettled(self) -> list[str]:
        """What is not as it should be by now."""
        controller = self.head.current
        if controller is None:
            return ["there is no controller"]
        left = [] if self._waits_for_people(controller) else self._not_as_wanted()
        for name, known in sorted(controller.state.hosts.items()):
            open_ = [e.body.seq for e in known.outbox.entries if e.open]
            if open_:
                left.append(f"{name} has not settled the commands {open_}")
        for name, host in self.hosts.items():
            owed = host.host.receipts.head - host.host.receipts.acked
            if owed:
                left.append(f"{name} owes {owed} receipts")
        return left

    def _waits_for_people(self, controller: Controller) -> bool:
        """A named reason why what is wanted does not stand: they said no to it, or an engine was given up."""
        soft, book = controller.soft.scope(SCOPE), controller.state.scope(SCOPE)
        rejected = soft.candidate is not None and soft.candidate.decisions_digest in book.rejected
        rights = controller.rights(SCOPE, controller.now())
        return rejected or bool(given_up(rights, controller.soft, controller.roster))

    def _not_as_wanted(self) -> list[str]:
        wanted = sorted(self.repository.replicas.items())
        return [f"{p} has {self._ready(p)} of {count} replicas" for p, count in wanted if self._ready(p) != count]

    def _ready(self, profile: str) -> int:
        found = 0
        for host in self.hosts.values():
            for held in host.host.held.values():
                lives = host.processes.of(held.body) is not None
                found += held.profile == profile and held.state is ResidencyState.READY and lives
        return found

    # --- at every step ----------------------------------------------------------------------------------------------

    def _whole(self) -> None:
        controller = self.head.current
        if controller is None:
            return
        soft = controller.soft.scopes.get(SCOPE)
        if soft is not None and soft.unsafe:
            raise Broken("S15", soft.unsafe[0])
        self.auditor.look(self.agenda.now_ms)

    def replayed(self) -> None:
        """A controller that begins on this disk knows what the one that wrote it knew. Raises Broken."""
        controller = self.head.current
        if controller is None:
            return
        before = pack(controller.state)["state"]
        self.head.kind = True
        known = pack(self.head.again().state)["state"]
        differs = sorted(
            k for k in before.keys() | known.keys() if k not in _OF_A_START and before.get(k) != known.get(k)
        )
        if differs:
            raise Broken("S11", f"after a replay these are different: {', '.join(differs)}")
