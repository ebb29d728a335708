"""The plan document: YAML for people, printed from the signed payload and never read as truth.

Called by `files.projection` (write) and by the controller and CLI (read). The payload of the envelope decides; the
text must be, byte for byte, what that payload prints to, so what a reviewer read is what was signed.
"""

from __future__ import annotations

from collections.abc import Sequence

from gridops.base import limits
from gridops.base.codes.trust import BAD_SCHEMA, PLAN_EDITED
from gridops.base.errors import Refusal
from gridops.base.record import Malformed, from_bytes, to_data
from gridops.files.print_yaml import print_yaml
from gridops.model.plan import Plan
from gridops.planner.render_words import ASCII, headline, place_line, route, short_plan, why
from gridops.trust.envelope import open_envelope
from gridops.trust.keys import PublicKey

_SEALED_BYTES = 2 * limits.PLAN_BYTES
"""An envelope is its payload in base64 and a signature."""
_MESSAGE_LINES = 40


def render_plan(plan: Plan) -> str:
    """The document of a plan: the same bytes for the same plan, on every machine."""
    head = (
        f"# {short_plan(plan)} {plan.scope}: {headline(plan)}.\n"
        "# Do not edit: this text is printed from the signed payload and compared with it. Change the inputs instead.\n"
    )
    return head + print_yaml(to_data(plan))


def read_plan(yaml_text: str, envelope_text: str, keys: Sequence[PublicKey], *, file: str = "plan.yaml") -> Plan:
    """The plan that was signed, if one of `keys` signed it and `yaml_text` is exactly what it prints to.

    Raises Refusal: what `trust` says of the envelope, or GO415 naming `file` and the first line that differs.
    """
    opened = open_envelope(envelope_text, kind="plan", keys=keys, limit=_SEALED_BYTES)
    try:
        plan = from_bytes(Plan, opened.payload)
    except Malformed as error:
        raise Refusal(
            BAD_SCHEMA.code,
            f"{file}: the signed plan is not of a form this version knows: {error}",
            subject=file,
            hints=("it may come from a newer gridops: compare `gridops --version`",),
        ) from error
    expected = render_plan(plan)
    if yaml_text != expected:
        raise _edited(file, yaml_text.split("\n"), expected.split("\n"))
    return plan


def message_lines(plan: Plan) -> list[str]:
    """The commit message of a plan, with trailers that `git log --format=%(trailers)` reads."""
    lines = [f"plan {plan.scope} {short_plan(plan)}: {headline(plan)}", ""]
    for decision in plan.decisions[:_MESSAGE_LINES]:
        where = route(decision, plan, ASCII.arrow)
        cause = why(decision, ASCII.arrow)
        at = place_line(decision.cause.at)
        tail = f"  ({at})" if at and at not in cause else ""
        parts = [f"{ASCII.of(decision.kind)} {decision.replica}", where, f"{cause}{tail}"]
        lines.append("  ".join(part for part in parts if part))
    if len(plan.decisions) > _MESSAGE_LINES:
        lines.append(f"... and {len(plan.decisions) - _MESSAGE_LINES} more")
    causes = sorted({d.cause.kind.value for d in plan.decisions})
    trailers = [f"Gridops-Plan: {plan.id}", f"Gridops-Decisions: {plan.decisions_digest}"]
    if plan.intent.commit is not None:
        trailers.append(f"Gridops-Intent: {plan.intent.commit}")
    if causes:
        trailers.append(f"Gridops-Cause: {', '.join(causes)}")
    return [*(_one_line(line) for line in lines), *([""] if plan.decisions else []), *trailers]


def _one_line(text: str) -> str:
    return "".join(char if char.isprintable() else " " for char in text).rstrip()


def _edited(file: str, found: list[str], expected: list[str]) -> Refusal:
    pairs = zip(found, expected, strict=False)
    at = next((n for n, (have, want) in enumerate(pairs) if have != want), min(len(found), len(expected)))
    have = found[at] if at < len(found) else "(the text ends here)"
    want = expected[at] if at < len(expected) else "(the text ends here)"
    return Refusal(
        PLAN_EDITED.code,
        f"{file} was edited by hand: line {at + 1} is not what was signed",
        subject=file,
        evidence=(f"{file}:{at + 1}", f"  signed  {_shown(want)}", f"  found   {_shown(have)}"),
        hints=("undo the edit, or change the inputs and plan again",),
    )


def _shown(line: str) -> str:
    text = "".join(char if char.isprintable() else repr(char)[1:-1] for char in line)
    return text if len(text) <= 100 else text[:100] + "..."
