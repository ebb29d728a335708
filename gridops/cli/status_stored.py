"""What `gridops status` shows when the controller does not answer: the newest state that lies in git, and its age.

Called by `cli.status` alone. Nothing here is what is now, so the document has a schema of its own and the call ends
with 69: a script that waits for a state must not take an old one for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gridops.base.errors import ConfigError, GridopsError, Refusal, Unreachable
from gridops.base.ids import CommitId, ScopeName, short
from gridops.base.record import to_data
from gridops.base.units import counted, render_instant, render_ms
from gridops.cli.output import Context
from gridops.cli.planning import Place, applied, place_of, plans_of
from gridops.cli.tables import table
from gridops.files.load import load
from gridops.files.tree import WorkingTree
from gridops.model.plan import Plan
from gridops.model.snapshot import ResidencyState, Snapshot
from gridops.planner.render_words import headline

Doc = dict[str, Any]
SCHEMA = "gridops.status-stored/1"


def stored(context: Context, silence: Unreachable, now_ms: int) -> Doc:
    """The newest state in git as a document. Raises the silence itself when git has none."""
    try:
        place = place_of(context)
        found = _found(context, place)
    except GridopsError as error:
        raise _nothing(silence, error.message) from silence
    if not found:
        raise _nothing(silence, "nothing is stored on gridops/state") from silence
    branch = plans_of(place).state
    commit = branch.newest()
    observed_ms = max(snapshot.observed_ms for snapshot in found.values())
    return {
        "schema": SCHEMA,
        "time": render_instant(now_ms),
        "error": {"message": silence.message, "hints": list(silence.hints)},
        "source": {
            "branch": branch.name,
            "commit": commit,
            "observed": render_instant(observed_ms),
            "age_ms": max(0, now_ms - observed_ms),
        },
        "intent": _intent(place),
        "scopes": [_scope(place, scope, snapshot, now_ms) for scope, snapshot in sorted(found.items())],
    }


def lines(document: Doc, width: int | None) -> Iterator[str]:
    """The screen, line by line; what it is not comes first."""
    source = document["source"]
    yield "THE CONTROLLER DOES NOT ANSWER. This is the newest state in git, not what is now."
    yield f"source {source['branch']} {source['commit'][:7]}, {_aged(source)} (it is written when something changes)"
    intent = document["intent"]
    if intent["commit"] is not None:
        yield f'the newest commit here is {intent["commit"][:7]} "{intent["subject"]}"; whether it counts is not known'
    for scope in document["scopes"]:
        yield ""
        yield from _scope_lines(scope, width)


def _found(context: Context, place: Place) -> dict[ScopeName, Snapshot]:
    if place.checkout is None:
        return {}
    branch = plans_of(place)
    scopes = (scope for scope in _scopes(place) if context.wants(scope))
    return {s: snapshot for s in scopes if (snapshot := branch.read_state(s)) is not None}


def _scopes(place: Place) -> tuple[ScopeName, ...]:
    """Scopes by the files here; by the plans that lie in git where those files are being edited."""
    try:
        return load(WorkingTree(place.directory), dirty=True).desired.scopes
    except ConfigError:
        return tuple(sorted({ScopeName("default"), *(p.scope for p in plans_of(place).places())}))


def _nothing(silence: Unreachable, why: str) -> Unreachable:
    hints = (*silence.hints, f"and no older state can be shown: {why}", "fetch it: git fetch origin gridops/state")
    return Unreachable(silence.message, hints=hints)


def _intent(place: Place) -> Doc:
    head: CommitId | None = place.checkout.resolve("HEAD") if place.checkout is not None else None
    subject = place.checkout.subject(head) if place.checkout is not None and head is not None else ""
    return {"commit": head, "subject": subject}


def _scope(place: Place, scope: ScopeName, snapshot: Snapshot, now_ms: int) -> Doc:
    plan, problem = _in_force(place, scope)
    return {
        "scope": scope,
        "observed": render_instant(snapshot.observed_ms),
        "age_ms": max(0, now_ms - snapshot.observed_ms),
        "plan": None if plan is None else _plan(plan),
        "problem": problem,
        "hosts": [
            {
                "host": h.host,
                "state": h.state.value,
                "observed": render_instant(h.observed_ms),
                "residencies": [to_data(r) for r in h.residencies],
            }
            for h in sorted(snapshot.hosts, key=lambda h: h.host)
        ],
    }


def _in_force(place: Place, scope: ScopeName) -> tuple[Plan | None, str | None]:
    """The newest plan with a result, if its signature holds; else why it is not shown."""
    try:
        return applied(place, scope), None
    except (Refusal, GridopsError) as error:
        return None, error.message


def _plan(plan: Plan) -> Doc:
    return {
        "id": plan.id,
        "decisions_digest": plan.decisions_digest,
        "headline": headline(plan),
        "replicas": len(plan.placement),
    }


def _scope_lines(scope: Doc, width: int | None) -> Iterator[str]:
    yield f"{scope['scope']}   {_aged(scope)}"
    if scope["problem"] is not None:
        yield f"  the newest plan in git is not shown: {scope['problem']}"
    if scope["plan"] is not None:
        plan = scope["plan"]
        replicas = counted(plan["replicas"], "replica")
        yield f"  the newest plan with a result is {short(plan['decisions_digest'])}: {replicas}"
    rows = [(h["host"], h["state"], _runs(h) or "-") for h in scope["hosts"]]
    if not rows:
        yield "  no hosts had reported"
        return
    for line in table(("HOST", "STATE", "RAN"), rows, None if width is None else max(width - 2, 40)):
        yield f"  {line}".rstrip()


def _runs(host: Doc) -> str:
    quiet = (ResidencyState.ABSENT.value, ResidencyState.CACHED.value)
    return " ".join(
        f"{r.get('replica') or r['profile']}:{r['state']}" for r in host["residencies"] if r["state"] not in quiet
    )


def _aged(document: Doc) -> str:
    return f"observed {render_ms(document['age_ms'])} ago"
