"""What a learned record is worth: which are believed, how far, and for how long.

A record counts for its host, profile, config and artifact revision alone, so that new weights begin with the prior:
the link's rate or the profile's own guess. It takes `LEARN_TRUSTED` samples to replace the prior; until then the two
are blended. Old, impossible and negative records are ignored, never guessed at. Called by `rank_harm` and `cache`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gridops.base import canon
from gridops.base.ids import ConfigName, Digest, HostId, ProfileName
from gridops.model.learned import FailedStarts, Lead, LearnedTime, MeasuredSpeed, TimeKind
from gridops.model.profile import Artifact, Config, Profile
from gridops.planner.constants import FAILURES_COUNTED, LEARN_CAP_MS, LEARN_TRUSTED, LEARN_VALID_MS
from gridops.planner.world import World, clock


def revision_of(artifact: Artifact) -> Digest:
    """Digest of what the files are, wherever they come from and whatever they are called."""
    return canon.digest(sorted(f.sha256 for f in artifact.files))


@dataclass(frozen=True, slots=True)
class Key:
    """What a record is about, besides its host."""

    profile: ProfileName
    config: ConfigName
    revision: Digest


def key_of(profile: Profile, config: Config) -> Key:
    return Key(profile.name, config.name, revision_of(config.artifact))


@dataclass(slots=True)
class Experience:
    """The records of a world that are believed, by what they are about. One record a host: the newest."""

    world: World
    _times: dict[tuple[TimeKind, Key], dict[HostId, LearnedTime]] = field(default_factory=dict)
    _failures: dict[Key, dict[HostId, FailedStarts]] = field(default_factory=dict)
    _speeds: dict[Key, dict[HostId, MeasuredSpeed]] = field(default_factory=dict)
    _leads: dict[ProfileName, Lead] = field(default_factory=dict)

    def __post_init__(self) -> None:
        learned = self.world.inputs.learned
        if learned is None:
            return
        for time in sorted(learned.times, key=lambda t: (t.last_ms, t.count, t.ewma_ms)):
            if self._recent(time.last_ms) and time.count > 0 and 0 <= time.ewma_ms <= LEARN_CAP_MS:
                about = Key(time.profile, time.config, time.revision)
                self._times.setdefault((time.kind, about), {})[time.host] = time
        for failed in sorted(learned.failures, key=lambda f: (f.last_ms, f.count)):
            if self._recent(failed.last_ms) and failed.count > 0:
                self._failures.setdefault(Key(failed.profile, failed.config, failed.revision), {})[failed.host] = failed
        for speed in sorted(learned.speeds, key=lambda s: (max(s.tokens_at_ms, s.latency_at_ms), _numbers(s))):
            self._speeds.setdefault(Key(speed.profile, speed.config, speed.revision), {})[speed.host] = speed
        self._leads = {e.profile: e for e in sorted(learned.leads, key=lambda e: -e.lead_ms) if e.lead_ms >= 0}

    def times(self, kind: TimeKind, about: Key) -> Mapping[HostId, LearnedTime]:
        return self._times.get((kind, about), {})

    def failures(self, about: Key) -> Mapping[HostId, int]:
        """Failed attempts, so many at most as are counted."""
        return {h: min(f.count, FAILURES_COUNTED) for h, f in self._failures.get(about, {}).items()}

    def speeds(self, about: Key) -> Mapping[HostId, MeasuredSpeed]:
        """As recorded: how far they are believed is `speed`'s question, for they fade within minutes."""
        return self._speeds.get(about, {})

    def lead_ms(self, profile: ProfileName) -> int | None:
        """How long there is between the first sign of demand and demand. None: nobody knows."""
        found = self._leads.get(profile)
        return None if found is None else found.lead_ms

    def _recent(self, at_ms: int) -> bool:
        age = clock(self.world.inputs) - at_ms
        return -self.world.planning.heartbeat.future_skew_ms <= age < LEARN_VALID_MS


def blend(prior_ms: int, learned: LearnedTime) -> int:
    """The prior, the more replaced the more samples there are."""
    known = min(learned.count, LEARN_TRUSTED)
    return (prior_ms * (LEARN_TRUSTED - known) + learned.ewma_ms * known) // LEARN_TRUSTED


def _numbers(speed: MeasuredSpeed) -> tuple[int, int, int, int]:
    return speed.tokens_count, speed.latency_count, speed.tokens_mps or 0, speed.latency_ms or 0
