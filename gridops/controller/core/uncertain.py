"""Commands whose host cannot say what became of them: what they hold, what proves their end, and what a person may say.

Such a command keeps its turn and its memory, and nothing is done again for its replica, until the host's inventory
shows how it ended (`proofs`, at every heartbeat) or a person who has looked says so (`reconciled`). Nothing ends it by
time. An end is asked for all the same: ending a process is how a host finds out. Must never guess: what an inventory
was too full to list proves nothing.
"""

from __future__ import annotations

from gridops.base import limits
from gridops.base.codes.control import GO430
from gridops.base.errors import Refusal
from gridops.base.units import counted
from gridops.controller.core import rows as r
from gridops.controller.core.learned import named
from gridops.controller.core.state import HostBook, State, Uncertain
from gridops.model.action import Action, Drain, Evict, Load, Operate, Unload, Warm
from gridops.model.snapshot import ResidencyState
from gridops.protocol import outbox as ob
from gridops.protocol.messages import Heartbeat, Inventory, Outcome
from gridops.trust.operator import OperatorRequest

ID_CHARS = 12
"""How much of a command's digest people are shown, and at least have to type."""


def id_of(known: Uncertain) -> str:
    """The id by which people name it."""
    return known.body.removeprefix("sha256:")[:ID_CHARS]


def proofs(book: HostBook, heartbeat: Heartbeat) -> tuple[r.OutcomeProved, ...]:
    """What a heartbeat shows of commands that were uncertain. Only one that was made after the receipt counts."""
    found = []
    for body, known in sorted(book.uncertain.items()):
        if heartbeat.receipt_head < known.rseq:
            continue
        proved = _shown(known, heartbeat.inventory)
        if proved is not None:
            outcome, evidence = proved
            row = r.OutcomeProved(host=heartbeat.host, seq=known.seq, body=body, outcome=outcome, evidence=evidence)
            found.append(row)
    return tuple(found)


def in_doubt(book: HostBook, action: Action) -> str | None:
    """Why nothing more is begun for a replica; None where all is known, and for what ends a process."""
    if isinstance(action, Drain | Unload):
        return None
    known = next((u for _, u in sorted(book.uncertain.items()) if u.action.replica == action.replica), None)
    if known is None:
        return None
    return f"nobody knows what became of {named(known.action)} (gridops reconcile-outcome {id_of(known)})"


def reconciled(state: State, request: OperatorRequest, evidence: str) -> tuple[tuple[r.Row, ...], dict[str, str]]:
    """A person who has looked says how it ended. Raises Refusal for what is known, or still with its host."""
    host = next((h for h, book in sorted(state.hosts.items()) if request.command in book.uncertain), None)
    if host is None or request.command is None:
        raise Refusal(GO430.code, _not_uncertain(state, request), hints=("gridops status",))
    if request.outcome not in (Outcome.SUCCEEDED.value, Outcome.FAILED.value):
        raise Refusal(GO430.code, "an outcome is `succeeded` or `failed`", hints=("--outcome succeeded|failed",))
    known = state.hosts[host].uncertain[request.command]
    row = r.OutcomeProved(
        host=host,
        seq=known.seq,
        body=known.body,
        outcome=Outcome(request.outcome),
        evidence=evidence,
        by=request.by,
    )
    return (row,), {"host": host, "command": known.body, "what": named(known.action), "outcome": request.outcome}


def _not_uncertain(state: State, request: OperatorRequest) -> str:
    for host, book in sorted(state.hosts.items()):
        entry = next((e for e in ob.open_entries(book.outbox) if e.digest == request.command), None)
        if entry is not None:
            where = f"{named(entry.body.action)} is still with its host, whose answer settles it"
            return f"{where}; what a host that is gone holds is released by: gridops host write-off {host}"
    waiting = sum(len(book.uncertain) for book in state.hosts.values())
    return f"no command of this id is uncertain; {counted(waiting, 'command')} of this fleet {_are(waiting)}"


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


Proved = tuple[Outcome, str]


def _shown(known: Uncertain, inventory: Inventory) -> Proved | None:
    action = known.action
    match action:
        case Load() | Evict():
            return _files(action, inventory)
        case Operate():
            # Terms are not reported; saying them again does no harm.
            return Outcome.FAILED, "the same terms may be told again"
        case Warm() | Drain() | Unload():
            incarnation = known.body if isinstance(action, Warm) else action.incarnation
            states = [x.state for x in inventory.residencies if x.incarnation == incarnation]
            if not states:
                return _absent(action, inventory)
            return _present(action, states[0])


def _files(action: Load | Evict, inventory: Inventory) -> Proved | None:
    wanted = [f.sha256 for f in action.artifact.files] if isinstance(action, Load) else list(action.files)
    here = [digest for digest in wanted if digest in inventory.cached]
    if len(here) == len(wanted):
        done = Outcome.SUCCEEDED if isinstance(action, Load) else Outcome.FAILED
        return done, "the host has the files"
    if inventory.transfers or len(inventory.cached) >= limits.CACHED_PER_HEARTBEAT:
        return None
    return (Outcome.FAILED if isinstance(action, Load) else Outcome.SUCCEEDED), "the host has not all of the files"


def _absent(action: Warm | Drain | Unload, inventory: Inventory) -> Proved | None:
    if len(inventory.residencies) >= limits.RESIDENCIES_PER_HOST:
        return None
    done = Outcome.FAILED if isinstance(action, Warm) else Outcome.SUCCEEDED
    return done, "the host holds nothing of it"


def _present(action: Warm | Drain | Unload, state: ResidencyState) -> Proved | None:
    match action:
        case Warm():
            return (Outcome.SUCCEEDED, "the host reports it ready") if state is ResidencyState.READY else None
        case Drain():
            drained = state is ResidencyState.DRAINING
            return (Outcome.SUCCEEDED if drained else Outcome.FAILED), f"the host reports it {state.value}"
        case Unload():
            return Outcome.FAILED, f"the host reports it {state.value}"
