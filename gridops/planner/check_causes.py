"""The checker's rules about why a decision is taken: what its cause says is true of intent, snapshot and parent plan.

Part of `check`: a cause decides the class of a decision, and with it whether anybody is asked. So each pair of a
decision and a cause has its own condition here, derived a second time; pairs that no plan can have are refused as such.
Who gives way, and for whom, is `check_gains`; failed starts are `check_leaves`. Nothing of the planner.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from gridops.base.ids import HostId, ProfileName
from gridops.model.fleet import OnReturn
from gridops.model.plan import Assignment, CauseKind, Decision, DecisionKind
from gridops.model.profile import Profile
from gridops.model.snapshot import HostState, Ownership, ResidencyState
from gridops.planner.check_gains import gainers
from gridops.planner.check_places import (
    crowded,
    full,
    lost,
    objections,
    poorly,
    process,
    runs,
    shut_out,
    taken_from_us,
    undeclared,
)
from gridops.planner.check_view import View

FORECAST_VALID_MS = 300_000
PLACE, MOVE, CHANGE, REMOVE = DecisionKind.PLACE, DecisionKind.MOVE, DecisionKind.CHANGE, DecisionKind.REMOVE
NEVER = {
    (PLACE, CauseKind.RENAMED): "who is new was never called otherwise",
    (PLACE, CauseKind.HOST_LOST): "who is new stood nowhere",
    (MOVE, CauseKind.DEMAND): "demand moves nobody",
    (MOVE, CauseKind.RENAMED): "a new name moves nobody",
    (CHANGE, CauseKind.DEMAND): "demand changes no command",
    (CHANGE, CauseKind.HOST_LOST): "nothing changes on a host that is lost",
    (CHANGE, CauseKind.DRAIN): "nothing changes on a host that is drained",
    (REMOVE, CauseKind.POLICY): "who breaks a rule stays until it has another place",
    (REMOVE, CauseKind.RENAMED): "a new name removes nobody",
    (REMOVE, CauseKind.UNHEALTHY): "who is not well stays until it has another place",
    (REMOVE, CauseKind.DRAIN): "who is drained stays until it has another place",
    (REMOVE, CauseKind.REBALANCE): "nobody is removed to stand better",
}
"""Pairs that have a class and a risk, should they ever come, and that nothing can be the reason for."""


def causes(view: View) -> Iterator[str]:
    """Every decision has a cause that is so."""
    counts = None if view.partial else _Counts(view)
    for d in view.plan.decisions:
        if (lie := _lie(view, d)) is None and counts is not None:
            lie = counts.lie(d)
        if lie is not None:
            yield f"{d.kind.value} {d.replica} has the cause {d.cause.kind.value}, and {lie}"


def _lie(view: View, d: Decision) -> str | None:
    """What is known against the cause of one decision, by itself."""
    kind = d.cause.kind
    if (never := NEVER.get((d.kind, kind))) is not None and not _foreseen(view, d):
        return never
    if kind is CauseKind.DEMAND:
        known = _forecast(view, d.profile)
        return _still_wanted(view, d) if known else f"no forecast speaks of {d.profile}"
    if d.kind is DecisionKind.CANNOT_PLACE or kind is CauseKind.FAILED_START:
        return None
    if kind is CauseKind.RENAMED:
        return None if d.profile in view.names else f"{d.profile} was not called otherwise"
    if _beside(d):
        return None if kind is CauseKind.INTENT else "what runs beside the plan is ended since nobody wants it there"
    if _again(view, d):
        return None if _was_given_up(view, d) else "nobody has given it up"
    if d.kind is PLACE and kind is CauseKind.INTENT:
        return None
    if d.kind is REMOVE and kind is CauseKind.INTENT:
        return _still_wanted(view, d)
    reason = REASONS[kind]
    sources = [d.source.host] if d.source is not None else [h for h in sorted(view.reports) if runs(view, d.replica, h)]
    found = [reason(view, d, host) for host in sources]
    if not found:
        return "nothing of it stands anywhere"
    return None if None in found else found[0]


def _still_wanted(view: View, d: Decision) -> str | None:
    """A removal of what is reported missing at once, and does not stand on a host that is no longer ours."""
    host = d.source.host if d.kind is REMOVE and d.source is not None else None
    if host is None or taken_from_us(view, host) or shut_out(view, host):
        return None
    return "it is missing then" if any(u.replica == d.replica for u in view.plan.report.unplaced) else None


def _foreseen(view: View, d: Decision) -> bool:
    """Somebody said before that no forecast speaks of it: that is told first."""
    return d.cause.kind is CauseKind.DEMAND and not _forecast(view, d.profile)


def _drain(view: View, d: Decision, host: HostId) -> str | None:
    report = view.reports.get(host)
    drained = view.beat(host) == "is drained" or (report is not None and report.state is HostState.DRAINING)
    return None if drained else f"{host} is not drained"


def _host_lost(view: View, d: Decision, host: HostId) -> str | None:
    if shut_out(view, host) and not taken_from_us(view, host):
        return None
    if d.kind is not REMOVE and lost(view, host):
        return None
    return f"{host} is there" if view.beat(host) is None else f"{host} is not lost"


def _unhealthy(view: View, d: Decision, host: HostId) -> str | None:
    """The host says so, or its process failed there, or a device is gone, or there is too little memory."""
    if taken_from_us(view, host) or shut_out(view, host):
        return f"{host} is not ours"
    old = _former(view, d)
    names = {d.replica} | ({old.replica, *view.known_as(old)} if old is not None else set())
    mine = [r for r in view.live(host) if r.replica in names and r.ownership is Ownership.MANAGED]
    if poorly(view, host) or any(r.state is ResidencyState.FAILED for r in mine):
        return None
    devices = set(old.seat.devices) if old is not None else {x for r in mine for x in r.devices}
    if devices - set(view.usable(host)) or crowded(view, host):
        return None
    return f"{host} and what runs there are well, and there is memory"


def _policy(view: View, d: Decision, host: HostId) -> str | None:
    """A rule of its file or of the host speaks against where it stands, or a pin for where it goes."""
    profile, declared, old = view.profiles.get(d.profile), view.hosts.get(host), _former(view, d)
    if profile is None or declared is None:
        return "its profile or its host is not declared"
    if d.target is not None and d.target.host != host and d.target.host in profile.placement.pins:
        return None
    launch = view.old_launches.get(old.launch) if old is not None else None
    against = any(objections(view, profile, declared)) or undeclared(declared, launch)
    if against or full(view, profile, host):
        return None
    return f"no rule speaks against it on {host}"


def _intent(view: View, d: Decision, host: HostId) -> str | None:
    """Its host is no longer ours, or its command or its terms are not what its file says any more."""
    old = _former(view, d)
    if taken_from_us(view, host) or old is None:
        return None
    if process(view.profiles.get(d.profile), view.old_launches.get(old.launch)) is None:
        return None
    if d.kind is CHANGE and any(c.field == "serves" or c.field.startswith(("restart.", "timing.")) for c in d.changes):
        return None
    return f"nothing that is wanted of it has changed, and {host} is declared"


def _rebalance(view: View, d: Decision, host: HostId) -> str | None:
    """It makes room for somebody, or its owner's older copy is back."""
    declared = view.hosts.get(d.target.host) if d.target is not None else None
    absence = declared.absence if declared is not None else None
    if absence is not None and absence.on_return is OnReturn.KEEP_OLDEST and d.target is not None:
        old = _former(view, d)
        names = {d.replica} | ({old.replica, *view.known_as(old)} if old is not None else set())
        here = (r for r in view.live(d.target.host) if r.replica in names)
        if d.target.host != host and any(r.state is ResidencyState.READY for r in here):
            return None
    if (why := gainers(view, d, host)) is None or _spreads(view, d):
        return None
    profiles = (view.profiles.get(a.profile) for a in view.on.get(host, ()) if a.replica in d.cause.detail)
    # Who was to leave stays as it is: that somebody else goes was enough.
    stays = any(p is not None and (crowded(view, host) or full(view, p, host)) for p in profiles)
    return None if stays else why


def _spreads(view: View, d: Decision) -> bool:
    """It goes where none of its profile stands, from where another does, as its file asks for more domains."""
    profile = view.profiles.get(d.profile)
    if profile is None or profile.spread is None or d.source is None or d.target is None:
        return False
    if view.partial:
        return True  # of the others, some may stand where they stood
    others = {view.domain(a.seat.host, profile.spread.by) for a in view.of[d.profile] if a.replica != d.replica}
    return view.domain(d.target.host, profile.spread.by) not in others | {None}


REASONS: dict[CauseKind, Callable[[View, Decision, HostId], str | None]] = {
    CauseKind.INTENT: _intent,
    CauseKind.DRAIN: _drain,
    CauseKind.HOST_LOST: _host_lost,
    CauseKind.UNHEALTHY: _unhealthy,
    CauseKind.POLICY: _policy,
    CauseKind.REBALANCE: _rebalance,
    CauseKind.DISPLACED: gainers,
}
"""What is known against a cause of somebody who stands on a host; None: it is so."""


def _former(view: View, d: Decision) -> Assignment | None:
    placed = view.placed.get(d.replica)
    return view.former(placed) if placed is not None else view.before.get(d.replica)


def _beside(d: Decision) -> bool:
    """It ends what runs beside the placement: `decisions` says whether that is there."""
    return d.kind is REMOVE and any(c.field == "process" for c in d.changes)


def _again(view: View, d: Decision) -> bool:
    """It is started anew where it stands."""
    return d.kind is PLACE and any(c.field == "process" for c in d.changes)


def _was_given_up(view: View, d: Decision) -> bool:
    """Who carries plans out says so, for the same reason; who does not know asks what the proposal asks."""
    rows, waiting, old = view.inputs.given_up, view.inputs.waiting, _former(view, d)
    if rows is not None:
        return any(old is not None and r.replica == old.replica and r.cause == d.cause for r in rows)
    return waiting is not None and any(
        w.kind is PLACE and w.replica == (old.replica if old is not None else d.replica) and w.cause == d.cause
        for w in waiting.decisions
    )


def _forecast(view: View, name: ProfileName) -> bool:
    """A forecast that is young enough speaks of the profile."""
    forecast, mine = view.inputs.forecast, view.profiles.get(name)
    if forecast is None:
        return False
    age, ahead = view.clock - forecast.made_ms, view.desired.planning.heartbeat.future_skew_ms
    names = {name, view.names.get(name), mine.renamed_from if mine is not None else None}
    names |= {new for new, old in view.names.items() if old == name}
    return -ahead <= age < FORECAST_VALID_MS and any(e.profile in names for e in forecast.profiles)


@dataclass(slots=True)
class _Tally:
    """Replicas of one profile in the plan, standing or missing; and of those that come, for what."""

    total: int = 0
    by_file: int = 0
    by_demand: int = 0
    dropped: int = 0
    """Gone with their host, and not looked for any more."""


class _Counts:
    """What causes say about numbers: what the file asks for comes and goes by intent, the rest by demand."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._of: dict[ProfileName, _Tally] = {}
        missing = {u.replica for u in view.plan.report.unplaced}
        for name in (*(a.profile for a in view.plan.placement), *(ProfileName(r.rpartition("/")[0]) for r in missing)):
            self._of.setdefault(name, _Tally()).total += 1
        for d in view.plan.decisions:
            tally = self._of.setdefault(d.profile, _Tally())
            if self._comes(d):
                tally.by_file += d.cause.kind is CauseKind.INTENT
                tally.by_demand += d.cause.kind is CauseKind.DEMAND
            elif d.kind is REMOVE and d.replica not in missing and self._is_gone(d):
                tally.dropped += 1

    def _comes(self, d: Decision) -> bool:
        """Neither the parent nor any host knows it."""
        if d.kind is DecisionKind.CANNOT_PLACE:
            return d.replica not in self._view.before and d.profile not in self._view.names
        return d.kind is PLACE and d.replica in self._view.fresh and d.replica not in self._view.before

    def _is_gone(self, d: Decision) -> bool:
        return d.source is not None and (
            taken_from_us(self._view, d.source.host) or shut_out(self._view, d.source.host)
        )

    def lie(self, d: Decision) -> str | None:
        profile, kind = self._view.profiles.get(d.profile), d.cause.kind
        if profile is None or d.profile in self._view.names or kind not in (CauseKind.INTENT, CauseKind.DEMAND):
            declared = profile is not None or d.profile in self._view.names.values()  # by its new name
            return None if kind is not CauseKind.DEMAND or declared else f"{d.profile} is not declared"
        if d.kind is REMOVE:
            return None if _beside(d) else self._removed(d, profile)
        return self._came(d, profile) if self._comes(d) else None

    def _came(self, d: Decision, profile: Profile) -> str | None:
        tally, least = self._of[d.profile], self._view.wanted(profile)
        if d.cause.kind is CauseKind.DEMAND:
            return f"its file asks for {least}" if tally.total - tally.by_demand < least else None
        kept = tally.total - tally.by_file - tally.by_demand
        return f"its file asks for {least}" if tally.by_file > max(0, least - kept) else None

    def _removed(self, d: Decision, profile: Profile) -> str | None:
        """The file asks for fewer: it has no more room for them, or wants fewer at least than it did."""
        if d.cause.kind is CauseKind.INTENT and self._is_gone(d):
            return None
        view, tally = self._view, self._of[d.profile]
        parent, least = view.inputs.parent, view.wanted(profile)
        asked = next(
            (t.replicas_min for t in (parent.terms if parent is not None else ()) if t.profile == d.profile), 0
        )
        most, kept = max(least, profile.replicas_max), tally.total - tally.by_file - tally.by_demand
        found = set()
        for number in range(kept, kept + tally.dropped + 1):
            found.add(not _forecast(view, d.profile) or number >= most or (number == least and asked > least))
        if (d.cause.kind is CauseKind.INTENT) in found:
            return None
        return "its file asks for no fewer" if d.cause.kind is CauseKind.INTENT else "its file is what asks for fewer"
