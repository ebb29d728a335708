"""Real outcomes of requests, by residency: an engine that lists its model and fails its callers is routed around.

Liveness by listing is no proof of service. Two owner's faults in a row (the engine is not there, breaks off, answers
5xx, or 401, 403 or 404, which no client of the front can cause) withdraw the route; what is the client's own doing
(400, 429 and the like) says nothing. A withdrawn route is tried again with one request at a time, after a pause that
doubles; one that succeeds restores it. Only what was withdrawn here is restored here. Called by the front; knows
nothing of processes, and the heart is told nothing: the residency stays what it is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gridops.base import limits
from gridops.base.codes import host as codes
from gridops.base.ids import Digest, short
from gridops_agent.alarms import Alarms
from gridops_agent.core.state import Host

UNREACHABLE = 0
"""Instead of a status: nobody answered, or the answer broke off."""
_FAULTS = frozenset({401, 403, 404, 408, UNREACHABLE})


@dataclass(slots=True)
class _Row:
    answered: int = 0
    faults: int = 0
    in_a_row: int = 0
    last: int = 0
    until_ms: int | None = None
    """When it is tried again; None while it is in routing."""
    pause_ms: int = limits.WITHDRAWN_MS
    trying: bool = False


def is_fault(status: int) -> bool | None:
    """Whose doing an answer is: the host's (True), nobody's since it is good (False), or the client's own (None)."""
    if status >= 500 or status in _FAULTS:
        return True
    return False if status < 400 else None


class Outcomes:
    """The outcomes at one front since the agent came up."""

    def __init__(self, mono_ms: Callable[[], int]) -> None:
        self._mono_ms = mono_ms
        self._rows: dict[Digest, _Row] = {}

    def admits(self, body: Digest) -> bool:
        """May a request go there now?"""
        row = self._rows.get(body)
        return row is None or row.until_ms is None or (not row.trying and self._mono_ms() >= row.until_ms)

    def began(self, body: Digest) -> bool:
        """A request goes there. True when it is the one that tries a withdrawn route."""
        row = self._rows.setdefault(body, _Row())
        trial = row.until_ms is not None and not row.trying
        row.trying = row.trying or trial
        return trial

    def left(self, body: Digest, trial: bool) -> None:
        """The request is over, however it went: another one may try."""
        row = self._rows.get(body)
        if trial and row is not None:
            row.trying = False

    def ended(self, body: Digest, status: int) -> None:
        """What came of a request. A client that walked away is no outcome, and is not told here."""
        row, fault = self._rows.setdefault(body, _Row()), is_fault(status)
        row.answered += 1
        if fault is None:
            return
        if not fault:
            self._rows[body] = _Row(answered=row.answered, faults=row.faults, trying=row.trying)
            return
        row.faults, row.in_a_row, row.last = row.faults + 1, row.in_a_row + 1, status
        if row.until_ms is not None:
            if row.trying:
                row.pause_ms = min(limits.WITHDRAWN_MOST_MS, row.pause_ms * 2)
                row.until_ms = self._mono_ms() + row.pause_ms
        elif row.in_a_row >= limits.FAULTS_IN_A_ROW:
            row.until_ms = self._mono_ms() + row.pause_ms

    def withdrawn(self) -> dict[Digest, str]:
        """What is out of routing, and why, in words."""
        return {body: _words(row) for body, row in sorted(self._rows.items()) if row.until_ms is not None}

    def counts(self) -> dict[Digest, tuple[int, int]]:
        """By residency: requests that were answered, and those that were the host's faults."""
        return {body: (row.answered, row.faults) for body, row in sorted(self._rows.items())}

    def keep(self, bodies: frozenset[Digest]) -> None:
        """Forget the residencies that are gone or start anew: another process has other outcomes."""
        for body in sorted(self._rows.keys() - bodies):
            del self._rows[body]


def tell_withdrawn(outcomes: Outcomes, host: Host, alarms: Alarms) -> None:
    """One alarm for each route that is out of routing now; what came back is over."""
    alarms.over(codes.ROUTE_WITHDRAWN.code)
    for body, words in outcomes.withdrawn().items():
        held = host.held.get(body)
        alarms.warn(codes.ROUTE_WITHDRAWN.code, f"{held.replica if held else short(body)}: {words}", about=body)


def _words(row: _Row) -> str:
    said = "no whole answer" if row.last == UNREACHABLE else f"HTTP {row.last}"
    return f"it failed {row.in_a_row} requests in a row (last: {said}) and gets one at a time until one succeeds"
