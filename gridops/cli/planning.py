"""What `plan` and `explain` plan from: the files here, the newest state that can be had, and what is in force.

The state is the controller's when it answers, else what lies on `gridops/state`, else declarations alone; the caller
says which it was and how old. Planning itself is `planner.plan`, and each plan is checked by `planner.check` before
anybody sees it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gridops import __version__
from gridops.base.canon import digest
from gridops.base.codes.trust import PLAN_EDITED
from gridops.base.errors import Bug, ConfigError, Failed, GridopsError, Refusal, Unreachable
from gridops.base.ids import Digest, HostId, ProfileName, ReplicaId, ScopeName
from gridops.base.record import Malformed, from_data
from gridops.cli.client import connect, fleet_settings, root_of
from gridops.cli.output import Context, Usage
from gridops.cli.person import ROOTS, chain_of
from gridops.cli.standing import holds_fleet, no_fleet
from gridops.files.git import Checkout
from gridops.files.load import load
from gridops.files.plandoc import read_plan
from gridops.files.projection import PlanBranch
from gridops.files.tree import WorkingTree
from gridops.model.intent import Intent
from gridops.model.learned import Learned
from gridops.model.plan import Cause, Change, Plan, Seat
from gridops.model.snapshot import Snapshot, SnapshotSource
from gridops.planner.check import check
from gridops.planner.declared import declared_snapshot
from gridops.planner.planner import Inputs
from gridops.planner.planner import plan as make_plan
from gridops.planner.world import GivenUp, Stray, supposing

CONTROLLER_TIMEOUT_S = 3.0
AGAINST = ("auto", "live", "state", "declared")
UNENROLLED = digest({"fleet": "none"})
"""Stands for the fleet in a preview where no trust root exists yet; such a plan can never be signed."""


@dataclass(frozen=True, slots=True)
class Seen:
    """One look at the world. `targets` is what is in force, by scope."""

    snapshot: Snapshot
    targets: Mapping[ScopeName, Plan] = field(default_factory=dict)
    watching_since_ms: int | None = None
    waiting: Mapping[ScopeName, Plan] = field(default_factory=dict)
    """What waits for people, by scope."""
    learned: Learned | None = None
    written_off: frozenset[HostId] = frozenset()
    given_up: Mapping[ScopeName, tuple[GivenUp, ...]] | None = None
    strays: Mapping[ScopeName, tuple[Stray, ...] | None] | None = None
    """What the controller has given up, by scope. None: whoever answered does not say, or nobody did."""
    under_way: frozenset[ReplicaId] = frozenset()
    """Replicas that are being loaded or started by a command."""
    note: str = ""
    """Why it is not a better source, for people."""


@dataclass(frozen=True, slots=True)
class Place:
    """The repository of a call."""

    directory: Path
    checkout: Checkout | None
    fleet: Digest
    agents_from: str | None = None
    """The oldest version of an agent that the root here lets be driven. None: any."""


def place_of(context: Context) -> Place:
    """The fleet's folder and repository. Raises Usage where there is none."""
    directory = root_of(context.directory)
    checkout: Checkout | None = None
    try:
        checkout = Checkout(directory)
    except Failed:
        checkout = None
    if checkout is not None and checkout.root is not None and checkout.root != directory.resolve():
        context.say(f"note: {directory} is not the root of its repository; its commits and stored plans are not read")
        checkout = None
    bare = checkout is not None and checkout.root is None
    if not bare and not holds_fleet(directory):
        raise no_fleet(directory)
    if not (directory / ROOTS / "1.json").is_file():
        return Place(directory, checkout, UNENROLLED)
    chain = chain_of(directory)
    return Place(directory, checkout, chain.fleet, chain.agents_from)


def intent_of(place: Place) -> Intent:
    """The files as they stand, marked dirty where they differ from the commit. Raises ConfigError."""
    checkout = place.checkout
    if checkout is None:
        return load(WorkingTree(place.directory), dirty=True)
    head = checkout.resolve("HEAD")
    if checkout.root is None:
        commit = checkout.head()
        return load(checkout.tree(commit), commit=commit, subject=checkout.subject(commit))
    if head is None:
        return load(WorkingTree(place.directory), dirty=True)
    return load(WorkingTree(place.directory), commit=head, subject=checkout.subject(head), dirty=checkout.dirty())


def intent_at(place: Place, revision: str) -> Intent:
    """The intent of another commit. Raises Usage for a revision that is none, ConfigError naming it."""
    commit = place.checkout.resolve(revision) if place.checkout is not None else None
    if place.checkout is None or commit is None:
        raise Usage(f"--base {revision}: names no commit here", hints=("fetch it first: git fetch origin",))
    try:
        return load(place.checkout.tree(commit), commit=commit, subject=place.checkout.subject(commit))
    except ConfigError as error:
        raise ConfigError(f"--base {revision}: {error.message}", error.problems, hints=error.hints) from error


def look(context: Context, place: Place, intent: Intent, now_ms: int, against: str = "auto") -> dict[ScopeName, Seen]:
    """The best state that can be had for each scope. Raises Unreachable when `live` is asked for and nobody answers."""
    note = ""
    scopes = [s for s in intent.desired.scopes if context.wants(s)]
    if against in ("auto", "live"):
        try:
            live = _live(context)
        except GridopsError as error:
            if against == "live":
                raise
            # That no controller is configured is an ordinary thing and no news.
            note = error.message if isinstance(error, Unreachable) else ""
        else:
            return dict.fromkeys(scopes, live)
    found: dict[ScopeName, Seen] = {}
    for scope in scopes:
        stored = _stored(place, scope) if against in ("auto", "state") else None
        if stored is None and against == "state":
            hints = ("fetch it: git fetch origin gridops/state",)
            raise Failed(f"scope {scope}: nothing is stored on gridops/state", hints=hints)
        snapshot = stored if stored is not None else declared_snapshot(intent.desired, now_ms)
        parent = applied(place, scope)
        found[scope] = Seen(snapshot, {} if parent is None else {scope: parent}, note=note)
    return found


def plan_scope(place: Place, intent: Intent, scope: ScopeName, seen: Seen, now_ms: int) -> Plan:
    """One checked plan of a scope, compared with what is in force."""
    inputs = inputs_of(place, intent, scope, seen, now_ms)
    plan = make_plan(inputs)
    faults = check(plan, inputs)
    if faults:
        raise Bug(f"the plan breaks rules of its own: {'; '.join(faults[:5])}")
    return plan


def inputs_of(place: Place, intent: Intent, scope: ScopeName, seen: Seen, now_ms: int) -> Inputs:
    """What the planner is asked."""
    return Inputs(
        intent=intent,
        scope=scope,
        fleet=place.fleet,
        snapshot=seen.snapshot,
        parent=seen.targets.get(scope),
        now_ms=now_ms,
        version=__version__,
        watching_since_ms=seen.watching_since_ms,
        waiting=seen.waiting.get(scope),
        written_off=seen.written_off,
        given_up=None if seen.given_up is None else seen.given_up.get(scope, ()),
        strays=None if seen.strays is None else seen.strays.get(scope, ()),
        learned=seen.learned,
        prefetched=tuple(p for report in seen.snapshot.hosts for p in report.prefetched or ()),
        under_way=seen.under_way,
        agents_from=place.agents_from,
    )


def from_base(place: Place, base: Intent, scope: ScopeName, seen: Seen, now_ms: int) -> Seen:
    """The same world as if the intent of another commit were in force: a plan from it shows what a change brings."""
    if scope not in base.desired.scopes:
        return seen
    then = supposing(inputs_of(place, base, scope, seen, now_ms), plan_scope(place, base, scope, seen, now_ms))
    assert then.parent is not None  # the plan that was just made
    return replace(
        seen,
        targets={scope: then.parent},
        waiting={},
        given_up={scope: then.given_up or ()},
        strays={scope: then.strays},
        under_way=then.under_way,
    )


def applied(place: Place, scope: ScopeName) -> Plan | None:
    """The newest plan of a scope whose result lies on the plans branch, if its signature holds.

    Raises Refusal for one that was edited by hand: what would be compared with it could not be trusted.
    """
    if place.checkout is None or place.fleet == UNENROLLED:
        return None
    branch = plans_of(place)
    done = [p for p in branch.places() if p.finished and p.scope == scope]
    return None if not done else read_stored(place, branch, done[-1].id, scope)


def plans_of(place: Place) -> PlanBranch:
    """The branch where plans lie. Raises Failed outside a repository."""
    if place.checkout is None:
        raise Failed(f"{place.directory}: not a git repository, so no plans are stored here")
    settings = fleet_settings(place.directory)
    watched = settings.remote_branch if settings.remote_url is not None else None
    return PlanBranch(place.checkout, settings.plans_branch, path=settings.plans_path, watched=watched)


def read_stored(place: Place, branch: PlanBranch, text: str, scope: ScopeName | None = None) -> Plan:
    """A stored plan, verified against the controller keys of the trust root."""
    found = branch.find(text, scope)
    stored = branch.read(found.id, found.scope)
    chain = chain_of(place.directory)
    plan = read_plan(stored.yaml, stored.envelope, chain.plan_keys(), file=branch.plan_file(found))
    if plan.fleet != chain.fleet or plan.id != found.id or plan.scope != found.scope:
        signed = f"{plan.scope} {plan.id} of fleet {plan.fleet}"
        raise Refusal(PLAN_EDITED.code, f"{branch.plan_file(found)}: what was signed is {signed}")
    return plan


def _live(context: Context) -> Seen:
    return seen_of(connect(context, timeout_s=CONTROLLER_TIMEOUT_S).get("/v1/snapshot"))


def seen_of(answer: Mapping[str, Any]) -> Seen:
    """What a controller's answer says, with everything that it plans by itself. Raises Unreachable for another form.

    Controllers of before say less: what they do not say is as if nobody knew it.
    """
    try:
        snapshot = from_data(Snapshot, answer["snapshot"])
        targets = {ScopeName(t["scope"]): from_data(Plan, t["plan"]) for t in answer["targets"]}
        waiting = {ScopeName(t["scope"]): from_data(Plan, t["plan"]) for t in answer.get("proposals", ())}
        since = int(answer["watching_since_ms"])
        learned = from_data(Learned, answer["learned"]) if answer.get("learned") is not None else None
        told = answer.get("circumstances")
        gone = frozenset(HostId(host) for host in answer.get("written_off", ()))
        given_up = None if told is None else {ScopeName(t["scope"]): _given_up(t) for t in told}
        strays = None if told is None else {ScopeName(t["scope"]): _strays(t) for t in told}
        under_way = frozenset(ReplicaId(replica) for t in told or () for replica in t.get("under_way", ()))
    except (Malformed, LookupError, TypeError, ValueError) as error:
        raise Unreachable(f"the controller's snapshot is not of a form this version knows: {error}") from error
    return Seen(snapshot, targets, since, waiting, learned, gone, given_up, strays, under_way)


def _given_up(told: Mapping[str, Any]) -> tuple[GivenUp, ...]:
    return tuple(
        GivenUp(ReplicaId(g["replica"]), from_data(Cause, g["cause"]), from_data(Change, g["was"]))
        for g in told.get("given_up", ())
    )


def _strays(told: Mapping[str, Any]) -> tuple[Stray, ...] | None:
    """None: a controller of before says nothing of them."""
    listed = told.get("strays")
    if listed is None:
        return None
    return tuple(
        Stray(
            ReplicaId(s["replica"]),
            ProfileName(s["profile"]),
            from_data(Seat, s["seat"]),
            from_data(Cause, s["cause"]),
            tuple(from_data(Change, change) for change in s["was"]),
        )
        for s in listed
    )


def _stored(place: Place, scope: ScopeName) -> Snapshot | None:
    return None if place.checkout is None else plans_of(place).read_state(scope)


def is_live(seen: Seen) -> bool:
    return seen.snapshot.source is SnapshotSource.LIVE
