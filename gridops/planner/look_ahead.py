"""How long the next replica of a profile would take until it serves, on the fastest host it may use.

Demand that rises is planned for as far ahead as that (`sizing`). Counts of asked hosts bound the work, never a clock.
It is a property of hosts and rules alone: whether a host has room is `place`'s question.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from gridops.base.ids import Digest, HostId
from gridops.model.profile import Config, Profile
from gridops.planner.constants import START_HOSTS
from gridops.planner.eligible import Way, open_way
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
        timing = profile.timing
        best: int | None = None
        for config in profile.configs:
            for view in self._candidates(config):
                fetch = _fetch_ms(view, config, timing.load_ms)
                if best is not None and fetch >= best:
                    continue
                if view.host.id not in full and isinstance(open_way(profile, config, view, self.world.planning), Way):
                    best = fetch
            if best == 0:
                break
        return (timing.load_ms if best is None else best) + timing.warm_ms

    def _candidates(self, config: Config) -> Iterator[HostView]:
        """Open hosts that hold the artifact, then those with the fastest links."""
        if self._fast is None:
            self._look()
        assert self._fast is not None
        files = config.artifact.files
        yield from self._holders.get(files[0].sha256, [])[:START_HOSTS] if files else ()
        yield from self._fast

    def _look(self) -> None:
        views = [v for v in self.world.hosts.values() if v.closed is None]
        self._fast = tuple(sorted(views, key=lambda v: (-_download(v), v.host.id))[:START_HOSTS])
        for view in views:
            for file in sorted(view.cached):
                self._holders.setdefault(file, []).append(view)


def _fetch_ms(view: HostView, config: Config, load_ms: int) -> int:
    """Nothing where the artifact is; by a known link's rate; else the profile's own guess."""
    copy = sum(f.size_bytes for f in config.artifact.files if f.sha256 not in view.cached)
    rate = _download(view)
    return 0 if copy == 0 else copy * 8_000 // rate if rate else load_ms


def _download(view: HostView) -> int:
    """Bits per second; 0: unknown."""
    return next((n.rate_bps for n in view.host.links if n.name == "download"), 0)
