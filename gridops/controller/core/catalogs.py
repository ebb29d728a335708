"""The catalog on the controller's side: which one a commit puts in force, and what may be commanded under it.

A host refuses what people did not sign, whoever asks; here it is not even asked of it, and the reason is shown.
`intend` asks when a commit is judged, `reconcile` when a command is made, `rights` whether one that waits may still
go. Must never decide what a catalog admits: that is `trust.catalog`, for controller, planner and host alike.
"""

from __future__ import annotations

from contextlib import suppress

from gridops.base.codes.protocol import OLD_CATALOG
from gridops.base.codes.trust import BAD_CATALOG
from gridops.base.errors import Refusal
from gridops.controller.core.state import Released, State
from gridops.model.action import Action, Load, Warm
from gridops.model.catalog import Catalog
from gridops.model.snapshot import HostReport
from gridops.protocol.fence import start_of
from gridops.protocol.messages import Ability, Body, Heartbeat
from gridops.trust.catalog import loads, starts
from gridops.trust.release import NONE_KNOWN, KnownCatalog, demanded, take, walked
from gridops.trust.root import RootChain

FILE = "policies/trust/catalog.json"


def in_force(
    state: State, chain: RootChain, texts: tuple[str, ...], text: str | None, passed: str | None = None
) -> Released | None:
    """The catalog that a commit leaves in force, None for none. `texts`: the root documents that it brings. `passed`:
    the newest catalog of the commits between, which counts as seen although nobody went by it.

    Raises Refusal for one that does not hold, is older than the one before, or is gone while one is asked for.
    """
    known = KnownCatalog(state.catalog.version, state.catalog.text) if state.catalog is not None else NONE_KNOWN
    chain, known = walked(chain, known, texts)
    if passed is not None:
        with suppress(Refusal):
            known = take(known, chain, passed)
    if chain.root.catalog == 0:
        return None
    least = demanded(known, chain)
    if text is None:
        if least == 0:
            return None
        raise Refusal(
            BAD_CATALOG.code,
            f"it is gone, and version {least} is the least that counts; only a root document ends the need for one",
            hints=("git checkout the one before it", "or: gridops trust catalog --off"),
        )
    taken = take(known, chain, text)
    return Released(taken.floor, text)


def in_the_way(state: State, report: HostReport | None, action: Action) -> str | None:
    """Why the catalog in force keeps a command from being made; None when it does not."""
    catalog = _in_force(state)
    if catalog is None or not isinstance(action, Load | Warm):
        return None
    if report is None or not report.can(Ability.CATALOG.value):
        return "its agent is too old to hold commands against the catalog: update it"
    return loads(catalog, action.artifact) if isinstance(action, Load) else starts(catalog, start_of(action))


def made_under(state: State, action: Action) -> int | None:
    """What a new body says of the catalog. None where it starts nothing, so that every agent reads it."""
    if state.catalog is None or not isinstance(action, Load | Warm):
        return None
    return state.catalog.version


def outdated(state: State, body: Body) -> tuple[str, str] | None:
    """Why a command that waits was made under another catalog than the one in force; it is made anew."""
    if not isinstance(body.action, Load | Warm) or body.catalog == made_under(state, body.action):
        return None
    now = state.catalog.version if state.catalog is not None else "none"
    return OLD_CATALOG.code, f"it was made under catalog {body.catalog or 'none'}, and {now} is in force"


def for_host(state: State, heartbeat: Heartbeat) -> str | None:
    """What a directive carries: the envelope, for a host that is behind and whose agent knows catalogs."""
    if state.catalog is None or Ability.CATALOG.value not in (heartbeat.inventory.abilities or ()):
        return None
    return state.catalog.text if (heartbeat.catalog_version or 0) < state.catalog.version else None


def ahead(state: State, heartbeat: Heartbeat) -> str | None:
    """What a host that has proved a newer catalog than the one in force says about us; None where none has.

    A host that has not walked to our newest root may only not know yet that none is asked for any more.
    """
    ours = state.catalog.version if state.catalog is not None else 0
    theirs = heartbeat.catalog_version or 0
    if theirs <= ours or heartbeat.root_version < len(state.roots):
        return None
    return f"it has seen catalog {theirs}, and the commit in force has {ours or 'none'}: nothing new starts there"


def _in_force(state: State) -> Catalog | None:
    """What the intent in force was read with; the same that hosts are sent."""
    return state.accepted.desired.catalog if state.accepted is not None and state.catalog is not None else None
