"""Whether a replica that never came up on its host is tried on another one, and where it is not tried.

A start that failed a few times in a row will most likely fail again while a healthy peer stands idle, so its seat is
given up. Never while anything of the replica lives there or an attempt is under way: that may still succeed. Never for
a host on which it is failing, too: so each is left once in a row of failures, and nothing goes back and forth. And for
no host at all once it came up on none of several: then the fault is likely its own. Whoever may go nowhere stays, and
the controller goes on trying there. Called by `verdicts` for who stands, by `seats` and `why` for where it may go.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gridops.base.codes import placement as codes
from gridops.base.ids import HostId
from gridops.base.units import counted
from gridops.footprint.need import identity
from gridops.model.learned import FailedStarts
from gridops.model.plan import Cause, CauseKind, Decision, DecisionKind, HostLine
from gridops.model.profile import Config, Profile
from gridops.model.snapshot import ResidencyState
from gridops.planner.constants import FAILING_HOSTS
from gridops.planner.eligible import launch_of
from gridops.planner.incumbents import Incumbent, Verdict, names_of
from gridops.planner.learned import experience_of, key_of
from gridops.planner.world import HostView, Standing, World

COMING = (ResidencyState.LOADING, ResidencyState.WARMING)


def never_up(world: World, incumbent: Incumbent, profile: Profile, config: Config) -> Incumbent | None:
    """The verdict LEAVE on who does not come up where it stands, with its cause; None: there is no such reason."""
    view = world.hosts.get(incumbent.host)
    if view is None or view.report is None or view.standing > Standing.THROTTLED or incumbent.pinned:
        return None
    asked = _asked(world, incumbent)
    if not _is_idle(world, incumbent, view, asked is not None):
        return None
    experience = experience_of(world)
    record = experience.failing(experience.about(profile, config)).get(incumbent.host)
    if record is not None:
        cause = Cause(kind=CauseKind.FAILED_START, detail=f"does not come up on {incumbent.host}: {_told(record)}")
        return incumbent._replace(verdict=Verdict.LEAVE, cause=cause)
    if asked is None or asked.target is None or world.inputs.given_up is not None:
        return None
    # Who plans without knowing the controller's memory asks again what its proposal asks.
    return incumbent._replace(verdict=Verdict.LEAVE, cause=asked.cause, only_to=asked.target.host)


@dataclass(frozen=True, slots=True)
class Bar:
    """Where a replica that leaves for this cause is not tried."""

    failing: Mapping[HostId, FailedStarts]
    everywhere: bool
    """It came up on none of so many hosts that it is tried on no more."""

    def line(self, host: HostId) -> HostLine | None:
        """Why not on this host; None: it may be tried."""
        if (record := self.failing.get(host)) is not None:
            return HostLine(host=host, code=codes.FAILED_HERE.code, detail=f"it did not come up there: {_told(record)}")
        if not self.everywhere:
            return None
        detail = f"it came up on none of {counted(len(self.failing), 'host')}, so the fault is likely its own"
        return HostLine(host=host, code=codes.FAILS_EVERYWHERE.code, detail=detail)


def bar_of(world: World, cause: Cause, profile: Profile, config: Config) -> Bar | None:
    """Where it is not tried in this config. None: it looks for a seat for another cause, or may go anywhere."""
    if cause.kind is not CauseKind.FAILED_START:
        return None
    found = experience_of(world).failing(key_of(profile, config))
    failing = {host: record for host, record in found.items() if host in world.hosts}
    if not failing:
        return None
    return Bar(failing, len(failing) >= FAILING_HOSTS and not _serves_anywhere(world, profile, config))


def _told(record: FailedStarts) -> str:
    return f"{counted(record.count, 'attempt')} failed{f', last: {record.code}' if record.code is not None else ''}"


def _asked(world: World, incumbent: Incumbent) -> Decision | None:
    """The proposal that waits asks just this already."""
    waiting, host = world.inputs.waiting, incumbent.host
    if waiting is None or world.proposed.get(incumbent.replica, host) == host:
        return None
    found = (d for d in waiting.to_do if d.replica == incumbent.replica and d.kind is DecisionKind.MOVE)
    asks = (d for d in found if d.cause.kind is CauseKind.FAILED_START and d.source is not None)
    return next((d for d in asks if d.source == incumbent.assignment.seat), None)


def _is_idle(world: World, incumbent: Incumbent, view: HostView, asked: bool) -> bool:
    """Nothing of it lives there and nothing is under way. Once people are asked, a further attempt takes nothing back:
    only its success does."""
    names = names_of(world, incumbent.replica, incumbent.former)
    live = [r for r in (*view.ours, *view.stuck) if r.replica in names and r.state is not ResidencyState.FAILED]
    if asked:
        return all(r.state in COMING for r in live)
    return not live and incumbent.former not in world.inputs.under_way


def _serves_anywhere(world: World, profile: Profile, config: Config) -> bool:
    wanted = {identity(launch_of(profile, config, backend)) for backend in config.backends}
    return any(r.state is ResidencyState.READY and r.identity in wanted for v in world.hosts.values() for r in v.ours)
