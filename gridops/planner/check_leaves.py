"""The checker's rules about replicas that are taken off a host because they do not come up there.

Part of `check`, which says what may be imported here. Whoever lives there is not moved for this cause, nor who is being
tried; the failures must have been learned, and the host that takes it must have none like them.
"""

from __future__ import annotations

from collections.abc import Iterator

from gridops.base import canon
from gridops.base.codes.host import NO_SPACE
from gridops.base.ids import Digest, HostId
from gridops.model.plan import CauseKind, Decision, DecisionKind
from gridops.model.policy import ActionClass
from gridops.model.profile import ArtifactFile
from gridops.model.snapshot import ResidencyState
from gridops.planner.check_view import View

ATTEMPTS = 3
BELIEVED_MS = 30 * 24 * 3_600_000


def leaves(view: View) -> Iterator[str]:
    """Every decision of this cause is the move of something that is not there, away from where it failed."""
    for d in view.plan.decisions:
        if d.cause.kind is not CauseKind.FAILED_START:
            continue
        if d.kind is not DecisionKind.MOVE or d.source is None or d.target is None or d.source.host == d.target.host:
            yield f"{d.kind.value} {d.replica} is decided for a failed start and is no move to another host"
            continue
        if d.action_class is not ActionClass.REPAIR:
            yield f"moving {d.replica} for its failed starts is called {d.action_class.value}"
        if d.replica not in view.placed:
            continue  # whoever compares decisions and placement says so
        yield from _still_there(view, d, d.source.host)
        yield from _unfounded(view, d, d.source.host, d.target.host)


def _still_there(view: View, d: Decision, host: HostId) -> Iterator[str]:
    placed = view.placed[d.replica]
    profile, old = view.profiles.get(d.profile), view.former(placed)
    if (why := view.beat(host)) is not None or view.declared:
        yield f"{d.replica} leaves {host} for failed starts, and {host} {why or 'was not asked'}"
    if profile is not None and host in profile.placement.pins:
        yield f"{d.replica} leaves {host} for failed starts, and is pinned there"
    names = {*view.known_as(placed), *([old.replica] if old is not None else [])}
    states = {r.state for r in view.live(host) if r.replica in names} - {ResidencyState.FAILED}
    if _asked(view, d):
        states -= {ResidencyState.LOADING, ResidencyState.WARMING}
    elif old is not None and old.replica in view.inputs.under_way:
        yield f"{d.replica} leaves {host} for failed starts while one is under way"
    for state in sorted(states):
        yield f"{d.replica} leaves {host} for failed starts although it is {state.value} there"


def _unfounded(view: View, d: Decision, source: HostId, target: HostId) -> Iterator[str]:
    """The records speak against the source and not against the target."""
    old, placed = view.former(view.placed[d.replica]), view.placed[d.replica]
    was, now = view.old_launches.get(old.launch) if old is not None else None, view.launches[placed.launch]
    profile = view.profiles.get(d.profile)
    files = None if was is None else sorted(f.sha256 for f in was.artifact.files)
    # A config may have got another name since: it is the files and the place that say which records are meant.
    same = [c for c in (profile.configs if profile is not None else ()) if _files(c.artifact.files) == files]
    told = any(_fails(view, source, d, c.name, canon.digest(files)) for c in same)
    by_word = view.inputs.given_up is None and _asked(view, d)
    if not told and not by_word:
        yield f"{d.replica} leaves {source} for failed starts that nobody has learned of"
    if _fails(view, target, d, now.config, canon.digest(_files(now.artifact.files))):
        yield f"{d.replica} leaves {source} for {target}, where its starts fail, too"


def _files(files: tuple[ArtifactFile, ...]) -> list[Digest]:
    return sorted(f.sha256 for f in files)


def _fails(view: View, host: HostId, d: Decision, config: str, revision: Digest) -> bool:
    learned = view.inputs.learned
    ahead = view.desired.planning.heartbeat.future_skew_ms
    return any(
        (f.host, f.profile, f.config, f.revision) == (host, d.profile, config, revision)
        and -ahead <= view.clock - f.last_ms < BELIEVED_MS
        and (f.count >= ATTEMPTS or f.code == NO_SPACE.code)
        for f in (learned.failures if learned is not None else ())
    )


def _asked(view: View, d: Decision) -> bool:
    """The proposal that waits asks the same of this replica."""
    waiting = view.inputs.waiting
    return waiting is not None and any(
        w.replica == d.replica and w.kind is d.kind and w.cause.kind is d.cause.kind and w.source == d.source
        for w in waiting.decisions
    )
