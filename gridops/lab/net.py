"""The network between hosts and controller: late, lost, doubled, out of order, cut one way or both, and replayed.

Every message that was ever sent may come again, which is all that a thief on the wire can do with sealed envelopes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from gridops.base.ids import HostId
from gridops.lab.agenda import Agenda
from gridops.lab.dice import Dice
from gridops.lab.options import Options

KEPT = 200
"""So many old messages per way may be replayed."""
TAIL_MS = 20_000
_NO = "refused: "


@dataclass(slots=True)
class _Way:
    """One direction between one host and the controller."""

    open_ms: int = 0
    """Cut until then."""
    past: list[str] = field(default_factory=list)


class Net:
    """Carries texts. `heal` makes it a good one from then on."""

    def __init__(self, agenda: Agenda, options: Options, dice: Dice) -> None:
        self._agenda = agenda
        self._options = options
        self._dice = dice
        self._ways: dict[tuple[HostId, bool], _Way] = {}
        self._healed = False

    def send(self, host: HostId, up: bool, text: str, deliver: Callable[[str], None]) -> None:
        """From a host (`up`) or to it."""
        dice, options, way = self._dice, self._options, self._way(host, up)
        way.past.append(text)
        del way.past[:-KEPT]
        if self._healed:
            self._agenda.after(options.latency_ms, lambda: deliver(text))
            return
        if dice.happens(options.replay_ppm):
            old = dice.one_of(way.past)
            self._agenda.after(self._delay(), lambda: deliver(old))
        if self._agenda.now_ms < way.open_ms or dice.happens(options.drop_ppm):
            return
        for _ in range(2 if dice.happens(options.twice_ppm) else 1):
            self._agenda.after(self._delay(), lambda: deliver(text))

    def cut(self, host: HostId, for_ms: int, *, up: bool, down: bool) -> None:
        for direction, cuts in ((True, up), (False, down)):
            if cuts:
                way = self._way(host, direction)
                way.open_ms = max(way.open_ms, self._agenda.now_ms + for_ms)

    def heal(self) -> None:
        self._healed = True

    def _delay(self) -> int:
        if self._dice.happens(self._options.tail_ppm):
            return self._dice.between(1_000, TAIL_MS)
        return self._dice.between(1, 2 * self._options.latency_ms)

    def _way(self, host: HostId, up: bool) -> _Way:
        return self._ways.setdefault((host, up), _Way())


def refusal(nonce: str, code: str) -> str:
    """What a controller says to a heartbeat that it does not take, as one text on the wire."""
    return f"{_NO}{nonce} {code}"


def refusal_in(text: str) -> tuple[str, str] | None:
    """Nonce and code of a refusal; None where the text is none."""
    nonce, _, code = text.removeprefix(_NO).partition(" ")
    return (nonce, code) if text.startswith(_NO) else None
