"""What a learned record is worth: which are believed, how far, and for how long.

A record counts for its host, profile, config and artifact revision alone, so that new weights begin with the prior:
the link's rate or the profile's own guess. It takes `LEARN_TRUSTED` samples to replace the prior; until then the two
are blended. Old, impossible and negative records are ignored, never guessed at. Called by `rank_harm` and `cache` for
all hosts at once, and by `look_ahead` and `assemble` for single ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from gridops.base import canon
from gridops.base.codes.host import NO_SPACE
from gridops.base.ids import ConfigName, Digest, HostId, ProfileName
from gridops.model.learned import FailedStarts, Lead, LearnedTime, MeasuredSpeed, TimeKind
from gridops.model.plan import Launch
from gridops.model.profile import Artifact, Config, Profile
from gridops.planner.constants import FAILURES_COUNTED, LEARN_CAP_MS, LEARN_TRUSTED, LEARN_VALID_MS, LEAVE_AFTER
from gridops.planner.recall import Shelf
from gridops.planner.world import HostView, World, clock

HOPELESS = frozenset({NO_SPACE.code})
"""Answers of a host after which the same attempt is no use there until somebody does something about it."""


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


def is_failing(count: int, code: str | None) -> bool:
    """Whether so many attempts in a row, the last with this code, make another host worth a try."""
    return count >= LEAVE_AFTER or code in HOPELESS


class Start(NamedTuple):
    """What a start on one host takes, the link to itself."""

    copy_bytes: int
    fetch_ms: int
    warm_ms: int
    learned: bool
    """Something of it was learned on that host."""

    @property
    def all_ms(self) -> int:
        return self.fetch_ms + self.warm_ms


@dataclass(slots=True)
class Experience:
    """The records of a world that are believed, by what they are about. One record a host: the newest."""

    world: World
    _times: dict[tuple[TimeKind, Key], dict[HostId, LearnedTime]] = field(default_factory=dict)
    _failures: dict[Key, dict[HostId, FailedStarts]] = field(default_factory=dict)
    _speeds: dict[Key, dict[HostId, MeasuredSpeed]] = field(default_factory=dict)
    _leads: dict[ProfileName, Lead] = field(default_factory=dict)
    failing_hosts: frozenset[HostId] = frozenset()
    """Hosts on which anything is failing."""

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
        said = (f for hosts in self._failures.values() for f in hosts.values())
        self.failing_hosts = frozenset(f.host for f in said if is_failing(f.count, f.code))
        for speed in sorted(learned.speeds, key=lambda s: (max(s.tokens_at_ms, s.latency_at_ms), _numbers(s))):
            self._speeds.setdefault(Key(speed.profile, speed.config, speed.revision), {})[speed.host] = speed
        self._leads = {e.profile: e for e in sorted(learned.leads, key=lambda e: -e.lead_ms) if e.lead_ms >= 0}

    def about(self, profile: Profile, config: Config) -> Key | None:
        """What to ask for below. None: there are no records of anything."""
        return key_of(profile, config) if self._times or self._failures or self._speeds else None

    def times(self, kind: TimeKind, about: Key | None) -> Mapping[HostId, LearnedTime]:
        return self._times.get((kind, about), {}) if about is not None else {}

    def failures(self, about: Key | None) -> Mapping[HostId, int]:
        """Failed attempts, so many at most as are counted."""
        found = self._failures.get(about, {}) if about is not None else {}
        return {h: min(f.count, FAILURES_COUNTED) for h, f in found.items()}

    def failing(self, about: Key | None) -> Mapping[HostId, FailedStarts]:
        """Hosts on which it failed so often that another is worth a try."""
        found = self._failures.get(about, {}) if about is not None and self.failing_hosts else {}
        return {h: f for h, f in found.items() if is_failing(f.count, f.code)}

    def speeds(self, about: Key | None) -> Mapping[HostId, MeasuredSpeed]:
        """As recorded: how far they are believed is `speed`'s question, for they fade within minutes."""
        return self._speeds.get(about, {}) if about is not None else {}

    def believed(self, about: Key | None) -> tuple[LearnedTime | FailedStarts, ...]:
        """Every record of it that is believed, in one order: equal for two plans where they were taught the same."""
        if about is None:
            return ()
        times = [t for kind in TimeKind for _, t in sorted(self.times(kind, about).items())]
        return (*times, *(f for _, f in sorted(self._failures.get(about, {}).items())))

    def start(self, profile: Profile, config: Config | Launch, view: HostView) -> Start:
        """How long files that are not there take to come to a host, and the start after it."""
        host, about = view.host.id, self._about(profile, config)
        fetched = self.times(TimeKind.FETCH, about).get(host)
        copy = sum([f.size_bytes for f in config.artifact.files if f.sha256 not in view.cached])
        fetch_ms = rate = 0
        if copy:
            rate = next((n.rate_bps for n in view.host.links if n.name == "download"), 0)
        if copy and fetched is not None:
            whole = sum(f.size_bytes for f in config.artifact.files)
            full = blend(whole * 8_000 // rate if rate else profile.timing.load_ms, fetched)
            fetch_ms = full * copy // whole
        elif copy:
            fetch_ms = copy * 8_000 // rate if rate else profile.timing.load_ms
        warmed = self.times(TimeKind.WARM, about).get(host)
        learned = bool(copy and fetched is not None) or warmed is not None
        return Start(copy, fetch_ms, _warm_ms(profile, warmed), learned)

    def warm_ms(self, profile: Profile, config: Config | Launch, host: HostId) -> int:
        """The start alone, where its files are there."""
        return _warm_ms(profile, self.times(TimeKind.WARM, self._about(profile, config)).get(host))

    def lead_ms(self, profile: ProfileName) -> int | None:
        """How long there is between the first sign of demand and demand. None: nobody knows."""
        found = self._leads.get(profile)
        return None if found is None else found.lead_ms

    def _about(self, profile: Profile, config: Config | Launch) -> Key | None:
        """What times to ask for. None: there are none of anything."""
        if not self._times:
            return None
        name = config.config if isinstance(config, Launch) else config.name
        return Key(profile.name, name, revision_of(config.artifact))

    def _recent(self, at_ms: int) -> bool:
        age = clock(self.world.inputs) - at_ms
        return -self.world.planning.heartbeat.future_skew_ms <= age < LEARN_VALID_MS


def experience_of(world: World) -> Experience:
    """One for a world, whoever asks."""
    shelf: Shelf[Experience] = world.recall.shelf("experience")
    return shelf.of("all", (world,), lambda: Experience(world))


def blend(prior_ms: int, learned: LearnedTime) -> int:
    """The prior, the more replaced the more samples there are."""
    known = min(learned.count, LEARN_TRUSTED)
    return (prior_ms * (LEARN_TRUSTED - known) + learned.ewma_ms * known) // LEARN_TRUSTED


def _warm_ms(profile: Profile, learned: LearnedTime | None) -> int:
    return profile.timing.warm_ms if learned is None else blend(profile.timing.warm_ms, learned)


def _numbers(speed: MeasuredSpeed) -> tuple[int, int, int, int]:
    return speed.tokens_count, speed.latency_count, speed.tokens_mps or 0, speed.latency_ms or 0
