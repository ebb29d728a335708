"""From advice about disks to steps: files to fetch ahead of demand, and files fetched so that may go again.

Advice is no decision: it is carried out only by standing authority or by a person's word for the very step, only on
hosts whose agents say that they can, and only while the newest report of the host still bears it out. What a plan needs
always comes first, and nothing that a person put there, pinned or uses is ever told to go. Called by `actions`;
`objection` is asked again before delivery.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from gridops.base.ids import Digest, HostId, ProfileName, nobody
from gridops.model.action import Evict, Load
from gridops.model.advice import Advice, Prefetch
from gridops.model.plan import Launch, Plan
from gridops.model.profile import Artifact, Profile
from gridops.model.snapshot import HostReport, ResidencyState
from gridops.planner.scene import Scene

_NOT_THERE = frozenset({ResidencyState.ABSENT, ResidencyState.CACHED})
"""An offloaded replica holds no memory and comes back from its files."""
CAN = "evict"
"""`protocol.messages.Ability.EVICT`: who cannot delete a guess is not given one."""


def fetches(scene: Scene, advice: Advice, now_ms: int) -> list[Load]:
    """What may be fetched on a guess now. Files of replicas that are decided come by their own steps."""
    found = []
    for one in advice.prefetch:
        artifact = _artifact(scene.profiles, one)
        report = scene.reports.get(one.host)
        if one.replica is not None or artifact is None or report is None or one.host not in scene.open:
            continue
        expired = one.expires_ms is not None and now_ms >= one.expires_ms
        missing = sum(f.size_bytes for f in artifact.files if f.sha256 not in report.cached)
        room = report.disk_free_bytes is not None and report.disk_free_bytes >= missing
        if missing and room and not expired and report.can(CAN):
            found.append(
                Load(host=one.host, replica=nobody(one.profile), profile=one.profile, artifact=artifact, guess=True)
            )
    return found


def evictions(scene: Scene, advice: Advice) -> list[Evict]:
    """What may be deleted now."""
    found = []
    for one in advice.evict:
        evict = Evict(host=one.host, replica=nobody(one.profile), profile=one.profile, files=one.files)
        report, profile = scene.reports.get(one.host), scene.profiles.get(one.profile)
        pinned = profile.placement.pins if profile is not None else ()
        if report is not None and objection(evict, report, scene.target, scene.launches, pinned) is None:
            found.append(evict)
    return found


def objection(
    evict: Evict, report: HostReport, target: Plan, launches: Mapping[Digest, Launch], pinned: Collection[HostId]
) -> str | None:
    """Why these files may not be deleted, by the newest report of their host; None when they may. `pinned`: the hosts
    to which the profile is pinned that they were fetched for."""
    if not report.can(CAN):
        return "its agent does not delete by command"
    if not any(p.files == evict.files and p.profile == evict.profile and not p.used for p in report.prefetched or ()):
        return "the host does not report them as a guess that nobody used"
    if not set(evict.files).issubset(report.cached):
        return "they are not there any more as they were fetched"
    for r in report.residencies:
        launch = launches.get(r.identity) if r.identity is not None else None
        if r.state not in _NOT_THERE and (r.profile == evict.profile or _uses(launch, evict)):
            return f"{r.replica or r.profile} is there"
    for a in target.placement:
        if a.seat.host == report.host and (a.profile == evict.profile or _uses(launches.get(a.launch), evict)):
            return f"{a.replica} is to stand there"
    return f"{evict.profile} is pinned there" if report.host in pinned else None


def _uses(launch: Launch | None, evict: Evict) -> bool:
    return launch is not None and any(f.sha256 in evict.files for f in launch.artifact.files)


def _artifact(profiles: Mapping[ProfileName, Profile], one: Prefetch) -> Artifact | None:
    """What the profile declares now, if that is still what the advice was about."""
    profile = profiles.get(one.profile)
    config = profile.config(one.config) if profile is not None else None
    if config is None or config.artifact.source is None:
        return None
    declared = {f.sha256 for f in config.artifact.files}
    return config.artifact if declared.issuperset(one.files) else None
