"""The controller as one object: what arrives, what follows, what is durable. Synchronous, on one thread, no loop.

`shell` calls it from its loop, `http` hands it verified requests, tests call it directly. Every method that changes
anything ends with `writer.flush()` before its answer is returned, so nothing leaves that is not on the disk.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from gridops import __version__
from gridops.base import limits
from gridops.base.clock import Clock
from gridops.base.codes.trust import BAD_SCHEMA
from gridops.base.errors import BadSetup, Refusal
from gridops.base.ids import HostId, PlanId, ScopeName, is_name
from gridops.base.record import Malformed, from_bytes
from gridops.controller import polls
from gridops.controller.clock import Steady
from gridops.controller.core import enrol, issue
from gridops.controller.core import rows as r
from gridops.controller.core.disrupted import Service
from gridops.controller.core.events import words
from gridops.controller.core.evidence import proven
from gridops.controller.core.intend import Found, chain_of, judge_commit, judge_unread
from gridops.controller.core.modes import permitted
from gridops.controller.core.observe import recovering
from gridops.controller.core.progress import Progress, ended, progress, settled
from gridops.controller.core.reconcile import Outcome, reconcile
from gridops.controller.core.rights import Hours, Rights
from gridops.controller.core.roster import Roster
from gridops.controller.core.soft import Heard, Soft
from gridops.controller.core.state import State
from gridops.controller.eventring import EventRing
from gridops.controller.faults import Faults
from gridops.controller.lineage import Base, known_roots
from gridops.controller.metrics import Counters
from gridops.controller.polls import Answered, peek
from gridops.controller.statedir import Kept, StateDir
from gridops.controller.views import View
from gridops.controller.writer import Lost, Writer, open_authority
from gridops.disk.zones import rules_of
from gridops.model.intent import Desired
from gridops.planner.budgets import zones_named
from gridops.protocol.messages import Beat, JoinReply, JoinRequest
from gridops.protocol.open import sealed_bytes
from gridops.protocol.plausible import flaw_of_devices
from gridops.store.face import Right
from gridops.trust.envelope import open_envelope
from gridops.trust.keys import parse_key
from gridops.trust.root import RootChain

S = TypeVar("S")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Opening:
    """What a controller is started with."""

    state: StateDir
    roots: tuple[str, ...]
    """Root documents at the watched branch's head, root 1 first."""
    clock: Clock
    authority: Callable[[Path, int], tuple[Right, str | None]] = open_authority
    """Opens what keeps its rows, under a term of this epoch; with the reason when a damaged one was set aside."""


class Controller:
    """One fleet's controller while it lives."""

    def __init__(self, opening: Opening) -> None:
        self.dir = opening.state
        self.signer = self.dir.signer()
        self.gateway_keys = self.dir.gateway_keys()
        roots = known_roots(self.dir, opening.roots)
        chain = chain_of(roots) if roots else None
        if chain is None:
            raise BadSetup(
                "the watched branch holds no root document, so nobody may say anything",
                hints=("make one: gridops trust init, then commit policies/trust/root/1.json",),
            )
        self.events = EventRing()
        self.counters = Counters()
        self.faults = Faults(self.dir.path)
        self.renewed: Callable[[], None] = _nobody
        """Called when another certificate lies in the place of the one that is shown."""
        authority, damage = opening.authority(self.dir.path, chain.root.controller_epoch)
        self.writer = Writer(authority, self._watch)
        self.outcomes: dict[ScopeName, Outcome] = {}
        self.progress: dict[PlanId, tuple[Progress, ...]] = {}
        try:
            self.journal_was_empty = self.writer.replay() == 0
            if self.state.roots:
                chain = chain_of(tuple(self.state.roots))
            self._clock = Steady(opening.clock, self.writer.newest_ms)
            self._behind_ms = 0
            self.soft = Soft(started_ms=self._clock.read().now_ms, chain=chain)
            self._begin(roots, damage)
        except BaseException:
            self.writer.close()
            raise

    @property
    def state(self) -> State:
        return self.writer.state

    @property
    def roster(self) -> Roster:
        accepted = self.state.accepted
        desired = accepted.desired if accepted is not None else _NOTHING
        if self.soft.listed is None or self.soft.listed.desired is not desired:
            self.soft.zones = rules_of(zones_named(desired.budgets))
        return self.soft.roster(desired)

    @property
    def ready(self) -> bool:
        """It has an intent and has heard, or waited long enough for, the hosts it knew."""
        return not self.why_not_ready()

    def why_not_ready(self) -> tuple[str, ...]:
        if self.state.accepted is None:
            return ("no commit has been accepted yet",)
        waiting = recovering(self.state, self.soft, self.roster, self.now())
        return (f"not heard since the start: {', '.join(waiting)}",) if waiting else ()

    def now(self) -> int:
        """Controller time; a jump of the machine's clock shifts the ages of what was heard."""
        reading = self._clock.read()
        self._behind_ms = reading.behind_ms
        if reading.jumped_ms:
            self._shift(reading.jumped_ms)
            if reading.jumped_ms >= LEAP_MS:
                self.writer.record((r.ClockLeapt(by_ms=reading.jumped_ms),), reading.now_ms)
        elif reading.behind_ms and reading.now_ms - self.writer.newest_ms >= LEAP_MS:
            # A start knows no time but the wall's and that of the newest row: without one, what has passed would pass
            # again, and hosts would refuse a time so far behind what they were told.
            self.writer.record((r.ClockLeapt(by_ms=0),), reading.now_ms)
        return reading.now_ms

    def view(self) -> View:
        now_ms, faults = self.now(), self.faults.standing()
        return View(
            self.state, self.soft, now_ms, self.writer.length, self.ready, self.progress, faults, self._behind_ms
        )

    def rights(self, scope: ScopeName, now_ms: int) -> Rights:
        """By what right anything may be done in a scope now."""
        windows = self.roster.desired.budgets.of(scope).windows
        standing = permitted(self.state, scope, now_ms)
        return Rights(self.state, scope, standing, self.soft.chain, now_ms, Hours(windows, self.soft.zones))

    def commit(self, rows: tuple[r.Row, ...] | list[r.Row], now_ms: int) -> int:
        """Record and make durable; how many rows."""
        count = self.writer.record(rows, now_ms)
        self.writer.flush()
        return count

    # --- git

    def base(self) -> Base:
        """What a new commit has to follow from: what is in force, or was when an earlier journal was lost."""
        accepted, kept = self.state.accepted, self.dir.accepted()
        commit = accepted.commit if accepted is not None else kept.commit if kept is not None else None
        beside = kept.commit if kept is not None and kept.commit != commit else None
        return Base(commit, self.soft.chain, tuple(self.state.roots), beside, alone=accepted is None)

    def found(self, commit: Found) -> int:
        """A commit was read: it becomes the intent, or is refused. Returns the number of rows."""
        now_ms = self.now()
        judged = judge_commit(self.state, self.soft.chain, commit)
        count = self.commit(judged.rows, now_ms)
        if judged.chain is not None:
            self._trust(judged.chain, now_ms)
        accepted = self.state.accepted
        if accepted is not None and accepted.commit == commit.commit and commit.intent is not None:
            # Also where it is no news: whoever took it in may have been gone before the rest of this was done. Not
            # where the journal is an older copy of itself: then the note knows more, and must go on to.
            if judged.chain is not None or commit.descends:
                self.dir.keep_accepted(Kept(commit=commit.commit, roots=tuple(self.state.roots)))
            self.soft.intent = commit.intent
            settled = enrol.settled(self.state, self.roster)
            self.commit(settled, now_ms)
            self.soft.joined |= {row.host: now_ms for row in settled if isinstance(row, r.JoinSettled)}
        self.soft.git.author = commit.author
        return count

    def tightened(self, commit: Found) -> int:
        """A commit could not be read to the end: what it tightens holds meanwhile. Returns the number of rows."""
        return self.commit(judge_unread(self.state, self.soft.chain, commit), self.now())

    def distrust(self, reason: str) -> None:
        """Stop sending commands until people rebuild: the journal does not know what the fleet has done."""
        if self.state.distrust is None:
            self.commit((r.Distrusted(reason=reason),), self.now())

    # --- hosts

    def beat(self, beat: Beat) -> Answered:
        """One poll of a host: its word becomes rows, the answer is a sealed directive. Raises Refusal."""
        answered = self.beats((beat,))[0]
        if isinstance(answered, Exception):
            raise answered
        return answered

    def beats(self, beats: Sequence[Beat]) -> list[Answered | Exception]:
        """Polls that came together: each is heard, then what it may be told is proved by the words of all; all becomes
        durable at once, and only then each is answered.

        What one of them is refused for, or a fault that it meets, is its own answer and nobody else's.
        """
        heard = [self._tried(polls.hear, beat) for beat in beats]
        proved = [one if isinstance(one, Exception) else self._tried(polls.prove, one) for one in heard]
        self.writer.flush()
        return [one if isinstance(one, Exception) else self._tried(polls.answer, one) for one in proved]

    def _tried(self, step: Callable[[Controller, S], T], of: S) -> T | Exception:
        try:
            return step(self, of)
        except Lost:
            raise
        except Exception as error:  # noqa: BLE001 - it is the answer of this one
            return error

    def taken_back(self, host: HostId, heard: Heard | None, now_ms: int, *, heard_lately: bool) -> tuple[r.Row, ...]:
        """Commands to this host that may not go any more."""
        # Also a scope that nothing names any more: what it set going is still asked by what right it goes on.
        rights = {scope: self.rights(scope, now_ms) for scope in issue.undecided(self.state, host)}
        known = issue.Evidence(
            heard.report if heard is not None else None,
            heard_lately,
            lambda scope: proven(rights[scope], self.soft, self.roster),
            lambda e: Service(rights[e.body.scope], self.soft, self.roster).crowded(e.body.action, e.authority),
        )
        return issue.taken_back(self.state, host, rights, known)

    def join(self, envelope: str) -> JoinReply:
        """A machine asks to become a host. Raises Refusal."""
        claimed = peek(envelope, limits.JOIN_BYTES).get("host_key")
        try:
            key = parse_key(str(claimed))
        except ValueError as error:
            raise Refusal(BAD_SCHEMA.code, f"the join request names no host key: {error}") from error
        opened = open_envelope(envelope, kind="join", keys=(key,), limit=sealed_bytes(limits.JOIN_BYTES))
        try:
            request = from_bytes(JoinRequest, opened.payload)
        except Malformed as error:
            raise Refusal(BAD_SCHEMA.code, f"the join request does not have the expected form: {error}") from error
        if not is_name(request.host) or request.host_key != key.text:
            raise Refusal(BAD_SCHEMA.code, "the join request names no host, or another key than the one that signed it")
        wrong = flaw_of_devices(request.facts.devices)
        if wrong is not None:
            raise Refusal(BAD_SCHEMA.code, f"the join request does not hold: {wrong}")
        now_ms = self.now()
        if request.over is not None:
            rows, reply = enrol.sign_over(self.state, self.soft.chain, self.roster, request, request.over)
        else:
            secret = self.dir.invite_key(request.host)
            rows, reply = enrol.join(self.state, self.soft.chain, secret, request, now_ms)
        self.commit(rows, now_ms)
        return reply

    # --- passes

    def reconcile(self, scope: ScopeName) -> Outcome:
        """Queue what brings a scope nearer to its target, and notice applies that are over."""
        now_ms = self.now()
        outcome = reconcile(self.rights(scope, now_ms), self.soft, self.roster)
        self.writer.record(outcome.rows, now_ms)
        self.outcomes[scope] = outcome
        self.soft.scope(scope).waits = outcome.held
        book = self.state.scope(scope)
        if book.applies:
            apply = book.applies[-1]
            if not settled(book, self.progress.get(apply.plan.id)):
                rights = self.rights(scope, now_ms)
                lines = progress(apply, rights, (self.soft, self.roster), outcome)
                self.progress[apply.plan.id] = lines
                while len(self.progress) > limits.PLANS_IN_MEMORY:
                    del self.progress[next(iter(self.progress))]
                over = ended(apply, rights, lines) if apply.outcome is None else None
                if over is not None:
                    self.writer.record((over,), now_ms)
        self.writer.flush()
        return outcome

    def close(self) -> None:
        self.writer.close()

    def _begin(self, roots: tuple[str, ...], damage: str | None) -> None:
        now_ms = self.soft.started_ms
        rows: list[r.Row] = [r.Started(version=__version__)]
        if not self.state.roots:
            rows += [r.RootTaken(version=n, text=text) for n, text in enumerate(roots, 1)]
        if damage is not None:
            rows.append(r.Distrusted(reason=f"{damage}; run: gridops controller rebuild"))
        self.commit(rows, now_ms)
        self._sign_by(self.soft.chain)
        self._shown_by(self.soft.chain)
        public = self.signer.public
        if public not in self.soft.chain.keys("controller"):
            raise BadSetup(
                f"{self.dir.path}: its controller key {public.text} is not in root {self.soft.chain.root.version}",
                hints=("use the state folder of this fleet: --state DIR", "or let a new root document name this key"),
            )

    def _trust(self, chain: RootChain, now_ms: int) -> None:
        """Go by a newer root document: its epoch, and whether it still knows this controller."""
        self.soft.chain = chain
        self._sign_by(chain)
        if chain.root.controller_epoch > self.writer.term.epoch:
            self.writer.new_epoch(chain.root.controller_epoch)
        known = self.signer.public in chain.keys("controller")
        if not known and CONTROLLER_KEY not in self.state.alarms:
            text = f"root {chain.root.version} does not name this controller's key: hosts refuse its commands"
            self.commit((r.AlarmRaised(key=CONTROLLER_KEY, text=text),), now_ms)
        elif known and CONTROLLER_KEY in self.state.alarms:
            self.commit((r.AlarmCleared(key=CONTROLLER_KEY),), now_ms)
        pinned = self._shown_by(chain)
        if not pinned and CONTROLLER_TLS not in self.state.alarms:
            text = f"root {chain.root.version} pins another certificate than this controller has: nobody talks to it"
            self.commit((r.AlarmRaised(key=CONTROLLER_TLS, text=text),), now_ms)
        elif pinned and CONTROLLER_TLS in self.state.alarms:
            self.commit((r.AlarmCleared(key=CONTROLLER_TLS),), now_ms)

    def _sign_by(self, chain: RootChain) -> None:
        """Where the root names the next key and not this one any more, that is the key from now on."""
        keys = chain.keys("controller")
        following = self.dir.next_signer() if self.signer.public not in keys else None
        if following is not None and following.public in keys:
            self.dir.promote()
            self.signer = following

    def _shown_by(self, chain: RootChain) -> bool:
        """Show the certificate that the root pins: the next one as soon as that alone counts. Whether there is one."""
        self.dir.settle_tls()
        pins = chain.root.controller_tls
        if not self.dir.tls_cert.exists() or self.dir.tls_cert.read_text("ascii") in pins:
            return True
        if self.dir.next_tls() not in pins:
            return False
        self.dir.promote_tls()
        self.renewed()
        return True

    def rise(self) -> None:
        """A host has obeyed a higher term than ours: only a rebuilt controller may rise above it."""
        if self.state.term is None or self.state.floor <= self.writer.term.counter:
            return
        if self.state.rebuilt_ms is not None:
            self.writer.rise(self.state.floor)
        elif self.state.distrust is None:
            said, ours = self.state.floor, self.writer.term.counter
            who = next((h for h, term in sorted(self.soft.terms.items()) if term.counter == said), "a host")
            reason = (
                f"{who} has obeyed a controller with term {said}, this journal is at {ours}: "
                "it is older than the fleet; run: gridops controller rebuild"
            )
            self.writer.record((r.Distrusted(reason=reason),), self.now())

    def _shift(self, by_ms: int) -> None:
        for host, heard in sorted(self.soft.hosts.items()):
            report = replace(heard.report, observed_ms=heard.report.observed_ms + by_ms)
            self.soft.hosts[host] = replace(heard, report=report)
        self.soft.started_ms += by_ms

    def _watch(self, n: int, row: r.Row, at_ms: int) -> None:
        said = words(row)
        if said is not None:
            self.events.add(n, at_ms, *said)
        if isinstance(row, r.ReceiptTaken):
            self.counters.add("gridops_agent_commands_total", result=row.receipt.outcome.value)


CONTROLLER_KEY = "controller_key"
CONTROLLER_TLS = "controller_tls"
LEAP_MS = 30_000
"""Hosts refuse a controller whose time is further behind than this (`limits.ISSUED_AHEAD_MS`)."""
_NOTHING = Desired()


def _nobody() -> None:
    """Nobody listens yet."""


def state_dir(path: Path) -> StateDir:
    """The state folder, made private if it is new."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    return StateDir(path)
