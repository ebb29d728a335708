"""What a host remembers: fence, receipts, open commands, residencies, generations. All of it lies in the ledger."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TypeVar

from gridops import __version__
from gridops.base import limits
from gridops.base.ids import DeviceId, Digest, ProfileName, ReplicaId
from gridops.base.record import record
from gridops.model.action import Warm
from gridops.model.policy import ClassProtection
from gridops.model.profile import Restart
from gridops.model.snapshot import DeviceReport, HostState, ResidencyState
from gridops.protocol.fence import Fence
from gridops.protocol.messages import Body, GatewayKey, Term
from gridops.protocol.receipts import Receipts
from gridops.trust.release import NONE_KNOWN, KnownCatalog
from gridops.trust.root import RootChain
from gridops_agent.core.protection import Verdict
from gridops_agent.core.release import Owed

K = TypeVar("K")
V = TypeVar("V")

HOST = DeviceId("")
"""The key under which the host's own generation is kept; no device has this name."""


@record
class Handle:
    """One engine: what proves its identity, and where it listens."""

    pid: int
    birth: str
    """With the pid, or with `name`, what tells this life of it from every other."""
    port: int
    key_file: str
    """Empty where the engine asks its callers for no key."""
    executable: str | None = None
    settled: bool = False
    """True once it has been ready: from then on the executable must match too."""
    keeper: str = "child"
    """Which way of keeping it knows it: `child`, `container`, `unit`, `service`."""
    name: str | None = None
    """What its keeper calls it: a container's id, a unit's name. A child has none."""
    taken: bool = False
    """A person handed it over while it ran: it carries no mark of ours, and is proved by what was seen then."""


@record
class Held:
    """A residency: what one warm command made, or is making, true on this host.

    It stays until an unload is proved, or until its first start has failed; while it stays, its memory is counted.
    """

    body: Digest
    warm: Warm
    """The action as it was signed; `serves`, `restart` and `drain_ms` below are what holds now."""
    state: ResidencyState
    since_ms: int
    serves: tuple[str, ...]
    restart: Restart
    drain_ms: int
    handle: Handle | None = None
    applied: bool = False
    """True once it has been ready: only what was applied is kept alive."""
    port: int | None = None
    """Chosen before the start, so that a process found by its cookie alone can be reached."""
    restarts: int = 0
    """All restarts so far; shown."""
    recent_ms: tuple[int, ...] = ()
    """Moments of the restarts inside the policy's window."""
    retry_at_ms: int | None = None
    """When keep-alive starts it again; None while it runs or has been given up."""
    code: str | None = None
    detail: str | None = None
    offload: bool = False
    """Its memory is being given back: it takes nothing new and its engine is stopped, whatever happens in between."""
    to_end: bool = False
    """An unload of it began: whatever became of that, it is not kept alive any more and takes nothing new."""
    stood_ms: int | None = None
    """Since when it was ready before its memory was given back: back again, it is as old as it was."""
    renamed: tuple[ReplicaId, ProfileName] | None = None
    """What it is called now, where its profile was renamed while it ran; `warm` keeps what was signed."""
    excused_until_ms: int | None = None
    """The machine has just slept: a restart until then is put down to the sleep and counts for nothing. Once."""
    owed: tuple[Owed, ...] = ()
    """What its last process held on cards and has not been seen to come back; nothing starts there before it does."""

    @property
    def replica(self) -> ReplicaId:
        return self.warm.replica if self.renamed is None else self.renamed[0]

    @property
    def profile(self) -> ProfileName:
        return self.warm.profile if self.renamed is None else self.renamed[1]


@record
class Guess:
    """Files that this host fetched only because it was told to expect demand, and that nothing has used."""

    profile: ProfileName
    files: tuple[Digest, ...]
    """By SHA-256, sorted."""
    size_bytes: int
    since_ms: int


@record
class Command:
    """A body that this host has accepted and not yet answered with a final receipt."""

    body: Body
    term: Term
    accepted_ms: int
    began_ms: int | None = None
    standing: bool = False
    """By standing permission: no approval covers it, so the brake bounds it."""


@record
class Count:
    """A generation, and the capacity it stands for."""

    generation: int
    total_bytes: int = 0


@record
class Brake:
    """When drains by standing permission began, within the window that still counts."""

    stops_ms: tuple[int, ...] = ()

    def within(self, now_ms: int) -> tuple[int, ...]:
        """Those that still count."""
        return tuple(at for at in self.stops_ms if at > now_ms - limits.STANDING_STOPS_WINDOW_MS)


@record
class LastWord:
    """What the last fresh directive left behind; front and clock live by it while the controller is away."""

    keys: tuple[GatewayKey, ...] = ()
    protection: ClassProtection | None = None
    floor_ms: int = 0
    epoch: int = 0


def _none() -> Mapping[K, V]:
    return MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Host:
    """Everything a host knows. `boot`, `measured`, `verdict` and `version` are of this run; the rest is durable."""

    boot: str
    """Random id of this run of the agent."""
    chain: RootChain
    roots: tuple[str, ...]
    """Every root document from the first, as text: a restarted agent walks them again."""
    fence: Fence
    receipts: Receipts
    last_word: LastWord = field(default_factory=LastWord)
    brake: Brake = field(default_factory=Brake)
    commands: Mapping[Digest, Command] = field(default_factory=_none)
    held: Mapping[Digest, Held] = field(default_factory=_none)
    counts: Mapping[DeviceId, Count] = field(default_factory=_none)
    guesses: Mapping[Digest, Guess] = field(default_factory=_none)
    """By the artifact's digest (its files alone), oldest first."""
    known: KnownCatalog = NONE_KNOWN
    """The newest catalog that was proved here: what people signed may run at all."""
    measured: tuple[DeviceReport, ...] = ()
    verdict: Verdict = field(default_factory=Verdict)
    """What protection decided last."""
    version: str = __version__
    """Of the agent: a root document may demand a later one."""

    @property
    def state(self) -> HostState:
        return self.verdict.state

    @property
    def reasons(self) -> tuple[str, ...]:
        return self.verdict.reasons

    def generation(self, device: DeviceId = HOST) -> int:
        """The generation of a device, or of the host itself."""
        count = self.counts.get(device)
        return count.generation if count is not None else 0


def told(text: str) -> str:
    """Words from outside (a log line, a path) as they may stand in a receipt: bounded, and valid Unicode."""
    return text[:2_000].encode("utf-8", "replace").decode()


def put(rows: Mapping[K, V], key: K, value: V) -> Mapping[K, V]:
    """The mapping with one row set."""
    return MappingProxyType({**rows, key: value})


def drop(rows: Mapping[K, V], key: K) -> Mapping[K, V]:
    """The mapping without one row."""
    return MappingProxyType({k: v for k, v in rows.items() if k != key})
