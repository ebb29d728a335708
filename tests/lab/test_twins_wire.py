"""The lab's network beside TLS and HTTP: a host's words come whole or not at all, and are answered once."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import httpx
import pytest

from gridops.base.errors import Refusal
from gridops.base.ids import HostId
from gridops.base.record import from_bytes, to_bytes
from gridops.lab.agenda import Agenda
from gridops.lab.dice import Dice
from gridops.lab.net import Net
from gridops.lab.options import Options
from gridops.protocol.messages import Beat
from tests.controller.fleet import Desk, Fleet
from tests.controller.watching import Watch

ALPHA = HostId("alpha")


class Wire(Protocol):
    """Between one host and its controller."""

    fleet: Fleet

    def post(self, beat: Beat) -> str | None:
        """The directive; None where nothing came back. Raises Refusal, as the host reads it."""
        ...

    def cut(self) -> None: ...

    def mend(self) -> None: ...

    def now(self) -> int: ...


class RealWire:
    """A controller's process behind its listener. Cut: it is not there, as far as a host can see."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self._watch = Watch(fleet)
        self.mend()

    def post(self, beat: Beat) -> str | None:
        try:
            return self._watch.post(beat)
        except httpx.TransportError:
            return None

    def cut(self) -> None:
        process = self._watch.process
        assert process is not None
        process.kill()
        process.wait(10)

    def mend(self) -> None:
        self._watch.start()

    def now(self) -> int:
        return time.time_ns() // 1_000_000


class LabWire:
    """The lab's network before the same controller."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self._desk = Desk(fleet)
        self._agenda = Agenda()
        self._net = Net(self._agenda, Options(seed=1), Dice(1, "net"))
        self._refusal: Refusal | None = None

    def post(self, beat: Beat) -> str | None:
        heard: list[str] = []
        self._refusal = None

        def arrives(text: str) -> None:
            try:
                answer = self._desk.controller.beat(from_bytes(Beat, text.encode())).directive
            except Refusal as refusal:
                self._refusal = refusal
                return
            self._net.send(ALPHA, False, answer, heard.append)

        self._net.send(ALPHA, True, to_bytes(beat).decode(), arrives)
        while self._agenda.step(self._agenda.now_ms + 10_000):
            pass
        if self._refusal is not None:
            raise self._refusal
        assert len(heard) <= 1
        return heard[0] if heard else None

    def cut(self) -> None:
        self._net.cut(ALPHA, 3_600_000, up=True, down=True)

    def mend(self) -> None:
        self._net.heal()

    def now(self) -> int:
        return self._desk.now


@pytest.fixture(params=["real", "lab"])
def wire(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Wire]:
    fleet = Fleet(tmp_path, now_ms=time.time_ns() // 1_000_000 - 60_000) if request.param == "real" else Fleet(tmp_path)
    fleet.begin()
    made: Wire = RealWire(fleet) if request.param == "real" else LabWire(fleet)
    yield made
    if isinstance(made, RealWire):
        made.cut()


def test_words_come_whole_once_and_not_over_a_cut_wire(wire: Wire) -> None:
    agent = wire.fleet.agents[ALPHA]
    agent.now_ms = wire.now()
    first = agent.beat()
    answer = wire.post(first)
    assert answer is not None
    agent.hear(answer)  # it echoes the question, or this refuses it
    with pytest.raises(Refusal) as again:
        wire.post(first)
    assert again.value.code == "replayed"
    wire.cut()
    agent.now_ms = wire.now()
    lost = agent.beat()
    assert wire.post(lost) is None
    wire.mend()
    late = wire.post(lost)
    assert late is not None, "nobody had heard it before"
    agent.hear(late)
