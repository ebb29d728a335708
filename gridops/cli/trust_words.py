"""A root document in words and as JSON: who may do what, how many must agree, and until when."""

from __future__ import annotations

from gridops.base.ids import short
from gridops.base.record import to_data
from gridops.base.units import render_instant
from gridops.trust.former import Former
from gridops.trust.former import words as said
from gridops.trust.found import CAN, CANNOT
from gridops.trust.keys import parse_key
from gridops.trust.root import RoleName, RootChain


def words(chain: RootChain, now_ms: int = 0) -> list[str]:
    """Lines for people. `now_ms`: where the document was not made just now."""
    root = chain.root
    end = render_instant(root.expires_ms)
    lines = [
        f"Root {root.version} expired at {end}: nothing changes until it is renewed (gridops trust renew), and all "
        "keeps serving."
        if chain.expired(now_ms)
        else f"Root {root.version}, good until {end}; after that nothing changes and all keeps serving."
    ]
    for role in root.roles:
        holders = sorted({entry.holder for entry in role.keys})
        lines.append(f"  {role.name:<10} {role.threshold} of {len(holders)}: {', '.join(holders)}")
        lines += [f"             {CAN[role.name]}", f"             {CANNOT[role.name]}"]
        for entry in role.keys:
            if entry.paths is not None:
                lines.append(f"             {entry.holder}: only {', '.join(entry.paths)}")
            if parse_key(entry.key).in_token:
                lines.append(f"             {entry.holder}: by a hardware token, if it is touched")
    controller = root.role(RoleName.CONTROLLER)
    if controller is not None and len(controller.keys) > 1:
        lines.append(f"The controller's key is being rotated: {len(controller.keys)} keys count.")
    if root.mirrors:
        lines.append(f"Hosts look for root documents also at {', '.join(root.mirrors)}.")
    if len(root.controller_tls) > 1:
        lines.append(f"The controller's certificate is being rotated: {len(root.controller_tls)} are pinned.")
    if root.signed_commits:
        lines.append("Every commit is signed by a change key of the root before it, or nothing of it counts.")
        if root.from_commit is not None:
            lines.append(f"Their line was rewritten by people, and begins anew at {root.from_commit}.")
    else:
        lines.append("Commits need no signature: who may push to the watched branch speaks for intent.")
    standing = "obey" if root.standing else "refuse"
    lines.append(f"Hosts {standing} commands of classes that policies/mode.yaml allows without an approval.")
    if chain.agents_from is not None:
        lines.append(f"Agents before {chain.agents_from} serve on and take nothing new.")
    if root.catalog is not None:
        least = f"Every host asks for catalog {root.catalog} or a later one, also one that joins."
        lines.append(least if root.catalog else "No host asks for a catalog: whatever a profile asks for may run.")
    return [*lines, *_former(chain)]


def _former(chain: RootChain) -> list[str]:
    if not chain.former:
        return []
    lines = [f"  {one.holder:<10} {short(parse_key(one.key).key_id)} {said(one)}" for one in chain.former]
    return ["Keys that count no more; what was accepted by them stands:", *lines]


def document(chain: RootChain) -> dict[str, object]:
    """The same for programs."""
    found: dict[str, object] = {"schema": "gridops.trust/1", "fleet": chain.fleet, "root": to_data(chain.root)}
    return found | ({"former": [former_document(one) for one in chain.former]} if chain.former else {})


def former_document(one: Former) -> dict[str, object]:
    """A key that was believed once, for programs."""
    return {
        "holder": one.holder,
        "key": one.key,
        "roles": list(one.roles),
        "accepted_until_ms": one.accepted_until_ms,
        "root": one.root,
        "stolen": one.stolen,
    }
