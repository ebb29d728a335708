"""What has been learned from starts and answers: times, failed attempts and speeds, each of one host and one revision.

Counts and times alone, never the content of a request. Kept by the controller, read by the planner, which decides
what each record is worth: how many samples make it trusted, and how fast it fades. A revision is the digest of an
artifact's files (`planner.learned.revision_of`): other weights are another record, and begin with nothing learned.
"""

from __future__ import annotations

from enum import StrEnum

from gridops.base.ids import ConfigName, Digest, HostId, ProfileName
from gridops.base.record import record


class TimeKind(StrEnum):
    """What took the time."""

    FETCH = "fetch"
    """Files came over the link."""
    VERIFY = "verify"
    """The files were there and were only proved. Says nothing about a fetch."""
    WARM = "warm"
    """From the start of the process until it answered."""


@record
class LearnedTime:
    """Successful actions of one kind."""

    host: HostId
    profile: ProfileName
    config: ConfigName
    revision: Digest
    kind: TimeKind
    count: int
    ewma_ms: int
    """Exponentially weighted mean of the durations."""
    last_ms: int
    """Controller time of the newest one."""


@record
class FailedStarts:
    """Fetches and starts that failed since the last that succeeded."""

    host: HostId
    profile: ProfileName
    config: ConfigName
    revision: Digest
    count: int
    last_ms: int
    code: str | None = None
    """What the host said the last time."""


@record
class MeasuredSpeed:
    """How fast a host answers, as the gateway saw it. Rate and latency have samples and ages of their own."""

    host: HostId
    profile: ProfileName
    config: ConfigName
    revision: Digest
    tokens_mps: int | None = None
    """Completion tokens per 1,000 seconds, of one request."""
    tokens_count: int = 0
    tokens_at_ms: int = 0
    latency_ms: int | None = None
    """End to end."""
    latency_count: int = 0
    latency_at_ms: int = 0


@record
class Lead:
    """How long after the first sign of it a profile's demand usually comes."""

    profile: ProfileName
    lead_ms: int


@record
class Learned:
    """Everything learned about a fleet, sorted by host, profile and config. Nothing in it is a promise."""

    times: tuple[LearnedTime, ...] = ()
    failures: tuple[FailedStarts, ...] = ()
    speeds: tuple[MeasuredSpeed, ...] = ()
    leads: tuple[Lead, ...] = ()
