"""gridops opened on a cluster: its own policy for one seat, asked pod after pod without a whole plan between them.

What a repository would declare is declared: one profile for each different request of the list, with as many replicas
as the list has pods of it. Each pod is a model of its own with that request, seated by the rooms that seat a replica in
a plan.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from bench.yard.cluster import Pod
from bench.yard.pods import inputs, name_of, profile_of
from gridops.base.ids import HostId, ProfileName, ReplicaId, replica_id
from gridops.model.plan import Cause, CauseKind
from gridops.model.profile import Profile
from gridops.planner.capacity import Board
from gridops.planner.draft import Draft, Item
from gridops.planner.openings import Opening
from gridops.planner.seats import Seats
from gridops.planner.targets import choose
from gridops.planner.views import look

CAUSE = Cause(kind=CauseKind.INTENT, detail="a pod came")


class _Alike(Seats):
    """Seats that judge whoever asks as the profile in `like`, which differs in nothing but its name."""

    like: Profile

    def openings(self, profile: Profile) -> tuple[Opening, ...]:
        return super().openings(self.like)


class Classes:
    """A `Policy` of the cluster: pods with equal requests are judged alike."""

    def __init__(self, order: Sequence[int], listed: Sequence[Pod]) -> None:
        many = Counter(_request(pod) for pod in listed)
        self._profiles: dict[tuple[int, int, int], Profile] = {}
        for number, request in enumerate(sorted(many)):
            mem, gpus, share = request
            made = profile_of(number, Pod(cpu=0, mem=mem, gpus=gpus, share=share))
            self._profiles[request] = replace(
                made,
                name=ProfileName(f"request-{number:05d}"),
                priority=100,
                replicas_min=many[request],
                replicas_max=many[request],
                max_per_host=None,
            )
        given = inputs(order)
        profiles = tuple(sorted(self._profiles.values(), key=lambda p: p.name))
        desired = replace(given.intent.desired, profiles=profiles)
        world = look(replace(given, intent=replace(given.intent, desired=desired)))
        self._draft = Draft(world, Board.of(world), sizes=choose(world, ()).sizes)
        self._seats = _Alike(self._draft)
        self._held: dict[int, ReplicaId] = {}

    def seat(self, number: int, pod: Pod) -> HostId | None:
        """The host that the pod gets, or None."""
        request = self._profiles[_request(pod)]
        # Pods are strangers to each other: none has a replica elsewhere that it should keep away from.
        item = Item(replica_id(name_of(number), 1), replace(request, name=name_of(number)), CAUSE)
        self._seats.like = request
        found = self._seats.find(item)
        if found is None:
            return None
        self._draft.sit(item, found.best.host, found.best.offer, found.best.launch)
        self._held[number] = item.replica
        return found.best.host

    def leave(self, number: int, pod: Pod) -> None:
        self._draft.lift(self._held.pop(number))


def _request(pod: Pod) -> tuple[int, int, int]:
    return pod.mem, pod.gpus, pod.share
