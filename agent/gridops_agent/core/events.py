"""What can happen to a host, and what it may answer with. Events come from the shell, effects go back to it.

Many say nothing but whom they are about: three private forms carry those fields, the name says what happened.
Two of different names are never equal.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gridops.base.ids import DeviceId, Digest
from gridops.model.snapshot import DeviceReport
from gridops.protocol.messages import Directive, Outcome
from gridops_agent.core.protection import Verdict
from gridops_agent.core.release import Owed
from gridops_agent.core.state import Handle

GONE = "no driver lists it any more"


@dataclass(frozen=True, slots=True)
class _About:
    """One command, or the residency that it made: both go by the digest of the body."""

    body: Digest


@dataclass(frozen=True, slots=True)
class _Living(_About):
    handle: Handle


@dataclass(frozen=True, slots=True)
class _Trouble(_About):
    code: str
    detail: str


@dataclass(frozen=True, slots=True)
class RootsCame:
    """Root documents, from a directive or from the controller's list. They prove themselves."""

    roots: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Rekeyed:
    """People have committed this host's next key: from now on it is the host's. No command is open."""

    host_key: str


@dataclass(frozen=True, slots=True)
class Heard:
    """A directive that is verified, fresh and in time; `floor_ms` and `epoch` are the session's after it."""

    directive: Directive
    floor_ms: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Began(_About):
    """A command has its lanes: may its effect start? `objection` is what only the shell can know (engine, args)."""

    objection: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Ended(_About):
    """A command's effect is over (load, drain, unload)."""

    outcome: Outcome
    code: str | None = None
    detail: str | None = None
    fetched_bytes: int | None = None
    """What a load had to bring here. None: nothing."""


@dataclass(frozen=True, slots=True)
class Placed(_About):
    """The port for a start is chosen; recorded before the process exists."""

    port: int


class Spawned(_Living):
    """The process exists. Recorded before anything waits for it."""

    __slots__ = ()


class Listed(_Living):
    """The model is listed: ready."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Died(_About):
    """The process is proved gone, and so is its group."""

    detail: str
    owed: tuple[Owed, ...] = ()
    """What it was last seen to hold on cards: it must come back before anything starts there."""


@dataclass(frozen=True, slots=True)
class Stopping(_About):
    """The process is about to be stopped: what it holds on cards now must come back."""

    owed: tuple[Owed, ...]


@dataclass(frozen=True, slots=True)
class Holding(_About):
    """What a living process holds on cards now. Durable, for it may die while no agent looks."""

    owed: tuple[Owed, ...]


class Released(_About):
    """What it held on cards has come back, or nothing keeps its devices closed any more."""

    __slots__ = ()


class StartFailed(_Trouble):
    """A start did not become ready, and nothing of it is left."""

    __slots__ = ()


class Stuck(_Trouble):
    """Something lives that cannot be proved ours (`not_ours`) or ended (`release_stuck`): its memory stays counted."""

    __slots__ = ()


class Proved(_About):
    """A process that could not be proved is proved again."""

    __slots__ = ()


class GivenBack(_About):
    """A person at the host took the engine back while it runs: it is not ours any more, and nothing is stopped."""

    __slots__ = ()


class RetryDue(_About):
    """Keep-alive's pause is over."""

    __slots__ = ()


class GiveBack(_About):
    """A residency of a paused host was seen idle: its memory may be given back now."""

    __slots__ = ()


class Recall(_About):
    """A residency whose memory was given back may come back."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Measured:
    """Devices as read now; only capacities are remembered."""

    devices: tuple[DeviceReport, ...]
    lost: tuple[tuple[DeviceId, str], ...] = ()
    """Those that cannot be used any more, with the reason."""
    absent: str | None = GONE
    """Why a device that is not listed is not there. None: nobody knows, so nothing is taken away."""


@dataclass(frozen=True, slots=True)
class StateChanged:
    """The host's own decision about itself."""

    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Woke:
    """The machine has slept, and is awake again."""

    slept_ms: int


class Departed(_About):
    """This host leaves its fleet, and this residency is proved gone: nobody will keep it alive."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Found:
    """What a restarted agent finds of a residency: gone, ours (with its handle), or alive without proof."""

    gone: bool
    handle: Handle | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Resumed:
    """The agent has started: every residency has been looked for."""

    found: Mapping[Digest, Found]


Event = (
    RootsCame
    | Rekeyed
    | Heard
    | Began
    | Ended
    | Placed
    | Spawned
    | Listed
    | Died
    | StartFailed
    | Stuck
    | Proved
    | RetryDue
    | GivenBack
    | GiveBack
    | Recall
    | Measured
    | StateChanged
    | Resumed
    | Woke
    | Departed
    | Stopping
    | Holding
    | Released
)


class Enqueue(_About):
    """An accepted command waits for its lanes."""

    __slots__ = ()


class Act(_About):
    """The effect of a command may start now."""

    __slots__ = ()


class StartAgain(_About):
    """Keep-alive: start the process of a residency again."""

    __slots__ = ()


class AwaitListed(_About):
    """A process of ours is up and has not been seen ready: go on waiting."""

    __slots__ = ()


class CancelTransfer(_About):
    """A running load has been taken back."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Warn:
    """Something a person should see; shown in heartbeat and status until this run ends."""

    code: str
    text: str


@dataclass(frozen=True, slots=True)
class BeatSoon:
    """There is news for the controller: do not wait for the next poll."""


Effect = Enqueue | Act | StartAgain | AwaitListed | CancelTransfer | Warn | BeatSoon
