"""One host of the lab: the real heart, fence, session and heartbeat around a model of its disk and its processes.

It does what `gridops_agent.beats`, `memory` and `shell` do with sockets and files: tell the heart, keep what it
answers before anything follows, talk to the controller, and begin anew on what its ledger kept. What commands do is
in `work`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, replace

from gridops.base.codes.trust import BAD_SIGNATURE
from gridops.base.errors import Failed, Refusal
from gridops.base.ids import DeviceId, Digest, EngineName, HostId
from gridops.base.record import to_bytes
from gridops.lab.agenda import Agenda, MachineClock
from gridops.lab.broken import Broken
from gridops.lab.callers import LabFront
from gridops.lab.dice import Dice
from gridops.lab.disk import Ledger
from gridops.lab.identity import Keyring, newborn
from gridops.lab.lines import Lines
from gridops.lab.net import Net, refusal_in
from gridops.lab.options import Options
from gridops.lab.procs import Processes
from gridops.lab.strikes import Crashed, Strikes
from gridops.lab.trace import Trace
from gridops.lab.work import Work
from gridops.model.fleet import DeviceKind, Runtime
from gridops.model.snapshot import DeviceReport
from gridops.protocol import fresh, receipts
from gridops.protocol.messages import Beat, Directive
from gridops.protocol.open import open_directive
from gridops.trust.envelope import seal_record
from gridops.trust.root import genesis
from gridops_agent.core import pace
from gridops_agent.core.events import (
    Act,
    AwaitListed,
    BeatSoon,
    CancelTransfer,
    Effect,
    Enqueue,
    Event,
    Found,
    Heard,
    Measured,
    Rekeyed,
    Resumed,
    RootsCame,
    StartAgain,
    Warn,
    Woke,
)
from gridops_agent.core.heart import step
from gridops_agent.core.protection import Verdict
from gridops_agent.core.report import Readings, heartbeat

MIB = 1 << 20
SIGNED_CONTEXT = 2048
"""The most that a catalog of the lab admits, where there is one."""
CPU0 = DeviceId("cpu0")
WAIT_MS = 10_000
"""So long an answer is waited for."""
GAP_MS = 500
WATCH_MS = 500
AWAY_MS = (500, 20_000)
BOOT_MS = (10_000, 60_000)
GOODBYE_MS = 200


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a host shares with the world."""

    agenda: Agenda
    net: Net
    trace: Trace
    options: Options
    root: str
    up: Callable[[HostId, str], None]
    """Takes a beat to the controller."""
    watched: Callable[[LabHost], None]
    """Looks at the host after everything it remembered, or started."""
    strikes: Strikes


class LabHost:
    """One machine with its agent."""

    def __init__(self, name: HostId, around: Surroundings) -> None:
        seed, options = around.options.seed, around.options
        self.name = name
        self.around = around
        self.dice = Dice(seed, f"host {name}")
        self.keys = Keyring(name)
        drift_ppm = options.clock_drift_ppm
        self.clock = MachineClock(around.agenda, drift_ppm if name in options.host_names[::2] else -drift_ppm)
        self.processes = Processes(around.agenda, options, Dice(seed, f"processes {name}"))
        self.cached: set[Digest] = set()
        self.ledger = Ledger(
            newborn(name, self.keys.present, genesis(around.root), around.root, options.past),
            Dice(seed, f"ledger {name}"),
            options.agent_crash_ppm,
            around.strikes,
        )
        self.life = 0
        """Counts the runs of the agent; what an earlier run had under way is gone."""
        self.up = False
        self.host = self.ledger.kept
        self.lines = Lines()
        self.work = Work(self)
        self.front = LabFront(self)
        self.said: set[Digest] = set()
        """Commands whose end it told under a former key."""
        self.ending: set[Digest] = set()
        """Residencies that were told to end, whatever became of it."""
        self.away = False
        """It has said that it goes to sleep."""
        self._asleep_until_ms = 0
        self._late: list[Callable[[], None]] = []
        """What would have happened while the machine slept."""
        self._turn = 0
        self._pace = pace.Pace()
        self._waiting = self._news = False
        self._guarded(self._begin)

    # --- memory -----------------------------------------------------------------------------------------------------

    def now(self) -> int:
        """Controller time as this host knows it."""
        clock = self.clock
        return fresh.controller_ms(self.session, wall_ms=clock.wall_ms(), mono_ms=clock.monotonic_ms())

    def tell(self, event: Event) -> bool:
        """The same, for as long as it takes the disk to be writable: what has happened is not to be forgotten."""
        while True:
            try:
                return self.tell_once(event)
            except Failed as full:
                self.say(f"cannot remember: {full.message}")

    def tell_once(self, event: Event) -> bool:
        """Let the heart decide, keep it, then do it; whether the effect that asked may go on.

        Raises Crashed, or Failed when it cannot be remembered: then nothing has happened.
        """
        done = step(self.host, event, self.now())
        if done.host is not self.host:
            self.ledger.write(done.host)
            self.host = done.host
        self.around.watched(self)
        for effect in done.effects:
            self._carry_out(effect)
        return any(isinstance(effect, Act) for effect in done.effects)

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case Enqueue(body=body):
                self.run(self.work.command(body))
            case StartAgain(body=body):
                self.around.trace.saw("kept alive")
                self.run(self.work.again(body, self.work.start))
            case AwaitListed(body=body):
                self.run(self.work.again(body, self.work.go_on))
            case CancelTransfer(body=body):
                self.work.cancelled.add(body)
            case Warn(code=code, text=text):
                self.say(f"warns {code}: {text}")
                self.around.trace.saw(code)
            case BeatSoon():
                self._beat_soon()
            case Act():
                pass

    # --- tasks ------------------------------------------------------------------------------------------------------

    def run(self, work: Generator[int, None, None]) -> None:
        """Do work that waits: each value it yields is a pause in milliseconds. It dies with this run of the agent."""
        life = self.life

        def go_on() -> None:
            if life != self.life:
                return
            pause_ms = next(work, None)
            if pause_ms is not None:
                self.around.agenda.after(pause_ms, lambda: self._guarded(go_on))

        self.around.agenda.after(0, lambda: self._guarded(go_on))

    def _guarded(self, do: Callable[[], None]) -> None:
        if self.around.agenda.now_ms < self._asleep_until_ms:
            self._late.append(do)
            return
        try:
            do()
        except Crashed as crash:
            self.say(f"crashes, the ledger was {crash}")
            self.around.trace.saw("agent crash")
            self.down(self.dice.between(*AWAY_MS))

    def down(self, for_ms: int) -> None:
        """The agent is gone; it comes back on what its ledger kept."""
        self.up = False
        self.life += 1
        life = self.life
        self.around.agenda.after(for_ms, lambda: self._guarded(self._begin) if life == self.life else None)

    def reboot(self) -> None:
        """The whole machine goes down and comes back without a process."""
        self.say("reboots")
        self._asleep_until_ms, self._late, self.away = 0, [], False
        lost = self.around.options.lost_files_ppm
        self.cached = {digest for digest in sorted(self.cached) if not self.dice.happens(lost)}
        self.processes.reboot()
        self.down(self.dice.between(*BOOT_MS))

    def sleep(self, for_ms: int) -> None:
        """The machine sleeps with all that runs on it; one of a person mostly says so before."""
        if not self.up or self._asleep_until_ms:
            return
        options, goodbye_ms = self.around.options, 0
        if self.name in options.laptop_names and self.dice.happens(700_000):
            self.away, goodbye_ms = True, GOODBYE_MS
            self._guarded(self._beat)

        def fall_asleep() -> None:
            self.say(f"sleeps for {for_ms} ms{', and said so' if self.away else ''}")
            self.around.trace.saw("a machine slept")
            self._asleep_until_ms = self.around.agenda.now_ms + for_ms
            self.around.agenda.after(for_ms, lambda: self.wake(self._asleep_until_ms, for_ms))

        self.around.agenda.after(goodbye_ms, fall_asleep)

    def wake(self, until_ms: int | None = None, slept_ms: int = 0) -> None:
        """It is awake, if it slept (until then); what waited happens now, one after the other."""
        if not self._asleep_until_ms or until_ms not in (None, self._asleep_until_ms):
            return
        self._asleep_until_ms, self.away = 0, False
        late, self._late = self._late, []
        if self.up:
            self._guarded(lambda: self._woken(slept_ms))
        for do in late:
            self._guarded(do)

    def _woken(self, slept_ms: int) -> None:
        self.tell(Woke(slept_ms))

    def _begin(self) -> None:
        self.up = True
        self.lines, self.work, self.front = Lines(), Work(self), LabFront(self)
        self._pace = pace.Pace()
        self._waiting = self._news = False
        kept = self.ledger.kept
        self.keys.settle(kept.fence.host_key)
        if kept.commands:
            self.around.trace.saw("open intent at a start")
        self.host = replace(kept, boot=self.dice.token(), measured=(), verdict=Verdict())
        word, fence = kept.last_word, kept.fence
        self.session = fresh.begin(fence.fleet, self.name, self.host.boot, floor_ms=word.floor_ms, epoch=word.epoch)
        total = self.around.options.host_mib * MIB * (2 if self.name in self.around.options.liars else 1)
        self.tell(Measured((DeviceReport(id=CPU0, kind=DeviceKind.CPU, total_bytes=total, generation=0),)))
        self.tell(Resumed({body: self._look_for(body) for body in self.host.held}))
        self.run(self._watch())
        self._talk_in(self.dice.between(0, 1_000))

    def _look_for(self, body: Digest) -> Found:
        held = self.host.held[body]
        process = self.processes.of(body)
        if process is None or (held.handle is None and held.port is None):
            return Found(gone=True)
        known = held.handle is not None and held.handle.pid == process.pid
        handle = held.handle if known else self.work.handle(process, held.port or 0)
        return Found(gone=False, handle=handle)

    def _watch(self) -> Generator[int, None, None]:
        while True:
            yield WATCH_MS
            self.work.look()

    # --- talk -------------------------------------------------------------------------------------------------------

    def _beat_soon(self) -> None:
        if self._waiting:
            self._news = True
        elif self._pace.wakes:
            self._talk_in(GAP_MS)

    def _talk_in(self, delay_ms: int) -> None:
        self._turn += 1
        turn, life = self._turn, self.life

        def talk() -> None:
            if turn == self._turn and life == self.life:
                self._guarded(self._beat)

        self.around.agenda.after(delay_ms, talk)

    def _beat(self) -> None:
        if self._waiting:  # nobody answered the last one
            self._pace = pace.unanswered(self._pace)
        nonce = self.dice.token()
        self.session = fresh.ask(self.session, nonce, self.clock.monotonic_ms())
        word = heartbeat(self.host, self.session, nonce, self.now(), "lab", self._readings())
        said = Beat(
            heartbeat=seal_record("heartbeat", word, self.keys.present),
            receipts=tuple(seal_record("receipt", r, self.keys.present) for r in receipts.owed(self.host.receipts)),
        )
        self._waiting = True
        self.around.net.send(self.name, True, to_bytes(said).decode(), lambda text: self.around.up(self.name, text))
        self._talk_in(WAIT_MS + pace.unanswered(self._pace).wait_ms)

    def hear(self, envelope: str) -> None:
        """Something came down the wire. A refusal is no envelope: HTTPS ties it to the heartbeat that it answers."""
        if not self.up:
            return
        no = refusal_in(envelope)
        if no is None:
            self._guarded(lambda: self._hear(envelope))
        elif no[0] == self.session.nonce:
            self._guarded(lambda: self._refused(no[1]))

    def _hear(self, envelope: str) -> None:
        before = self.ledger.kept
        try:
            directive = self._opened(envelope)
        except Refusal as refusal:
            if self.ledger.kept.roots == before.roots and self.ledger.kept is not before:
                raise Broken("S13", f"{self.name} refused a directive ({refusal.code}) and remembers it") from None
            self.say(f"refuses a directive: {refusal.code}")
            self.around.trace.saw(refusal.code)
            return
        self._waiting, self._pace = False, pace.answered(self._pace, directive.next_poll_ms)
        try:
            self.tell_once(Heard(directive, floor_ms=self.session.floor_ms, epoch=self.session.epoch))
        except Failed as full:
            self.say(f"takes nothing in: {full.message}")
            self._waiting = True  # as good as no answer
            return
        self._wait()

    def _refused(self, code: str) -> None:
        self._waiting, self._pace = False, pace.refused(self._pace, code)
        if code == BAD_SIGNATURE.code:
            self._next_key()
        self._wait()

    def _next_key(self) -> None:
        """Its present key is known no more: people have committed the next one, if one waits. Commands end first."""
        coming, before = self.keys.coming, self.host.receipts.kept
        if coming is None or self.host.commands:
            return
        try:
            self.tell_once(Rekeyed(coming.public.text))
        except Failed as full:
            self.say(f"keeps its key: {full.message}")
            return
        self.said |= {receipt.body for receipt in before if receipt.final}
        self.keys.settle(coming.public.text)
        self.around.trace.saw("a host took its next key")
        self.say("takes its next key")

    def _wait(self) -> None:
        news, self._news = self._news, False
        self._talk_in(GAP_MS if news and self._pace.wakes else self._pace.wait_ms)

    def _opened(self, envelope: str) -> Directive:
        directive = open_directive(envelope, self.host.chain.keys("controller"))
        new = tuple(text for text in directive.roots if text not in self.host.roots)
        if new:
            self.tell(RootsCame(new))
        self.session = fresh.hear(
            self.session,
            directive,
            epoch=self.host.chain.root.controller_epoch,
            wall_ms=self.clock.wall_ms(),
            mono_ms=self.clock.monotonic_ms(),
        )
        return directive

    def _readings(self) -> Readings:
        return Readings(
            runtimes=(Runtime(engine=EngineName("llama.cpp"), backend="cpu"),),
            cached=tuple(sorted(self.cached)),
            goodbye=self.away,
            disk_free_bytes=100 << 30,
            endpoint=f"https://{self.name}.example:8443",
            front_cert="0" * 64,
        )

    def asked(self, model: str, takes_ms: int) -> None:
        """A request came to the front, if the agent is there to hear it."""
        if self.up and self.around.agenda.now_ms >= self._asleep_until_ms:
            self.front.asked(model, takes_ms)

    def say(self, what: str) -> None:
        self.around.trace.add(self.name, what)
