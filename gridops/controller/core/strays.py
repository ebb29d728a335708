"""Processes of ours that no plan wants, and that nobody may end any more: they need a decision like any other.

A start that was taken back too late, or a host that comes back when its replicas have long stood elsewhere, leaves a
process beside the target. While the plan that replaced it has authority it is drained and stopped; after that nothing
differs between plans, so no comparison would ever say it. This does, and the planner makes a decision of it that people
see and approve, or that automatic mode carries out. `propose` asks it for every plan and every look at whether one is
needed. It must never name what is being ended, what nobody can vouch for, what the owner of its host keeps, or a failed
process at its own seat, of which `given_up` speaks.
"""

from __future__ import annotations

from gridops.base.ids import Digest, HostId, ReplicaId, replica_key
from gridops.controller.core.modes import desired_now
from gridops.controller.core.observe import seen, unseen_success
from gridops.controller.core.reconcile import PATIENCE_MS
from gridops.controller.core.rights import Rights, may_end
from gridops.controller.core.roster import Roster
from gridops.controller.core.soft import Soft
from gridops.model.action import Drain, Unload
from gridops.model.plan import Cause, CauseKind, Change, Plan, Seat
from gridops.model.snapshot import Residency, ResidencyState
from gridops.planner.scene import Scene, set_scene
from gridops.planner.world import Stray
from gridops.protocol import outbox as ob
from gridops.trust.approved import process_name


def strays(rights: Rights, soft: Soft, roster: Roster) -> tuple[Stray, ...]:
    """One line per replica that has such processes, in the order of replicas."""
    target = rights.book.target or _of_nobody(soft.scope(rights.scope).candidate)
    if target is None:
        return ()
    scene = set_scene(target, seen(soft, roster, rights.scope, rights.now_ms), rights.now_ms, desired_now(rights.state))
    found: dict[ReplicaId, list[tuple[HostId, Residency]]] = {}
    for host, residency in scene.obsolete():
        assert residency.replica is not None
        replica = scene.now_called(residency.replica)
        if not _is_stray(scene, host, residency) or _being_ended(rights, soft, host, residency):
            continue
        if _nobody_may(scene, rights, host, residency):
            found.setdefault(replica, []).append((host, residency))
    nowhere = "the plan in force has no {}" if rights.book.target is not None else "no plan is in force that has {}"
    return tuple(_line(scene, r, found[r], nowhere.format(r)) for r in sorted(found, key=replica_key))


def _of_nobody(candidate: Plan | None) -> Plan | None:
    """After a rebuild without a plan, where nothing is wanted or nothing has room: no decision would ever put a plan in
    force, and what no plan knows would run, and hold its memory, for ever."""
    return candidate if candidate is not None and candidate.parent is None and not candidate.placement else None


def _nobody_may(scene: Scene, rights: Rights, host: HostId, residency: Residency) -> bool:
    """No decision in force is about the end of this very process."""
    assert residency.replica is not None
    assert residency.incarnation is not None, "what has none is no stray"
    end = Unload(host=host, replica=residency.replica, profile=residency.profile, incarnation=residency.incarnation)
    return may_end(rights, end, scene.reports.get(host)) is not None


def _is_stray(scene: Scene, host: HostId, residency: Residency) -> bool:
    if residency.incarnation is None or residency.state is ResidencyState.UNKNOWN:
        return False
    if scene.kept_for_its_owner(host, residency):
        return False
    assert residency.replica is not None
    a = scene.assignment(scene.now_called(residency.replica))
    at_its_seat = a is not None and a.seat.host == host and a.launch == residency.identity
    return not (at_its_seat and a is not None and a.replica not in scene.adopted)


def _being_ended(rights: Rights, soft: Soft, host: HostId, residency: Residency) -> bool:
    book = rights.state.hosts.get(host)
    if book is None or residency.replica is None:
        return False
    actions = (entry.body.action for entry in ob.open_entries(book.outbox))
    if any(isinstance(a, Drain | Unload) and a.incarnation == residency.incarnation for a in actions):
        return True
    return residency.replica in unseen_success(book, soft, host, rights.now_ms, PATIENCE_MS)


def _line(scene: Scene, replica: ReplicaId, processes: list[tuple[HostId, Residency]], nowhere: str) -> Stray:
    host, first = processes[0]
    a = scene.assignment(replica)
    where = f"{replica} stands on {a.seat.host}" if a is not None else nowhere
    hosts = ", ".join(dict.fromkeys(h for h, _ in processes))
    return Stray(
        replica=replica,
        profile=scene.profile_of(replica),
        seat=Seat(host=host, devices=tuple(sorted(first.devices))),
        cause=Cause(kind=CauseKind.INTENT, detail=f"still runs on {hosts}, and {where}"),
        was=tuple(
            Change(field="process", old=process_name(h, r.incarnation or Digest("")), new="ended") for h, r in processes
        ),
    )
