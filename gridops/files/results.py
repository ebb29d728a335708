"""What a result says that lies beside a stored plan: read from its text, for people. Called by the CLI.

Nothing in it is signed: it informs, and nobody may decide by it. What it does not say is None.
"""

from __future__ import annotations

from dataclasses import dataclass

from gridops.base.ids import PlanId
from gridops.files.nodes import Map, Node, Scalar, Seq
from gridops.files.yamlish import parse


@dataclass(frozen=True, slots=True)
class Result:
    """What became of a plan. `plan` is the one that was carried out."""

    plan: PlanId
    outcome: str | None = None
    applied: str | None = None
    ended: str | None = None
    by: str | None = None
    approved_by: tuple[str, ...] = ()


def read_result(plan: PlanId, text: str) -> Result:
    """The result of `plan`; one that says nothing where its text cannot be read."""
    root = parse(f"{plan}/result.yaml", text.encode()).root
    if not isinstance(root, Map):
        return Result(plan)
    found = {name: entry.value for name, entry in root.entries.items()}
    approvers = found.get("approved_by")
    return Result(
        plan,
        outcome=_text(found.get("outcome")),
        applied=_text(found.get("applied")),
        ended=_text(found.get("ended")),
        by=_text(found.get("by")),
        approved_by=tuple(i.value for i in approvers.items if isinstance(i, Scalar))
        if isinstance(approvers, Seq)
        else (),
    )


def _text(node: Node | None) -> str | None:
    return node.value if isinstance(node, Scalar) and not node.is_null else None
