"""What can happen to a host, and what it may answer with. Events come from the shell, effects go back to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gridops.base.ids import Digest
from gridops.model.snapshot import DeviceReport, HostState
from gridops.protocol.messages import Directive, Outcome
from gridops_agent.core.state import Handle


@dataclass(frozen=True, slots=True)
class RootsCame:
    """Root documents, from a directive or from the controller's list. They prove themselves."""

    roots: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Heard:
    """A directive that is verified, fresh and in time; `floor_ms` and `epoch` are the session's after it."""

    directive: Directive
    floor_ms: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Began:
    """A command has its lanes: may its effect start? `objection` is what only the shell can know (engine, args)."""

    body: Digest
    objection: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Ended:
    """A command's effect is over (load, drain, unload)."""

    body: Digest
    outcome: Outcome
    code: str | None = None
    detail: str | None = None


@dataclass(frozen=True, slots=True)
class Placed:
    """The port for a start is chosen; recorded before the process exists."""

    body: Digest
    port: int


@dataclass(frozen=True, slots=True)
class Spawned:
    """The process exists. Recorded before anything waits for it."""

    body: Digest
    handle: Handle


@dataclass(frozen=True, slots=True)
class Listed:
    """The model is listed: ready."""

    body: Digest
    handle: Handle


@dataclass(frozen=True, slots=True)
class Died:
    """The process is proved gone, and so is its group."""

    body: Digest
    detail: str


@dataclass(frozen=True, slots=True)
class StartFailed:
    """A start did not become ready, and nothing of it is left."""

    body: Digest
    code: str
    detail: str


@dataclass(frozen=True, slots=True)
class Stuck:
    """Something lives that cannot be proved ours (`not_ours`) or ended (`release_stuck`): its memory stays counted."""

    body: Digest
    code: str
    detail: str


@dataclass(frozen=True, slots=True)
class Proved:
    """A process that could not be proved is proved again."""

    body: Digest


@dataclass(frozen=True, slots=True)
class RetryDue:
    """Keep-alive's pause is over."""

    body: Digest


@dataclass(frozen=True, slots=True)
class Measured:
    """Devices as read now; only capacities are remembered."""

    devices: tuple[DeviceReport, ...]


@dataclass(frozen=True, slots=True)
class StateChanged:
    """The host's own decision about itself."""

    state: HostState
    reasons: tuple[str, ...]


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
    | Measured
    | StateChanged
    | Resumed
)


@dataclass(frozen=True, slots=True)
class Enqueue:
    """An accepted command waits for its lanes."""

    body: Digest


@dataclass(frozen=True, slots=True)
class Act:
    """The effect of a command may start now."""

    body: Digest


@dataclass(frozen=True, slots=True)
class StartAgain:
    """Keep-alive: start the process of a residency again."""

    body: Digest


@dataclass(frozen=True, slots=True)
class AwaitListed:
    """A process of ours is up and has not been seen ready: go on waiting."""

    body: Digest


@dataclass(frozen=True, slots=True)
class CancelTransfer:
    """A running load has been taken back."""

    body: Digest


@dataclass(frozen=True, slots=True)
class Warn:
    """Something a person should see; shown in heartbeat and status until this run ends."""

    code: str
    text: str


@dataclass(frozen=True, slots=True)
class BeatSoon:
    """There is news for the controller: do not wait for the next poll."""


Effect = Enqueue | Act | StartAgain | AwaitListed | CancelTransfer | Warn | BeatSoon
