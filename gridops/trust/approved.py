"""What an approval says about each single decision, in a form that a host can check without seeing the whole plan.

An approval signs the root of a tree with one leaf per decision. A command then carries the one decision it carries out
and the path to that root, some hundred bytes however large the plan is. The controller makes the proof, the CLI signs
the root, the host follows the path; `protocol.covers` says what may be done by a decision. Cost, cause and order are
in no leaf, as they are in no decisions digest: equal work has an equal root.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Literal

from gridops.base import canon, limits
from gridops.base.ids import Digest, HostId, ProfileName, ReplicaId, short
from gridops.base.record import digest_of, record, to_data
from gridops.model.plan import Decision, DecisionKind, Launch, Plan, Seat

FORM = "gridops.decisions.v1"


@record
class ApprovedDecision:
    """One decision as far as hosts act by it."""

    kind: DecisionKind
    replica: ReplicaId
    former: ReplicaId | None = None
    """The name by which hosts may still call it, where its profile was renamed."""
    source: Seat | None = None
    target: Seat | None = None
    launch: Digest | None = None
    processes: tuple[str, ...] | None = None
    """It ends these processes beside the plan and nothing else: host and short name of the command of each."""


@record
class Branch:
    """One step from a leaf towards the root: the digest beside it, and on which side that stands."""

    beside: Digest
    left: bool = False


@record
class Proof:
    """Which approved decision a command carries out."""

    v: Literal[1] = 1
    decision: ApprovedDecision
    path: tuple[Branch, ...] = ()
    launch: Launch | None = None
    """The launch that the decision names by its digest, where the action does not hold it itself."""

    @property
    def tree(self) -> Digest:
        """The root that this decision and path lead to; an approval has to name it."""
        at = leaf_of(self.decision)
        for branch in self.path:
            at = _joined(branch.beside, at) if branch.left else _joined(at, branch.beside)
        return at


def process_name(host: HostId, incarnation: Digest) -> str:
    """A process as a decision names it that ends it beside the plan."""
    return f"{host} {short(incarnation)}"


def ended_processes(decision: Decision) -> tuple[str, ...]:
    """The processes that a decision ends beside the plan; none for every other decision."""
    if decision.kind is not DecisionKind.REMOVE:
        return ()
    return tuple(sorted(c.old for c in decision.changes if c.field == "process"))


def approved_decisions(plan: Plan) -> tuple[ApprovedDecision, ...]:
    """What an approval of this plan approves, decision by decision."""
    formers = {t.profile: t.renamed_from for t in plan.terms if t.renamed_from is not None}
    return tuple(_outline(d, formers.get(d.profile)) for d in plan.to_do)


def leaf_of(decision: ApprovedDecision) -> Digest:
    return canon.digest({"form": FORM, "decision": to_data(decision)})


def leaves_of(decisions: Sequence[ApprovedDecision]) -> tuple[Digest, ...]:
    """The leaves of the tree, in their order."""
    return tuple(sorted(leaf_of(d) for d in decisions))


def tree_of(plan: Plan) -> Digest:
    """The root that an approval of this plan signs."""
    return root_of(leaves_of(approved_decisions(plan)))


def root_of(leaves: tuple[Digest, ...]) -> Digest:
    return _levels(leaves)[-1][0]


def prove(decision: ApprovedDecision, leaves: tuple[Digest, ...], launch: Launch | None = None) -> Proof:
    """The proof for one decision of a tree. Raises ValueError for one that is not in it."""
    at, path = leaves.index(leaf_of(decision)), list[Branch]()
    for level in _levels(leaves)[:-1]:
        beside = at ^ 1
        if beside < len(level):
            path.append(Branch(beside=level[beside], left=beside < at))
        at //= 2
    return Proof(decision=decision, path=tuple(path), launch=launch)


def fits(proof: Proof) -> bool:
    """Bounded as any plan's would be: a longer path is nobody's."""
    return len(proof.path) <= limits.APPROVED_PATH and (
        proof.launch is None or digest_of(proof.launch) == proof.decision.launch
    )


@lru_cache(maxsize=8)
def _levels(leaves: tuple[Digest, ...]) -> tuple[tuple[Digest, ...], ...]:
    """From the leaves to the root. The odd one of a level goes up as it is. A plan without decisions has a root too."""
    levels = [leaves or (canon.digest({"form": FORM, "decisions": 0}),)]
    while len(levels[-1]) > 1:
        below = levels[-1]
        pairs = [below[n : n + 2] for n in range(0, len(below), 2)]
        levels.append(tuple(_joined(*pair) if len(pair) == 2 else pair[0] for pair in pairs))
    return tuple(levels)


def _joined(left: Digest, right: Digest) -> Digest:
    # A node has other keys than a leaf, so neither can pass for the other.
    return canon.digest({"form": FORM, "left": left, "right": right})


def _outline(decision: Decision, former: ProfileName | None) -> ApprovedDecision:
    renamed = next((ProfileName(c.old) for c in decision.changes if c.field == "profile"), former)
    number = decision.replica.rpartition("/")[2]
    return ApprovedDecision(
        kind=decision.kind,
        replica=decision.replica,
        former=ReplicaId(f"{renamed}/{number}") if renamed is not None else None,
        source=decision.source,
        target=decision.target,
        launch=decision.launch,
        processes=ended_processes(decision) or None,
    )
