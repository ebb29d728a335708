"""What a price ceiling costs in coverage: who stands nowhere because of it, and the lowest ceiling that would do.

Each answer is planned, as fixes are: who is lost stands in the same plan under no ceiling; a ceiling that is called
enough has a clean plan in which they stand and nobody else lost a seat. A ceiling takes nothing that runs, so one that
lies below what is spent has another cost: what could not be placed again. Called by `gridops plan` on small fleets;
bounded by the number of plans. It changes no plan.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import gcd

from gridops.base.codes import placement as codes
from gridops.base.ids import ProfileName, ReplicaId, split_replica
from gridops.base.units import render_price
from gridops.model.plan import Plan
from gridops.model.policy import BudgetPolicy, PriceCeiling
from gridops.model.snapshot import Ownership
from gridops.planner.check import check
from gridops.planner.planner import Recall, plan
from gridops.planner.world import Inputs, supposing

TRIALS = 10
"""Halvings, so exact up to a thousand price steps. Double: exact for any prices; half: coarse beyond 32 steps."""
HOSTS = 256
"""Beyond so many hosts nothing is tried: a plan shall not take ten times as long to be shown."""
ENDLESS = 1 << 50
"""A billion an hour: no ceiling at all."""
NAMED = 3


@dataclass(frozen=True, slots=True)
class Preview:
    """Of one scope with a ceiling. All prices per hour, in micro-units."""

    ceiling_micro: int
    spent_micro: int
    """By the hosts on which the plan holds something, each once."""
    lost: tuple[ReplicaId, ...] = ()
    """Would stand if the ceiling were high enough."""
    unpriced: tuple[ReplicaId, ...] = ()
    """Would stand only on hosts whose price nobody states."""
    enough_micro: int | None = None
    """The lowest ceiling found under which all of `lost` stand."""
    exact: bool = False
    """The next lower sum of prices was planned and is too low."""
    beyond: tuple[tuple[ProfileName, int], ...] = ()
    """Replicas of each profile that run and would stand nowhere if everything had to be placed again."""
    tried: int = 0


def preview(inputs: Inputs, before: Plan) -> Preview | None:
    """What the ceiling costs; None without one, or where it costs nothing. `before` is the plan of these inputs."""
    budgets = inputs.intent.desired.budgets.of(inputs.scope)
    if budgets.price is None or len(inputs.intent.desired.hosts) > HOSTS:
        return None
    spent = spent_on(inputs, before)
    over = spent > budgets.price.max_per_hour_micro
    if not before.report.unplaced and not over:
        return None
    search = _Search(inputs, before, budgets.price)
    lost, unpriced = search.lost()
    enough, exact = search.lowest(lost, spent) if lost else (None, False)
    beyond = search.beyond() if over else ()
    if not (lost or unpriced or beyond):
        return None
    found = Preview(budgets.price.max_per_hour_micro, spent, lost, unpriced, enough, exact, beyond)
    return replace(found, tried=search.tried)


def spent_on(inputs: Inputs, made: Plan) -> int:
    """What the hosts of a plan's placement cost in an hour."""
    prices = {h.id: h.price_per_hour_micro or 0 for h in inputs.intent.desired.hosts}
    return sum(prices.get(host, 0) for host in {a.seat.host for a in made.placement})


def sentences(found: Preview) -> tuple[str, ...]:
    """For the notes of a plan that is shown."""
    lines = []
    most, spent = render_price(found.ceiling_micro), render_price(found.spent_micro)
    if found.lost:
        way = "no higher ceiling that was planned would place all of them"
        if found.enough_micro is not None:
            least = "at least " if found.exact else ""
            way = f"price.max_per_hour has to be {least}{render_price(found.enough_micro)} for all of them"
        lines.append(f"the price ceiling of {most} leaves {_names(found.lost)} out ({codes.PRICE_CEILING.code}): {way}")
    if found.unpriced:
        code = codes.PRICE_UNKNOWN.code
        lines.append(f"{_names(found.unpriced)} would stand only on hosts whose price nobody states ({code})")
    if found.beyond:
        who = ", ".join(f"{many} of {profile}" for profile, many in found.beyond)
        lines.append(
            f"{spent} an hour are spent, {most} may be: nothing is removed for it, and if everything had to be placed "
            f"again, {who} would stand nowhere ({codes.PRICE_CEILING.code})"
        )
    return tuple(lines)


class _Search:
    def __init__(self, inputs: Inputs, before: Plan, ceiling: PriceCeiling) -> None:
        self._trials, self._ceiling = _Trials(inputs, ceiling), ceiling
        self._stood = {a.replica for a in before.placement}
        self._missing = tuple(u.replica for u in before.report.unplaced)

    @property
    def tried(self) -> int:
        return self._trials.count

    def lost(self) -> tuple[tuple[ReplicaId, ...], tuple[ReplicaId, ...]]:
        """Who is out because of the ceiling, and who because prices are not known."""
        if not self._missing:
            return (), ()
        dear = self._trials.standing(ENDLESS)
        lost = tuple(r for r in self._missing if r in dear)
        if self._ceiling.unknown == "allow" or len(lost) == len(self._missing):
            return lost, ()
        unknown = self._trials.standing(ENDLESS, unknown="allow")
        return lost, tuple(r for r in self._missing if r in unknown and r not in dear)

    def lowest(self, lost: Iterable[ReplicaId], spent: int) -> tuple[int | None, bool]:
        """By halves, over sums of prices: each step is a plan."""
        wanted = self._stood | set(lost)
        step = gcd(*(h.price_per_hour_micro or 0 for h in self._trials.inputs.intent.desired.hosts)) or 1
        made = self._trials.planned(ENDLESS)[0]
        low = self._ceiling.max_per_hour_micro // step
        high = max(low + 1, -(-spent_on(self._trials.inputs, made) // step))
        if not wanted <= self._trials.standing(high * step):
            return None, False
        for _ in range(TRIALS):
            if high - low <= 1:
                break
            middle = (low + high) // 2
            if wanted <= self._trials.standing(middle * step):
                high = middle
            else:
                low = middle
        return high * step, high - low <= 1

    def beyond(self) -> tuple[tuple[ProfileName, int], ...]:
        """What does not come back under the ceiling and would without one, everybody's processes being gone."""
        hosts = tuple(
            replace(report, residencies=tuple(r for r in report.residencies if r.ownership is not Ownership.MANAGED))
            for report in self._trials.inputs.snapshot.hosts
        )
        bare = replace(self._trials.inputs.snapshot, hosts=hosts)
        anew = supposing(replace(self._trials.inputs, snapshot=bare), None)
        trials = _Trials(anew, self._ceiling)
        found = Counter(split_replica(r)[0] for r in trials.standing(ENDLESS))
        found.subtract(split_replica(r)[0] for r in trials.standing(self._ceiling.max_per_hour_micro))
        self._trials.count += trials.count
        return tuple((name, many) for name, many in sorted(found.items()) if many > 0)


class _Trials:
    """Plans of one question under other ceilings."""

    def __init__(self, inputs: Inputs, ceiling: PriceCeiling) -> None:
        self.inputs, self._ceiling, self._recall, self.count = inputs, ceiling, Recall(), 0

    def standing(self, micro: int, unknown: str | None = None) -> set[ReplicaId]:
        """Who stands under a ceiling, if the plan is clean."""
        made, inputs = self.planned(micro, unknown)
        return {a.replica for a in made.placement} if check(made, inputs) == () else set()

    def planned(self, micro: int, unknown: str | None = None) -> tuple[Plan, Inputs]:
        other = PriceCeiling(max_per_hour_micro=micro, unknown=unknown or self._ceiling.unknown)
        inputs = _under(self.inputs, other)
        self.count += 1
        return plan(inputs, self._recall), inputs


def _under(inputs: Inputs, ceiling: PriceCeiling) -> Inputs:
    desired = inputs.intent.desired
    new = replace(desired.budgets.of(inputs.scope), price=ceiling)
    scopes = (*(s for s in desired.budgets.scopes if s.scope != inputs.scope), new)
    policy = BudgetPolicy(scopes=tuple(sorted(scopes, key=lambda s: s.scope)))
    return replace(inputs, intent=replace(inputs.intent, desired=replace(desired, budgets=policy)))


def _names(replicas: tuple[ReplicaId, ...]) -> str:
    more = f" and {len(replicas) - NAMED} more" if len(replicas) > NAMED else ""
    return ", ".join(replicas[:NAMED]) + more
