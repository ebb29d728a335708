"""Why a replica is where it is, or why it is nowhere: the chain from commit to seat, walked backwards. Pure.

Called by `gridops explain`. It shows what the plan's report recorded and adds nothing: a reason that was not recorded
is said to be unknown here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gridops.base.codes import registry
from gridops.base.codes.placement import DISK_FULL, INSUFFICIENT_DEVICE_MEMORY, INSUFFICIENT_HOST_MEMORY
from gridops.base.ids import ProfileName, ReplicaId, short
from gridops.base.record import to_data
from gridops.base.units import counted, render_lack, render_need, render_ppm
from gridops.footprint.need import identity
from gridops.model.plan import Assignment, Choice, ChosenBy, CodeCount, Decision, HostLine, Plan, Term, Unplaced
from gridops.planner.fixes import Found
from gridops.planner.rank import UNKNOWN_PRICE_MICRO
from gridops.planner.render_advice import advice_lines
from gridops.planner.render_fixes import fix_lines
from gridops.planner.render_layout import cells, clean, hang, pad
from gridops.planner.render_text import Style, state_words
from gridops.planner.render_words import Context, cost, missing, place_line, seat, short_plan, why

SCHEMA = "gridops.explain/1"
NAMES_SHOWN = 12
SUM, PART = "harm", "harm_"
"""Terms whose names begin so are what the sum consists of: they explain it and do not decide."""
_ROOM = frozenset(c.code for c in (INSUFFICIENT_DEVICE_MEMORY, INSUFFICIENT_HOST_MEMORY, DISK_FULL))
_TERMS = {
    "same_domain": "shares a failure domain that should hold one only",
    "config": "place of the config in the order of preference",
    "waits": "something has to leave first",
    "harm": "harm to requests",
    "harm_waiting": "waiting until something else has left",
    "harm_starting": "starting",
    "harm_failing": "starts that failed there before",
    "harm_slower": "slower than the fastest",
    "harm_interrupted": "its owner may want it back",
    "harm_reviewed": "another host than in the plan that waits for people",
    "domain_replicas": "replicas in the same failure domain",
    "yields": "yields to a person, or is throttled",
    "unproposed": "a plan that waits for people puts it elsewhere",
    "price_micro": "added to the price per hour",
    "filled_ppm": "of the host's memory that would be taken; it fills evenly",
    "stranded_micro": "wanted replicas that lose a place by it, in millionths",
    "stranded_mib": "MiB that other profiles could use now and not beside it",
    "left_mib": "MiB left on the fullest device; least keeps large gaps large",
}
"""Terms in words: those of `rank`; `waits`, `yields` and `stranded_mib` stand in plans that were written before."""


def explain_lines(
    plan: Plan, replica: ReplicaId, context: Context, style: Style, found: Found | None = None
) -> list[str] | None:
    """The explanation, with what would place the replica if that was `found`; None when the plan does not know it."""
    assignment, decision = plan.assignment(replica), _decision(plan, replica)
    unplaced = next((u for u in plan.report.unplaced if u.replica == replica), None)
    choice = next((c for c in plan.report.choices if c.replica == replica), None)
    if assignment is None and decision is None and unplaced is None:
        return None
    where = seat(assignment.seat, plan) if assignment is not None else "nowhere"
    head = _head(f"{replica} {style.symbols.arrow} {where}", _stands(plan, decision, context), style)
    lines = [*head, "", *_chain(plan, decision, context, style), *_waits(plan, replica, style)]
    if assignment is not None:
        lines += [*_runs(plan, assignment, context, style), ""]
        lines += _chosen(choice, decision, context, style)
    if unplaced is not None:
        lines += ["", *_nowhere(unplaced, style)]
        lines += ["", *fix_lines(found, plan, style)] if found is not None else []
    disks = advice_lines(plan, ProfileName(replica.rpartition("/")[0]))
    lines += [""] if disks else []
    for word, text in disks:
        lines += hang(f"  {word}    ", clean(text), style.width)
    return lines


def explain_document(plan: Plan, replica: ReplicaId, found: Found | None = None) -> dict[str, Any] | None:
    """The same for machines."""
    assignment, decision = plan.assignment(replica), _decision(plan, replica)
    unplaced = next((u for u in plan.report.unplaced if u.replica == replica), None)
    choice = next((c for c in plan.report.choices if c.replica == replica), None)
    if assignment is None and decision is None and unplaced is None:
        return None
    parts = {"assignment": assignment, "decision": decision, "choice": choice, "unplaced": unplaced}
    waits = (w for w in plan.report.waiting if _is_about(w, replica))
    return {
        "schema": SCHEMA,
        "replica": replica,
        "plan": plan.id,
        "hypothetical": plan.hypothetical,
        "intent": to_data(plan.intent),
        "snapshot": to_data(plan.snapshot),
        **{name: None if part is None else to_data(part) for name, part in parts.items()},
        "waiting": [to_data(line) for line in waits],
        "fixes": None if found is None else [to_data(fix) for fix in found.fixes],
    }


def _decision(plan: Plan, replica: ReplicaId) -> Decision | None:
    return next((d for d in plan.decisions if d.replica == replica), None)


def _stands(plan: Plan, decision: Decision | None, context: Context) -> str:
    """By which plan, as a name that `plans show` knows: what stays stays by the plan in force, not by a new one."""
    if decision is not None:
        return f"plan {short_plan(plan)}, decision {decision.n}"
    if context.stored:
        return f"plan {short_plan(plan)}, stays as it is"
    return f"plan {context.in_force} in force, stays as it is" if context.in_force else "stays as it is"


def _head(left: str, right: str, style: Style) -> list[str]:
    gap = style.width - cells(left) - cells(right)
    return [left + " " * gap + right] if gap >= 2 else [left, "  " + right]


def _chain(plan: Plan, decision: Decision | None, context: Context, style: Style) -> list[str]:
    """Backwards: why, by which commit, from what state."""
    lines: list[str] = []
    if decision is not None:
        at = place_line(decision.cause.at)
        reason = clean(why(decision, style.symbols.arrow))
        lines += hang("  because  ", f"{reason}{f'   {clean(at)}' if at else ''}", style.width)
        if cost(decision):
            lines += hang("  costs    ", f"{cost(decision)}{_learned(decision)}", style.width)
    commit = "files that are not committed"
    if plan.intent.commit is not None:
        changed = " and uncommitted changes" if plan.intent.dirty else ""
        commit = f'{short(plan.intent.commit, 7)} "{clean(plan.intent.subject)}"{changed}'
    lines += hang("  commit   ", commit, style.width)
    return [*lines, *hang("  state    ", state_words(plan, context).removeprefix("state").lstrip(": "), style.width)]


def _waits(plan: Plan, replica: ReplicaId, style: Style) -> list[str]:
    """What keeps it where it should not be, as the report says it."""
    mine = [w for w in plan.report.waiting if _is_about(w, replica)]
    return [line for w in mine for line in hang("  stays    ", f"{clean(w.detail)} ({w.code})", style.width)]


def _is_about(line: HostLine, replica: ReplicaId) -> bool:
    return line.detail.startswith((f"{replica} ", f"{replica}: "))


def _learned(decision: Decision) -> str:
    """Says so where the time is no guess: it was learned from what the very host did."""
    return f" (learned on {decision.target.host})" if decision.cost.learned and decision.target is not None else ""


def _runs(plan: Plan, assignment: Assignment, context: Context, style: Style) -> list[str]:
    launch = next((n for n in plan.launches if identity(n) == assignment.launch), None)
    lines: list[str] = []
    if launch is not None:
        text = f"{launch.config}: {launch.engine} on {launch.backend}, context {launch.context}, lanes {launch.lanes}"
        lines += hang("  runs     ", clean(text), style.width)
    devices = len(assignment.seat.devices)
    each = f"{render_need(assignment.device_bytes)}{' on each device' if devices > 1 else ''}"
    host = f", {render_need(assignment.host_bytes)} of the host's memory" if assignment.host_bytes else ""
    evidence = context.measured.get(assignment.replica)
    source = f" (measured, evidence {short(evidence)})" if evidence is not None else ""
    return [*lines, *hang("  memory   ", each + host + source, style.width)]


def _chosen(choice: Choice | None, decision: Decision | None, context: Context, style: Style) -> list[str]:
    if choice is None:
        if decision is None:
            return hang("", "It stood there before this plan; what may stay, stays.", style.width)
        return hang("", "The plan's report does not say how the seat was chosen.", style.width)
    fit = "1 host fits" if choice.fits == 1 else f"{choice.fits} hosts fit"
    lines = hang("", f"{fit}{_won(choice)}", style.width)
    if choice.runner_up is not None:
        lines += _terms(choice, style, every=context.show_all)
    return [*lines, *(["", *_groups(choice.rejected, style, _refusal(choice.rejected))] if choice.rejected else [])]


def _refusal(rejected: Sequence[HostLine]) -> str:
    """What the others have in common: they are full, or something else keeps at least one of them out."""
    if any(line.code not in _ROOM for line in rejected):
        return "cannot take it"
    return "has no room" if len(rejected) == 1 else "have no room"


def _won(choice: Choice) -> str:
    """By what the host was taken, and which is the best of the others."""
    other = choice.runner_up
    match choice.by:
        case ChosenBy.STAYS:
            rest = "" if other is None else f"; the best other host is {other}"
            return f". It stands on {choice.host}, and what may stay, stays{rest}"
        case ChosenBy.TOGETHER:
            rest = "" if other is None else f"; alone it would go to {other}"
            return f". It was seated on {choice.host} together with others, so that more of them find a seat{rest}"
        case None:
            return f": {choice.host}" if other is None else f"; {choice.host} was chosen, next best {other}"


def _terms(choice: Choice, style: Style, *, every: bool) -> list[str]:
    """The first term that differs, which decides where terms do; those before it are equal."""
    equal: list[Term] = []
    parts: list[str] = []
    for term in choice.terms:
        if term.runner_up is not None and term.winner != term.runner_up:
            text = f"{_term(term)}: {_value(term, term.winner)} against {_value(term, term.runner_up)}"
            parts = _parts(choice, term)
            break
        equal.append(term)
    else:
        text = "by name: equal hosts are taken in order of their names" if choice.terms else "in nothing that is known"
    lines: list[str] = []
    whole = [term for term in equal if not term.name.startswith(PART)]
    for term in whole if every else ():
        lines += hang("    equal    ", f"{_term(term)}: {_value(term, term.winner)}", style.width)
    if whole and not every:
        terms = "the term that comes" if len(whole) == 1 else f"{len(whole)} terms that come"
        lines += hang("    equal    ", f"in {terms} first (-v names what)", style.width)
    verb = "decided" if choice.by is None else "differs"
    lines += hang(f"    {verb}  ", text, style.width)
    for part in parts:
        lines += hang(" " * 13, part, style.width)
    return lines


def _parts(choice: Choice, decided: Term) -> list[str]:
    """What a sum is made of, where its parts differ."""
    if decided.name != SUM:
        return []
    found = (t for t in choice.terms if t.name.startswith(PART) and t.runner_up not in (None, t.winner))
    return [f"{_term(t)}: {_value(t, t.winner)} against {_value(t, t.runner_up or 0)}" for t in found]


def _term(term: Term) -> str:
    return _TERMS.get(term.name, term.name.replace("_", " "))


def _value(term: Term, value: int) -> str:
    if term.name == SUM or term.name.startswith(PART):
        return f"{value} request-ms"
    if term.name == "price_micro":
        return "unknown" if value >= UNKNOWN_PRICE_MICRO else f"{value / 1_000_000:.2f}"
    return render_ppm(value) if term.name == "filled_ppm" else str(value)


def _nowhere(unplaced: Unplaced, style: Style) -> list[str]:
    lines = hang("", f"{clean(unplaced.detail)} (gridops rule {unplaced.code})", style.width)
    if unplaced.nearest is not None and unplaced.nearest not in unplaced.detail:
        lines += hang("", f"Nearest: {unplaced.nearest}{missing(unplaced)}", style.width)
    if unplaced.counts is not None:
        return [*lines, "", *_counted(unplaced.counts, style)]
    return [*lines, *(["", *_groups(unplaced.hosts, style)] if unplaced.hosts else [])]


def _counted(counts: Sequence[CodeCount], style: Style) -> list[str]:
    """Reasons of a plan that is too large to name the hosts."""
    titles = registry()
    lines = [_do_not(sum(c.hosts for c in counts))]
    for count in sorted(counts, key=lambda c: (-c.hosts, c.code)):
        title = titles[count.code].title.replace("_", " ") if count.code in titles else count.code
        lines += hang(f"  {pad(counted(count.hosts, 'host'), 11)}", title, style.width)
    return lines


def _do_not(hosts: int) -> str:
    return "1 does not" if hosts == 1 else f"{hosts} do not"


def _reason(title: str, detail: str) -> str:
    """Title and detail; a detail that begins with the title's last word says both."""
    if not detail:
        return title
    return detail if detail.startswith(f"{title.rpartition(' ')[2]}:") else f"{title}: {detail}"


def _groups(found: Sequence[HostLine], style: Style, verb: str = "") -> list[str]:
    """Equal reasons together, most frequent first: how many hosts, what they need and have, which they are."""
    groups: dict[str, list[HostLine]] = {}
    for line in found:
        groups.setdefault(line.code, []).append(line)
    titles = registry()
    lines = [f"{len(found)} {verb}" if verb else _do_not(len(found))]
    for code, members in sorted(groups.items(), key=lambda item: (-len(item[1]), item[0])):
        title = titles[code].title.replace("_", " ") if code in titles else code
        details = {m.detail for m in members}
        reason = _reason(title, members[0].detail) if len(details) == 1 else title
        count = pad(counted(len(members), "host"), 9)
        lines += hang(f"  {count}", clean(f"{reason}{_amounts(members)}"), style.width)
        names = [m.host for m in members[:NAMES_SHOWN]]
        more = f" and {len(members) - NAMES_SHOWN} more" if len(members) > NAMES_SHOWN else ""
        lines += hang(" " * 11, ", ".join(names) + more, style.width)
        if len(details) > 1:
            for member in members[:NAMES_SHOWN]:
                own = member.detail.removeprefix(f"{title.rpartition(' ')[2]}: ")
                lines += hang(f"{' ' * 13}{member.host}  ", clean(own), style.width)
    return lines


def _amounts(members: Sequence[HostLine]) -> str:
    """What the host that comes nearest needs and has."""
    known = [(m.need, m.have) for m in members if m.need is not None and m.have is not None]
    if not known:
        return ""
    need, have = min(known, key=lambda pair: (pair[0] - pair[1], -pair[1]))
    if members[0].unit != "bytes":
        return f"; needs {need}, best has {have}"
    wants, there, lacks = render_lack(need, have)
    return f"; needs {wants}, best has {there}, {lacks} short"
