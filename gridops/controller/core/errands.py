"""Which advised steps on disks people let be done, and by what signed words: asked where a step is judged and shown.

A word holds for one very step (its host and files) for as long as an approval's plan may be carried out, and ends when
the step was done. It keeps nothing alive: advice that has gone takes the step with it. `advised` takes the words in.
"""

from __future__ import annotations

from gridops.base import limits
from gridops.base.ids import Digest, HostId, PersonName, ProfileName, ScopeName
from gridops.controller.core.state import State
from gridops.model.action import Action, Evict
from gridops.protocol import outbox as ob


def key_of(action: Action) -> Digest:
    """Name of one step on one host's disk: equal files, equal name, whatever plan advises it."""
    return Digest(ob.action_key(action))


def line_of(action: Action) -> str:
    """The line of the table of classes and risks (`authority.ERRANDS`) for a step."""
    return "evict" if isinstance(action, Evict) else "prefetch"


def spoken(state: State, scope: ScopeName, action: Action, now_ms: int) -> tuple[str, ...]:
    """The signed words by which a step may be done; none while too few people have said so."""
    valid = [yes for yes in state.scope(scope).errands.get(key_of(action), ()) if now_ms < yes.until_ms]
    enough = bool(valid) and len({yes.by for yes in valid}) >= max(yes.need for yes in valid)
    return tuple(yes.envelope for yes in valid)[: limits.SIGNATURES] if enough else ()


def people_of(state: State, scope: ScopeName, action: Action, now_ms: int) -> tuple[PersonName, ...]:
    """Who has said so, and whose word still holds."""
    return tuple(sorted(y.by for y in state.scope(scope).errands.get(key_of(action), ()) if now_ms < y.until_ms))


def way(profile: ProfileName, host: HostId) -> str:
    """The command that lets it be done."""
    return f"gridops advice {profile} {host}"
