"""By what right a command may be given now: the warrant of its replica, the mode, and what the root permits.

Asked when a command is made and again each time it is about to be granted. The table of architecture.md section 5
stands here for issuing; `apply` and `automatic` hold it for setting a target. It never grants anything to keep a
process alive: that is the host's own, by the body that warmed it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from gridops.base.codes.control import GO416, GO422, GO429
from gridops.base.codes.placement import HELD_WINDOW
from gridops.base.codes.protocol import UNAPPROVED
from gridops.base.codes.trust import AGENT_TOO_OLD, ROOT_EXPIRED
from gridops.base.errors import Refusal
from gridops.base.ids import Digest, ReplicaId, ScopeName
from gridops.base.windows import ZoneRules
from gridops.controller.core.catalogs import outdated
from gridops.controller.core.errands import spoken, way
from gridops.controller.core.learned import named
from gridops.controller.core.modes import Permitted
from gridops.controller.core.state import ScopeBook, State, Warrant, now_called
from gridops.footprint.need import identity
from gridops.model.action import Action, Drain, Load, Unload, Warm
from gridops.model.plan import Assignment
from gridops.model.policy import ActionClass, Window
from gridops.model.snapshot import HostReport
from gridops.planner.authority import errand
from gridops.planner.budgets import shut
from gridops.protocol.covers import Asked, as_reported, beyond_its_end, uncovered
from gridops.protocol.messages import Ability, Authority, AuthorityKind
from gridops.protocol.outbox import Entry
from gridops.trust.approval import Claim, require_carried
from gridops.trust.approved import Proof, process_name, prove, root_of
from gridops.trust.root import RootChain


@dataclass(frozen=True, slots=True)
class Hours:
    """When nothing is done by itself, and the rules of the zones that say so."""

    windows: tuple[Window, ...] = ()
    zones: Mapping[str, ZoneRules] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class No:
    """Why not, as a code and a sentence."""

    code: str
    detail: str


@dataclass(frozen=True, slots=True)
class Rights:
    """Everything that judging a scope's commands needs, at one moment."""

    state: State
    scope: ScopeName
    permitted: Permitted
    chain: RootChain
    now_ms: int
    hours: Hours = Hours()
    carried: dict[Digest, No | None] = field(default_factory=dict, compare=False)
    """By plan, what was found of its approvals at this moment: signatures are verified once."""

    @property
    def book(self) -> ScopeBook:
        return self.state.scope(self.scope)

    def now_called(self, replica: ReplicaId) -> ReplicaId:
        """A replica as the target calls it, whatever its host calls it."""
        return now_called(self.book.target, replica)

    def warrant(self, replica: ReplicaId) -> Warrant | None:
        """The warrant that speaks for a replica, by whichever name."""
        return self.book.warrants.get(self.now_called(replica))

    def speaking(self, action: Action) -> tuple[Warrant, ...]:
        """The warrants that may speak for a command: to end a process, the one for that very process comes first."""
        found = [self.warrant(action.replica)]
        if isinstance(action, Drain | Unload):
            found.insert(0, self.book.ends.get(process_name(action.host, action.incarnation)))
        return tuple(w for w in found if w is not None)


def may_issue(rights: Rights, action: Action, report: HostReport | None = None) -> Authority | No:
    """The authority under which a command may be made, or why it may not. `report` is the newest word of its host: no
    command is made that it could only refuse."""
    found = _nothing_at_all(rights) or _outdated(rights, report) or _authority(rights, action, report)
    if isinstance(found, No) or found.kind is not AuthorityKind.APPROVAL:
        return found
    if report is None or not report.can(Ability.PROOF.value):
        return found
    asked = Asked(rights.chain.fleet, rights.scope, action, found, as_reported(report.residencies))
    why = uncovered(asked, rights.chain, rights.now_ms)
    return found if why is None else No(UNAPPROVED.code, f"{named(action)}: its host would refuse it: {why}")


def _authority(rights: Rights, action: Action, report: HostReport | None) -> Authority | No:
    group = errand(action)
    if group is not None:
        words = spoken(rights.state, rights.scope, action, rights.now_ms)
        if words:
            return Authority(kind=AuthorityKind.APPROVAL, action_class=group, approvals=words)
        no = _standing_refused(rights, action.replica, group) or _shut(rights, action, group)
        return _of_errand(no, action) or Authority(kind=AuthorityKind.STANDING, action_class=group, approvals=())
    replica = action.replica
    if isinstance(action, Drain | Unload):
        ending = _to_end(rights, action, report, _worn_out)
        return ending if isinstance(ending, No) else _given(rights, ending, action)
    warrant = _to_start(rights, replica)
    if _restores(rights, action) and (warrant is None or _carries_not(rights, replica, warrant)):
        no = _shut(rights, action, ActionClass.REPAIR)
        return no or Authority(kind=AuthorityKind.STANDING, action_class=ActionClass.REPAIR, approvals=())
    if warrant is None:
        return No(GO416.code, f"{replica}: nobody has decided this yet, it waits for a plan")
    return _worn_out(rights, replica, warrant) or _given(rights, warrant, action)


def _given(rights: Rights, warrant: Warrant, action: Action) -> Authority | No:
    """The authority that a warrant gives while it lasts."""
    no = _not_standing(rights, action.replica, warrant)
    if no is None and warrant.kind is AuthorityKind.STANDING:
        no = _shut(rights, action, warrant.action_class)
    return no or Authority(
        kind=warrant.kind,
        action_class=warrant.action_class,
        approvals=warrant.approvals,
        proof=_proof(rights, warrant, action),
    )


def _proof(rights: Rights, warrant: Warrant, action: Action) -> Proof | None:
    """Which of the approved decisions speaks for a command, for its host to verify."""
    leaves, target = rights.book.leaves.get(warrant.plan), rights.book.target
    if warrant.decision is None or leaves is None:
        return None
    launch = None
    if isinstance(action, Load) and target is not None:
        alike = (one for one in target.launches if one.artifact == action.artifact)
        launch = next((one for one in alike if identity(one) == warrant.decision.launch), None)
    return prove(warrant.decision, leaves, launch)


def still_right(rights: Rights, entry: Entry, report: HostReport | None = None) -> No | None:
    """Why a command that the host has not decided must be taken back, or None while it may go. `report` is the newest
    word of its host."""
    no = _nothing_at_all(rights) or _outdated(rights, report)
    if no is not None:
        return no
    stale = outdated(rights.state, entry.body)
    if stale is not None:
        return No(*stale)
    action = entry.body.action
    replica = action.replica
    group = errand(action)
    if group is not None:
        if entry.authority.kind is AuthorityKind.APPROVAL:
            worn = not spoken(rights.state, rights.scope, action, rights.now_ms)
            return No(GO416.code, f"{named(action)}: the word of who let it be done has ended") if worn else None
        return _standing_refused(rights, replica, group) or _shut(rights, action, group)
    speaking = rights.speaking(action)
    if entry.authority.kind is AuthorityKind.STANDING and _restores(rights, action):
        refused = _standing_refused(rights, replica, entry.authority.action_class)
        return refused or _shut(rights, action, entry.authority.action_class)
    if not speaking:
        return No(GO416.code, f"{replica}: its plan is not in force any more")
    warrant = next((w for w in speaking if _worn_out(rights, replica, w) is None), speaking[0])
    no = _worn_out(rights, replica, warrant) or not_the_last(rights, action)
    if no is None and entry.authority.kind is AuthorityKind.STANDING:
        no = _standing_refused(rights, replica, entry.authority.action_class)
        no = no or _shut(rights, action, entry.authority.action_class)
    return no or _not_displacing(rights, replica, warrant)


def _of_errand(no: No | None, action: Action) -> No | None:
    """The same, about files instead of a replica that is none, with the way for people."""
    if no is None:
        return None
    words = no.detail.replace(f"{action.replica}: ", f"{named(action)}: ", 1)
    return No(no.code, f"{words}; a person can let it be done: {way(action.profile, action.host)}")


def may_start(rights: Rights, a: Assignment) -> No | None:
    """Why nothing would be started where the target wants it, for want of authority: somebody has to decide it anew.

    A freeze, an expired root or a journal that cannot be trusted is no answer: a new decision would not help there.
    """
    warrant = _to_start(rights, a.replica)
    if warrant is None:
        no: No | None = No(GO416.code, f"{a.replica}: nobody has decided this yet, it waits for a plan")
    else:
        no = _carries_not(rights, a.replica, warrant)
    return None if no is None or _restored(rights, a) else no


def may_end(rights: Rights, action: Drain | Unload, report: HostReport | None = None) -> No | None:
    """Why a process that runs beside the target would not be ended, for want of authority."""
    found = _to_end(rights, action, report, _over)
    return found if isinstance(found, No) else None


def _to_end(
    rights: Rights,
    action: Drain | Unload,
    report: HostReport | None,
    over: Callable[[Rights, ReplicaId, Warrant], No | None],
) -> Warrant | No:
    """The warrant that a process is ended by. Right to end a replica is not right to end each process of its name."""
    replica = action.replica
    no = No(GO416.code, f"{replica}: nobody has decided this yet, it waits for a plan")
    for warrant in rights.speaking(action):
        found = over(rights, replica, warrant) or _not_standing(rights, replica, warrant)
        if found is None:
            found = _of_another(warrant, action, report)
        if found is None:
            return warrant
        no = found
    return no


def _of_another(warrant: Warrant, action: Drain | Unload, report: HostReport | None) -> No | None:
    """Why what people approved is not about this process, where its host would ask."""
    if warrant.decision is None or report is None or not report.can(Ability.PROOF.value):
        return None
    why = beyond_its_end(warrant.decision, action, as_reported(report.residencies))
    return None if why is None else No(UNAPPROVED.code, f"{named(action)}: its host would refuse it: {why}")


def mends(rights: Rights, action: Action) -> bool:
    """It is repair: decided as such, or the new start of what was started there once."""
    return _restores(rights, action) or any(w.action_class is ActionClass.REPAIR for w in rights.speaking(action))


def not_the_last(rights: Rights, action: Action) -> No | None:
    """Why a command may not end a profile of which the target keeps no replica; None where it ends none.

    Somebody typed the name, or the mode names the profile now. Judged at every grant, because it cannot be undone;
    what a mode allowed when a target was set is not enough.
    """
    target, mode = rights.book.target, rights.permitted.mode
    if not isinstance(action, Drain | Unload) or target is None:
        return None
    profile = rights.now_called(action.replica).rpartition("/")[0]
    if any(a.profile == profile for a in target.placement):
        return None
    if any(_typed(w) for w in rights.speaking(action)) or _typed_with_target(rights, profile):
        return None
    if rights.permitted.automatic and profile in mode.automatic.last_replica:
        return None
    return No(GO422.code, f"the plan in force keeps no replica of {profile}, and nobody typed its name")


def _typed(warrant: Warrant) -> bool:
    return warrant.last_replica and warrant.kind is AuthorityKind.APPROVAL


def _typed_with_target(rights: Rights, profile: str) -> bool:
    """People typed the name when they applied the very plan that keeps no replica of it. That is said of the profile:
    another replica of it may still be on its way out by an earlier yes, when there was no need to type anything."""
    book = rights.book
    return any(
        _typed(w) and w.plan == book.target_digest and rights.now_ms < w.until_ms
        for replica, w in book.warrants.items()
        if rights.now_called(replica).rpartition("/")[0] == profile
    )


def _to_start(rights: Rights, replica: ReplicaId) -> Warrant | None:
    """The warrant that speaks for a replica, if it was given to place it: one to take a copy away starts nothing."""
    warrant = rights.warrant(replica)
    taken_away = warrant is not None and warrant.action_class in (ActionClass.SCALE_DOWN, ActionClass.REMOVE)
    return None if taken_away else warrant


def _shut(rights: Rights, action: Action, action_class: ActionClass) -> No | None:
    """Why a window closes a step that nobody approved. What is half done is finished: staying down is no rest."""
    if isinstance(action, Unload) or _broken_off(rights, action):
        return None
    meant = ActionClass.REPAIR if _restores(rights, action) else action_class
    found = shut(rights.hours.windows, (meant,), rights.hours.zones, rights.now_ms)
    return None if found is None else No(HELD_WINDOW.code, f"{action.replica}: {found}")


def _broken_off(rights: Rights, action: Action) -> bool:
    """Its former self has left this very host so that it can start, and has not been followed by anything yet."""
    started, host = rights.book.carried_out.get(action.replica), rights.state.hosts.get(action.host)
    if not isinstance(action, Warm) or host is None or started is None or started[0].host != action.host:
        return False
    ended_ms = max((host.cooled.get((kind, action.replica), 0) for kind in ("drain", "unload")), default=0)
    return ended_ms > host.cooled.get(("warm", action.replica), 0)


def _restores(rights: Rights, action: Action) -> bool:
    """It starts anew what the target wants and what was started there once: repair, where that is allowed.

    No plan would decide it again, for nothing differs from the target; its warrant may have ended long ago.
    """
    target = rights.book.target
    if target is None or not isinstance(action, Load | Warm):
        return False
    a = target.assignment(action.replica)
    return a is not None and a.seat.host == action.host and _restored(rights, a)


def _restored(rights: Rights, a: Assignment) -> bool:
    if rights.book.carried_out.get(a.replica) != (a.seat, a.launch):
        return False
    return _standing_refused(rights, a.replica, ActionClass.REPAIR) is None


def _nothing_at_all(rights: Rights) -> No | None:
    if rights.permitted.observes:
        return No(
            GO416.code,
            "mode observe: " + (rights.permitted.mode.reason or "; ".join(rights.permitted.because) or "no commands"),
        )
    if rights.state.distrust is not None:
        return No(GO429.code, rights.state.distrust)
    if rights.chain.expired(rights.now_ms):
        return No(ROOT_EXPIRED.code, f"root {rights.chain.root.version} has expired: nothing may change")
    return None


def _outdated(rights: Rights, report: HostReport | None) -> No | None:
    """Nothing is sent to an agent that the root lets nobody drive, not even an end: it would accept nothing."""
    words = rights.chain.outdated(report.agent_version) if report is not None else None
    return No(AGENT_TOO_OLD.code, f"{report.host}: {words}") if report is not None and words is not None else None


def _worn_out(rights: Rights, replica: ReplicaId, warrant: Warrant) -> No | None:
    if rights.now_ms < warrant.until_ms:
        return None
    return No(GO416.code, f"{replica}: the authority of its plan has ended, it waits for a new one: gridops plans list")


def _carries_not(rights: Rights, replica: ReplicaId, warrant: Warrant) -> No | None:
    """Why nothing can be started by a warrant now, whatever lasts of it."""
    return _over(rights, replica, warrant) or _not_standing(rights, replica, warrant)


def _over(rights: Rights, replica: ReplicaId, warrant: Warrant) -> No | None:
    """Why a warrant carries nothing any more: its time has ended, or hosts would not believe its approvals now. An
    approver's key may have left the root, or the approval is of a gridops that told hosts no single step."""
    no = _worn_out(rights, replica, warrant)
    if no is not None or warrant.kind is not AuthorityKind.APPROVAL:
        return no
    if warrant.plan not in rights.carried:
        rights.carried[warrant.plan] = _believed(rights, warrant)
    return rights.carried[warrant.plan]


def _believed(rights: Rights, warrant: Warrant) -> No | None:
    leaves = rights.book.leaves.get(warrant.plan)
    if leaves is None:
        return No(UNAPPROVED.code, "its plan was approved before hosts verified approvals, it waits for a new one")
    try:
        claim = Claim(rights.chain.fleet, rights.scope, root_of(leaves))
        require_carried(warrant.approvals, claim, rights.chain, rights.now_ms)
    except Refusal as refusal:
        return No(UNAPPROVED.code, f"hosts would not believe the approvals of its plan: {refusal.message}")
    return None


def _not_standing(rights: Rights, replica: ReplicaId, warrant: Warrant) -> No | None:
    if warrant.kind is not AuthorityKind.STANDING:
        return None
    return _standing_refused(rights, replica, warrant.action_class) or _not_displacing(rights, replica, warrant)


def _not_displacing(rights: Rights, replica: ReplicaId, warrant: Warrant) -> No | None:
    """Why a change set that displaces others may not go on by itself: `allow_displace` is asked now, too."""
    if warrant.kind is not AuthorityKind.STANDING:
        return None
    named = rights.permitted.mode.automatic.allow_displace if rights.permitted.automatic else ()
    missing = [name for name in warrant.displacing if name not in named]
    if not missing:
        return None
    return No(GO416.code, f"{replica}: {missing[0]} displaces others and is not in automatic.allow_displace any more")


def _standing_refused(rights: Rights, replica: ReplicaId, action_class: ActionClass) -> No | None:
    if not rights.permitted.automatic:
        return No(GO416.code, f"{replica}: mode {rights.permitted.mode.mode.value} does nothing by itself")
    if action_class not in rights.permitted.mode.automatic.allow:
        return No(GO416.code, f"{replica}: {action_class.value} is not in automatic.allow any more")
    if not rights.chain.root.standing:
        return No(GO416.code, f"{replica}: the trust root permits no standing authority")
    return None
