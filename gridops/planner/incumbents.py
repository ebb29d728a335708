"""Who stands where now: what is known of each replica that the parent placed, and what verdict it got.

The nouns of `gather` (which finds them) and `verdicts` (which judges them), with the two questions both ask: what a
host may call a replica, and whether a running command still is what its profile wants.
"""

from __future__ import annotations

from dataclasses import replace
from enum import IntEnum
from typing import NamedTuple

from gridops.base.ids import Digest, HostId, ProfileName, ReplicaId, replica_id, split_replica
from gridops.model.intent import Where
from gridops.model.plan import Assignment, Cause, Launch
from gridops.model.profile import Config, Profile
from gridops.model.snapshot import Residency
from gridops.planner.eligible import is_gpu_work, launch_of
from gridops.planner.host_board import Claim
from gridops.planner.world import GivenUp, HostView, World


class Verdict(IntEnum):
    """What becomes of an incumbent, best first."""

    STAY = 0
    CHANGE = 1
    """Stays where it is, but its command has changed."""
    LEAVE = 2
    """Shall stand elsewhere; until it does, it stays."""
    RELEASE = 3
    """Its host is no longer ours to use: it is gone already."""


class Incumbent(NamedTuple):
    """A replica of the parent (or an adopted residency) with what is to become of it."""

    assignment: Assignment
    launch: Launch
    former: ReplicaId
    """Its id in the parent and on the host; differs from the assignment's only when the profile was renamed."""
    verdict: Verdict = Verdict.STAY
    cause: Cause | None = None
    """Why it cannot simply stay."""
    pinned: bool = False
    runs: bool = True
    """A live process of it is there (or nobody can say that it is not)."""
    ready: bool = False
    stuck: bool = False
    """Nobody can vouch for its process: its memory is held whatever is planned."""
    adopted: bool = False
    released: bool = False
    """The parent has it on a host that is not ours any more, and it was found here: its cause says so."""
    here_again: bool = False
    """Leaves its devices, not its host."""
    again: GivenUp | None = None
    """It is started anew where it stands, unless it finds another place: nothing of it runs, and nobody else will."""
    only_to: HostId | None = None
    """The only host it would leave for: a pin's, or its owner's where it ran before."""

    @property
    def replica(self) -> ReplicaId:
        return self.assignment.replica

    @property
    def host(self) -> HostId:
        return self.assignment.seat.host

    @property
    def claim(self) -> Claim:
        a = self.assignment
        return Claim(
            a.replica, a.profile, a.seat.devices, a.device_bytes, a.host_bytes, is_gpu_work(self.launch.backend)
        )


def current_config(profile: Profile, launch: Launch) -> Config | None:
    """The config that a running launch still is: the same process, whatever its name and source."""
    for config in profile.configs:
        if launch.backend in config.backends:
            wanted = launch_of(profile, config, launch.backend)
            if wanted == launch or process_of(wanted) == process_of(launch):
                return config
    return None


def mark(world: World, *paths: str) -> str | None:
    """Where something stands in the files, as text."""
    where: Where | None = world.inputs.intent.where(*paths)
    return str(where) if where is not None else None


def process_of(launch: Launch) -> Launch:
    artifact = replace(launch.artifact, source=None, credential=None)
    return replace(launch, profile=ProfileName(""), config="", artifact=artifact)  # type: ignore[arg-type]


def names_of(world: World, replica: ReplicaId, former: ReplicaId) -> tuple[ReplicaId, ...]:
    """What a host may call the replica: until it has taken the new label, a renamed one goes by its old id."""
    name, number = split_replica(replica)
    profile = world.profiles.get(name)
    old = profile.renamed_from if profile is not None else None
    return (replica, former) if old is None or old in world.profiles else (replica, former, replica_id(old, number))


def residency_of(view: HostView | None, replicas: tuple[ReplicaId, ...], launch: Digest) -> Residency | None:
    if view is None:
        return None
    return next((r for r in (*view.ours, *view.stuck) if r.replica in replicas and r.identity == launch), None)
