"""How long the next replica of a profile would take until it serves, on the fastest host it may use.

By what was learned there, else by the link, else by the profile's own guess. Demand that rises is planned for as far
ahead as that (`sizing`). Counts of asked hosts bound the work, never a clock. It is a property of hosts and rules
alone: whether a host has room is `place`'s question.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from gridops.base.ids import Digest, HostId
from gridops.model.learned import TimeKind
from gridops.model.profile import Config, Profile
from gridops.planner.constants import START_HOSTS
from gridops.planner.eligible import Way, open_way
from gridops.planner.learned import experience_of, key_of
from gridops.planner.world import HostView, World


@dataclass(slots=True)
class Starts:
    """Answers for many profiles of one world; what they share is looked up when first asked."""

    world: World
    _fast: tuple[HostView, ...] | None = None
    _holders: dict[Digest, list[HostView]] = field(default_factory=dict)

    def fastest_ms(self, profile: Profile, taken: Sequence[HostId]) -> int:
        """Load and warm time on the fastest host. `taken`: hosts of the profile's replicas, one entry each."""
        most = profile.max_per_host
        full = {h for h, n in Counter(taken).items() if most is not None and n >= most}
        experience = experience_of(self.world)
        best: int | None = None
        for config in profile.configs:
            for view in self._candidates(profile, config):
                start = experience.start(profile, config, view).all_ms
                if best is not None and start >= best:
                    continue
                if view.host.id not in full and isinstance(open_way(profile, config, view, self.world.planning), Way):
                    best = start
        return profile.timing.load_ms + profile.timing.warm_ms if best is None else best

    def _candidates(self, profile: Profile, config: Config) -> Iterator[HostView]:
        """Open hosts that are known to be quick, those that hold the artifact, then those with the fastest links."""
        if self._fast is None:
            self._look()
        assert self._fast is not None
        files, experience, about = config.artifact.files, experience_of(self.world), key_of(profile, config)
        for kind in (TimeKind.WARM, TimeKind.FETCH):
            quick = sorted(experience.times(kind, about).values(), key=lambda t: (t.ewma_ms, t.host))[:START_HOSTS]
            views = (self.world.hosts.get(t.host) for t in quick)
            yield from (v for v in views if v is not None and v.closed is None)
        yield from self._holders.get(files[0].sha256, [])[:START_HOSTS] if files else ()
        yield from self._fast

    def _look(self) -> None:
        views = [v for v in self.world.hosts.values() if v.closed is None]
        self._fast = tuple(sorted(views, key=lambda v: (-_download(v), v.host.id))[:START_HOSTS])
        for view in views:
            for file in sorted(view.cached):
                self._holders.setdefault(file, []).append(view)


def _download(view: HostView) -> int:
    """Bits per second; 0: unknown."""
    return next((n.rate_bps for n in view.host.links if n.name == "download"), 0)
