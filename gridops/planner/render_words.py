"""Words that every rendering of a plan shares: counts, seats, places in files, costs. Pure.

Called by `render_text`, `render_markdown`, `render_json`, `render_github` and by the plan document's header. It must
never decide anything: a plan is shown as it is.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from gridops.base.ids import Digest, HostId, ReplicaId, replica_key, short
from gridops.base.units import counted, render_bytes, render_lack, render_ms
from gridops.model.plan import CauseKind, Decision, DecisionKind, Plan, Seat, Unplaced
from gridops.model.policy import ScopeBudgets, ScopeMode
from gridops.planner.diff import ORDER

NOUNS = {
    DecisionKind.PLACE: "place",
    DecisionKind.MOVE: "move",
    DecisionKind.CHANGE: "change",
    DecisionKind.REMOVE: "remove",
    DecisionKind.CANNOT_PLACE: "not placed",
}
_PLACE = re.compile(r"(.+?\.ya?ml):(\d+)(?::(\d+))?")


@dataclass(frozen=True, slots=True)
class Symbols:
    """Signs of the text output. Meaning never rests on colour or on signs outside ASCII alone."""

    marks: tuple[str, str, str, str, str]
    arrow: str
    none: str
    dot: str

    def of(self, kind: DecisionKind) -> str:
        return self.marks[ORDER.index(kind)]


ASCII = Symbols(("+", ">", "~", "-", "!"), "=>", "-", "")
UTF8 = Symbols(("+", "→", "~", "−", "!"), "→", "–", "·")


@dataclass(frozen=True, slots=True)
class Context:
    """What a rendering may say beside the plan itself. Everything is optional but the moment."""

    now_ms: int
    mode: ScopeMode | None = None
    mode_at: str = ""
    """Where the mode stands: `policies/mode.yaml:6`."""
    budgets: ScopeBudgets | None = None
    hosts: int | None = None
    """Hosts of the scope."""
    branch: str = ""
    state: str = ""
    """Why the state comes from where it comes from, when that needs saying."""
    exit_code: int = 0
    next_steps: tuple[tuple[str, str], ...] = ()
    """(label, command) pairs; only commands that exist."""
    halt: str = ""
    """Why nobody writes or carries out a plan now, as a sentence."""
    unheard: frozenset[HostId] = frozenset()
    """Hosts that were silent when the plan was made."""
    unseen: tuple[ReplicaId, ...] = ()
    """Replicas that no host reported where the plan has them; empty where hosts were not asked."""
    stored: bool = True
    """The plan is one that lies in git. A new one has a name that no command but `plan` knows."""
    in_force: str = ""
    """Short name of the plan in force, of a new plan."""
    measured: Mapping[ReplicaId, Digest] = field(default_factory=dict)
    """Replicas whose memory was measured, and the evidence of it (`evidence.measured_by`)."""
    show_all: bool = False


def short_plan(plan: Plan) -> str:
    """The plan's short name: 8 digits of its decisions digest."""
    return short(plan.decisions_digest)


def counts(plan: Plan) -> dict[DecisionKind, int]:
    found = Counter(d.kind for d in plan.decisions)
    return {kind: found.get(kind, 0) for kind in ORDER}


def headline(plan: Plan, separator: str = ", ") -> str:
    """`1 place, 1 move, 2 change, 1 remove, 1 not placed`; kinds without a decision are left out."""
    parts = [f"{n} {NOUNS[kind]}" for kind, n in counts(plan).items() if n]
    return separator.join(parts) or "no changes"


def summary(plan: Plan) -> dict[str, int]:
    """The counts of all kinds, for machines."""
    names = {kind: kind.value for kind in ORDER} | {DecisionKind.CANNOT_PLACE: "unplaced"}
    return {**{names[kind]: n for kind, n in counts(plan).items()}, "unchanged": plan.report.unchanged}


def is_empty(plan: Plan) -> bool:
    """Nothing to do and nothing left over."""
    return not plan.decisions and not plan.report.unplaced


def seat(place: Seat | None, plan: Plan, *, brackets: bool = True) -> str:
    """`forge [gpu0,gpu1]`; devices are left out where the host has but one pool and it is its RAM or unified memory."""
    if place is None:
        return ""
    devices = place.devices
    if devices in ((), ("cpu0",), ("unified0",)):
        return place.host
    listed = ",".join(device.removeprefix("gpu") if _all_gpus(devices) else device for device in devices)
    return f"{place.host} [{listed}]" if brackets else f"{place.host} {listed}"


def route(decision: Decision, plan: Plan, arrow: str) -> str:
    """`forge [0] => anvil [1]`; one seat where it stays, or where there is only one."""
    seats = [seat(s, plan) for s in (decision.source, decision.target) if s is not None]
    return f" {arrow} ".join(dict.fromkeys(seats))


def out_of_reach(decision: Decision, unheard: frozenset[HostId]) -> bool:
    """Nobody can stop what still runs at the source: its host was lost, expunged or does not answer."""
    if decision.source is None:
        return False
    return decision.cause.kind is CauseKind.HOST_LOST or decision.source.host in unheard


def _all_gpus(devices: tuple[str, ...]) -> bool:
    return all(re.fullmatch(r"gpu\d+", device) for device in devices)


def place_line(at: str | None) -> str:
    """`profiles.d/coder.yaml:8` from a place with or without a column; event ids as they are."""
    match = _PLACE.fullmatch(at or "")
    return at or "" if match is None else f"{match.group(1)}:{match.group(2)}"


def place_parts(at: str | None) -> tuple[str, int, int] | None:
    """File, line and column (1 when not given) of a place in a file; None for anything else."""
    match = _PLACE.fullmatch(at or "")
    return None if match is None else (match.group(1), int(match.group(2)), int(match.group(3) or 1))


def cost(decision: Decision) -> str:
    """`copy 132 GiB, ~4 min`, `restart, ~20 s` or nothing."""
    parts = []
    if decision.cost.copy_bytes:
        parts.append(f"copy {render_bytes(decision.cost.copy_bytes)}")
    if decision.kind is DecisionKind.CHANGE and decision.cost.dip:
        parts.append("restart")
    if decision.cost.start_ms:
        parts.append(f"~{about(decision.cost.start_ms)}")
    return ", ".join(parts)


def about(duration_ms: int) -> str:
    """A duration to one unit that a person plans with: `20 s`, `4 min`, `2 h`."""
    if duration_ms < 1_000:
        return render_ms(duration_ms)
    seconds = -(-duration_ms // 1_000)
    if seconds < 100:
        return f"{seconds} s"
    minutes = (seconds + 30) // 60
    return f"{minutes} min" if minutes < 100 else f"{(minutes + 30) // 60} h"


def changes(decision: Decision, arrow: str) -> str:
    """`context 8192 => 16384, lanes 2 => 4`."""
    return ", ".join(f"{c.field} {c.old} {arrow} {c.new}" for c in decision.changes)


def why(decision: Decision, arrow: str) -> str:
    """The cause in words; the changed values where it has none of its own."""
    detail = decision.cause.detail.replace("=>", arrow)
    return detail or changes(decision, arrow) or decision.cause.kind.value.replace("_", " ")


def by_profile(plan: Plan) -> list[list[Decision]]:
    """Decisions in groups of one profile, in the order in which the profiles first appear."""
    groups: dict[str, list[Decision]] = {}
    for decision in plan.decisions:
        groups.setdefault(decision.profile, []).append(decision)
    return list(groups.values())


def replicas_before_after(plan: Plan, profile: str) -> tuple[int, int]:
    """How many replicas of a profile stand before and after the plan."""
    after = sum(a.profile == profile for a in plan.placement)
    mine = [d for d in plan.decisions if d.profile == profile]
    placed = sum(d.kind is DecisionKind.PLACE for d in mine)
    removed = sum(d.kind is DecisionKind.REMOVE for d in mine)
    return after - placed + removed, after


def unplaced_of(plan: Plan, decision: Decision) -> Unplaced | None:
    return next((u for u in plan.report.unplaced if u.replica == decision.replica), None)


def extra_unplaced(plan: Plan) -> list[Unplaced]:
    """Unplaced replicas of the report that no decision names, so that a rendering never hides one."""
    named = {d.replica for d in plan.decisions}
    return sorted((u for u in plan.report.unplaced if u.replica not in named), key=lambda u: replica_key(u.replica))


def nowhere(unplaced: Unplaced | None) -> str:
    """Why a replica stands nowhere, in one sentence."""
    if unplaced is None:
        return "fits nowhere"
    parts = [unplaced.detail or f"fits on none of {counted(len(unplaced.hosts), 'host')}"]
    if unplaced.nearest is not None and unplaced.nearest not in unplaced.detail:
        parts.append(f"nearest {unplaced.nearest}{missing(unplaced)}")
    return "; ".join(parts)


def missing(unplaced: Unplaced) -> str:
    """`, 9.6 GiB short`: what the nearest host lacks, as in the line of that host; nothing when it is not memory."""
    if unplaced.short_bytes is None:
        return ""
    lines = (h for h in unplaced.hosts if h.host == unplaced.nearest and h.unit == "bytes")
    need, have = next(((h.need, h.have) for h in lines), (None, None))
    if need is None or have is None:
        need, have = unplaced.short_bytes, 0
    return f", {render_lack(need, have)[2]} short"


def touched_hosts(plan: Plan) -> tuple[HostId, ...]:
    """Hosts that the decisions touch, sorted."""
    seats = [s for d in plan.to_do for s in (d.source, d.target) if s is not None]
    return tuple(sorted({s.host for s in seats}))


def copies_bytes(plan: Plan) -> int:
    return sum(d.cost.copy_bytes for d in plan.decisions)


def longest_ms(plan: Plan) -> int:
    return max((d.cost.start_ms for d in plan.decisions), default=0)


def worst_dip(plan: Plan) -> int:
    return max((d.cost.dip for d in plan.decisions), default=0)
