"""Whatever goes wrong around a fleet, by itself and at bad moments, until it heals: cuts, reboots, deaths, clocks.

One stream of chance decides who and when. Faults of single messages, writes and processes are with the models that
they strike (`net`, `disk`, `procs`); what people do wrong is in `people`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gridops.base.ids import HostId
from gridops.lab.agenda import Agenda
from gridops.lab.dice import Dice
from gridops.lab.head import Head
from gridops.lab.host import LabHost
from gridops.lab.net import Net
from gridops.lab.options import Options
from gridops.lab.trace import Trace

CUT_MS = (5_000, 150_000)
SLEEP_MS = (3_000, 120_000)
STEP_MS = 3_600_000


class Nemesis:
    """The faults of one run."""

    def __init__(self, options: Options, agenda: Agenda, trace: Trace, net: Net) -> None:
        self.healed = False
        self._options = options
        self._agenda = agenda
        self._trace = trace
        self._net = net
        self._dice = Dice(options.seed, "world")

    def begin(self, hosts: Mapping[HostId, LabHost], head: Head) -> None:
        """Let each kind of fault come at its own pace."""
        options, dice, all_ = self._options, self._dice, tuple(hosts.values())
        self.every(options.cut_every_ms, lambda: self._cut(tuple(hosts)))
        self.every(options.reboot_every_ms, lambda: dice.one_of(all_).reboot())
        self.every(options.sleep_every_ms, lambda: dice.one_of(all_).sleep(dice.between(*SLEEP_MS)))
        self.every(options.engine_death_every_ms, lambda: self._kill(dice.one_of(all_)))
        self.every(options.clock_step_every_ms, lambda: self._step_clock(hosts, head))
        self.every(options.freeze_every_ms, lambda: self._freeze_clock(hosts, head))

    def every(self, every_ms: int, do: Callable[[], None], *, always: bool = False) -> None:
        """About so often, until everything heals or for ever; 0: never."""
        if every_ms == 0:
            return

        def turn() -> None:
            if self.healed and not always:
                return
            do()
            self._agenda.after(self._dice.between(every_ms // 2, every_ms * 3 // 2), turn)

        self._agenda.after(self._dice.between(every_ms // 2, every_ms * 3 // 2), turn)

    def heal(self, hosts: Mapping[HostId, LabHost], head: Head) -> None:
        """Nothing fails any more."""
        self.healed = True
        self._trace.add("world", "heals")
        self._net.heal()
        head.kind = True
        head.clock.wrong_ms = 0
        head.clock.stand(0)
        for host in hosts.values():
            host.ledger.crash_ppm = 0
            host.clock.wrong_ms = 0
            host.clock.stand(0)
            host.processes.settle()
            host.wake()
            if not host.up:
                host.down(0)

    def _cut(self, hosts: tuple[HostId, ...]) -> None:
        host, for_ms = self._dice.one_of(hosts), self._dice.between(*CUT_MS)
        up, down = self._dice.one_of(((True, True), (True, False), (False, True)))
        self._trace.add("network", f"cuts {host} off for {for_ms} ms{'' if up and down else ', one way'}")
        self._net.cut(host, for_ms, up=up, down=down)

    def _kill(self, host: LabHost) -> None:
        if host.processes.living:
            pid = self._dice.one_of(tuple(host.processes.living))
            self._trace.add(host.name, f"process {pid} dies")
            host.processes.end(pid)

    def _step_clock(self, hosts: Mapping[HostId, LabHost], head: Head) -> None:
        by_ms = self._dice.between(-STEP_MS, STEP_MS)
        who = self._dice.one_of((None, *hosts))
        clock = head.clock if who is None else hosts[who].clock
        clock.wrong_ms = by_ms
        self._trace.add(who or "controller", f"the wall clock is {by_ms} ms off")

    def _freeze_clock(self, hosts: Mapping[HostId, LabHost], head: Head) -> None:
        for_ms, who = self._dice.between(*CUT_MS), self._dice.one_of((None, *hosts))
        (head.clock if who is None else hosts[who].clock).stand(for_ms)
        self._trace.add(who or "controller", f"the wall clock stands still for {for_ms} ms")
