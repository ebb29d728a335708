"""What every run of the lab stands on: clock, wires, hosts, a controller, faults, and the account at the end.

A run is chaos, then healing, then rest: it is over as soon as nothing has been left to do for a while. `world` is the
whole fleet, with people and plans; `talk` is only controller and hosts talking. `watchers` look after every step.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from gridops.base.ids import HostId
from gridops.controller.core.pack import pack
from gridops.lab.acceptance import Acceptance
from gridops.lab.agenda import Agenda
from gridops.lab.auditor import Auditor
from gridops.lab.broken import Broken
from gridops.lab.dice import Dice
from gridops.lab.forger import Forger
from gridops.lab.head import Head
from gridops.lab.head import Surroundings as HeadSurroundings
from gridops.lab.host import LabHost, Surroundings
from gridops.lab.nemesis import Nemesis
from gridops.lab.net import Net, refusal_in
from gridops.lab.options import Options
from gridops.lab.people import Keys, Repository
from gridops.lab.pusher import Thief
from gridops.lab.refusals import Refusals
from gridops.lab.strikes import Strikes
from gridops.lab.trace import Trace
from gridops.lab.usurper import Usurper
from gridops.lab.watchers import Watchers

LOOK_MS = 5_000
_OF_A_START = {"term", "starts"}
"""Each start takes a term of its own."""


class Stage(ABC):
    """Everything of one run."""

    quiet_ms = 30_000
    """So long a healed fleet in which everything stands must be left alone."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.agenda = Agenda()
        self.trace = Trace(self.agenda)
        self.net = Net(self.agenda, options, Dice(options.seed, "net"))
        self.nemesis = Nemesis(options, self.agenda, self.trace, self.net)
        self.keys = Keys.made(signed_commits=options.signed_commits)
        self.repository = repository = Repository(options, self.keys)
        self._thief = Thief(repository, self.keys, self.trace)
        self._forger = Forger(options, self.keys.machine, self.trace)
        self.hosts: dict[HostId, LabHost] = {}
        self.refusals = Refusals(options, self.trace)
        self._usurper = Usurper(options, self.keys.machine, self.hosts, self.refusals)
        self.strikes = strikes = Strikes(options)
        self._look_ms = 0
        self._quiet: tuple[int, int] | None = None
        self._waits_ms = 0
        """So long what failed before the healing may still wait for its next attempt then: it doubles with each."""
        """Since when nothing has been left to do, and how many commands there were then."""
        around = HeadSurroundings(
            self.agenda,
            self.trace,
            options,
            repository.standing_roots,
            self.keys.machine,
            self._down,
            lambda: repository.tip,
            repository.read,
            strikes,
        )
        self.head = self.make_head(around)
        self.acceptance = Acceptance(self.head.platter, repository.follows)
        self.watchers = Watchers(self.acceptance, self.refusals)
        self.auditor = Auditor(self.head.platter, self.hosts, self.trace, options)
        shared = Surroundings(
            self.agenda, self.net, self.trace, options, self.keys.root, self.head.receive, self.watchers.look, strikes
        )
        for name in options.host_names:
            self.hosts[name] = LabHost(name, shared)
        self.begin()
        self.nemesis.begin(self.hosts, self.head)

    def forget(self, anew: bool = False) -> None:
        """The journal is another one than before, an older copy or made anew: whoever reads its rows begins anew."""
        self.auditor.forget()
        self.acceptance.forget_rows(anew=anew)

    # --- what a world does its own way ------------------------------------------------------------------------------

    @abstractmethod
    def make_head(self, around: HeadSurroundings) -> Head:
        """Whoever is the controller."""

    @abstractmethod
    def begin(self) -> None:
        """What people do, and what happens to their machines."""

    @abstractmethod
    def calm_down(self) -> None:
        """People want nothing more than what can be had."""

    @abstractmethod
    def not_as_wanted(self) -> list[str]:
        """What does not stand as it should by now."""

    @abstractmethod
    def excused(self) -> bool:
        """There is a named reason why something does not stand, and an alarm may be left."""

    # --- the run ----------------------------------------------------------------------------------------------------

    def run(self, until_step: int | None = None) -> None:
        """Chaos, healing, and the account of it. Raises Broken, or whatever the product lets out."""
        end_ms = self.options.chaos_ms + self.options.heal_ms
        self.agenda.after(self.options.chaos_ms, self._heal)
        rested = self._until_rest(end_ms, until_step)
        if self.agenda.steps == until_step:
            return
        if self._waits_ms > 0 and self.unsettled():
            end_ms += self._waits_ms
            rested = self._until_rest(end_ms, until_step)
            if self.agenda.steps == until_step:
                return
        left = self.unsettled()
        if left:
            raise Broken("L1", "; ".join(left))
        # What stands only now, because its last attempt had to wait for its turn, has yet to be left alone.
        rested = rested or self._until_rest(end_ms + self.quiet_ms + 2 * LOOK_MS, until_step)
        if self.agenda.steps == until_step:
            return
        if not rested:
            raise Broken("L5", f"nothing is left to do, and yet it does not come to rest for {self.quiet_ms} ms")
        controller = self.head.current
        if controller is not None and controller.state.alarms and not self.excused():
            raise Broken("L4", "; ".join(sorted(controller.state.alarms)))
        if self._forger.spoilt & self.auditor.done:
            self.trace.saw("a grant was over, and given again")
        self.replayed()

    def _until_rest(self, end_ms: int, until_step: int | None) -> bool:
        """Whether it came to rest before that time. Ends as well before the step that somebody asked for."""
        while self.agenda.step(end_ms):
            if self.agenda.steps == until_step:
                return False
            self.whole()
            if self._at_rest():
                return True
        return False

    def whole(self) -> None:
        """What must hold of the whole fleet, after every step."""
        if self.head.current is not None:
            self.acceptance.look()
            self.auditor.look(self.agenda.now_ms)

    def unsettled(self) -> list[str]:
        """What is not as it should be by now."""
        controller = self.head.current
        if controller is None:
            return ["there is no controller"]
        left = self.not_as_wanted()
        gone = self.repository.expunged  # nobody waits for what they would say
        for name, known in sorted((h, book) for h, book in controller.state.hosts.items() if h not in gone):
            open_ = [e.body.seq for e in known.outbox.entries if e.open]
            if open_ or known.outbox.unknown:
                left.append(f"{name} has not settled the commands {open_ + [u.seq for u in known.outbox.unknown]}")
        for name, host in self.hosts.items():
            owed = host.host.receipts.head - host.host.receipts.acked
            if owed and name not in gone:
                left.append(f"{name} owes {owed} receipts")
        return left

    def replayed(self) -> None:
        """A controller that begins on this disk knows what the one that wrote it knew. Raises Broken."""
        controller = self.head.current
        if controller is None:
            return
        before, accepted, kept = pack(controller.state)["state"], controller.state.accepted, self.head.platter.accepted
        if accepted is not None and (kept is None or kept.commit != accepted.commit):
            raise Broken("S12", "the note of what is in force, for when the journal is lost, is of an older commit")
        self.strikes.over = True
        self.head.kind = True
        known = pack(self.head.again().state)["state"]
        differs = sorted(
            k for k in before.keys() | known.keys() if k not in _OF_A_START and before.get(k) != known.get(k)
        )
        if differs:
            raise Broken("S11", f"after a replay these are different: {', '.join(differs)}")

    def _heal(self) -> None:
        self.nemesis.heal(self.hosts, self.head)
        self.strikes.heal()
        self.calm_down()
        controller = self.head.current
        if controller is not None:
            attempts = [a for host in controller.state.hosts.values() for a in host.attempts.values()]
            self._waits_ms = max((a.wait_until_ms - controller.now() for a in attempts), default=0)

    def _at_rest(self) -> bool:
        """Everything stands, and for a while nobody has been told to do anything."""
        now_ms = self.agenda.now_ms
        if not self.nemesis.healed or now_ms < self._look_ms:
            return False
        self._look_ms = now_ms + LOOK_MS
        given = sum(1 for _, _, kind, _ in self.head.platter.rows if kind == "body_queued")
        if self.unsettled():
            self._quiet = None
        elif self._quiet is None or self._quiet[1] != given:
            self._quiet = now_ms, given
        return self._quiet is not None and now_ms - self._quiet[0] >= self.quiet_ms

    def _down(self, host: HostId, text: str) -> None:
        if refusal_in(text) is None:
            # Whoever does not know yet that another has taken over need not know this either.
            if host in self.auditor.gone.expunged and not self.head.twins:
                raise Broken("S6", f"the controller answers {host}, whose key was expunged")
            if not self.nemesis.healed:
                text = self._usurper.passes_on(host, self._thief.passes_on(text))
                text = self._forger.passes_on(host, text)
        self.net.send(host, False, text, self.hosts[host].hear)
