"""Do the policies make sense together: roles and people, price ceilings? Do two configs disagree about a model file?"""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import dataclass
from typing import Any

from gridops.base.codes import sense as codes
from gridops.base.units import counted
from gridops.files import near
from gridops.files.diagnose import Related
from gridops.files.gather import Declared, Gathered
from gridops.files.nodes import Node
from gridops.files.sense_names import listed
from gridops.files.shape import Items, Read, Table
from gridops.files.tree import Tree
from gridops.model.fleet import HostClass

NAMED = 5
"""So many names stand in a message; the rest is a count."""


def judge(found: Gathered, tree: Tree) -> None:
    """Every judgement about policies as a whole."""
    approvals = found.policies.get("Approvals")
    if approvals is not None:
        _roles(approvals, _approvers(found, tree))
        _people(approvals, found, tree)
        _authors(approvals, found, tree)
    budgets = found.policies.get("Budgets")
    if budgets is not None:
        _prices(found, budgets)
    _digests(found)


def _roles(approvals: Declared, root: _Approvers) -> None:
    """Each risk asks roles that exist and that hold enough people: with keys, and as many as the root wants of
    approvers, where there is a root.

    What only the root makes impossible is a warning: a commit that is refused for it would keep the root that it
    brings from counting, and that may be the one without a stolen key.
    """
    roles = approvals.read.get("roles")
    members = _members(roles) if isinstance(roles, Table) else {}
    risks = approvals.read.get("risks")
    for risk in risks.values.values() if isinstance(risks, Table) else ():
        if not isinstance(risk, Read):
            continue
        people: set[str] = set()
        unknown = False
        for role, node in listed(risk, "from"):
            if role in members:
                people.update(members[role])
                continue
            unknown = True
            close = near.nearest(role, members)
            hint = f"did you mean `{close}`?" if close else f"roles: {', '.join(sorted(members)) or 'none'}"
            approvals.reader.error(codes.UNKNOWN_ROLE, node, f"unknown role `{role}`", hint)
        need = risk.get("need")
        if not isinstance(need, int) or unknown:
            continue
        wanted, able = max(need, root.threshold), people & root.people if root.people else people
        if wanted > len(able):
            names = ", ".join(sorted(able)) or "nobody"
            by = f" by root {root.version}, whatever stands here" if wanted > need else ""
            message = f"{counted(wanted, 'approval')} needed{by}, {len(able)} can be given"
            keyless = f"; without an approver key: {', '.join(sorted(people - able))}" if people - able else ""
            say = approvals.reader.error if need > len(people) else approvals.reader.warn
            say(codes.ROSTER, risk.node("need"), message, f"who may approve: {names}{keyless}")


def _members(roles: Table) -> dict[str, tuple[str, ...]]:
    return {name: tuple(people.values) for name, people in roles.values.items() if isinstance(people, Items)}


def _people(approvals: Declared, found: Gathered, tree: Tree) -> None:
    """People of the roles have a key in the newest trust root, where there is one."""
    known = _approvers(found, tree).people
    roles = approvals.read.get("roles")
    if not known or not isinstance(roles, Table):
        return
    for people in roles.values.values():
        for name, node in zip(people.values, people.nodes, strict=True) if isinstance(people, Items) else ():
            if name not in known:
                close = near.nearest(name, known)
                hint = f"did you mean `{close}`?" if close else f"people there: {', '.join(sorted(known))}"
                approvals.reader.warn(
                    codes.UNKNOWN_PERSON, node, f"`{name}` has no approver key in the trust root", hint
                )


def _authors(approvals: Declared, found: Gathered, tree: Tree) -> None:
    """Who wrote a commit is known only where commits are signed; elsewhere a name in it is a claim."""
    if (
        approvals.read.get("author_may_approve") is False
        and _newest_root(found, tree).get("signed_commits") is not True
    ):
        message = "who wrote a commit is known only where commits are signed, and the root does not demand that"
        hint = "write true, or: gridops trust commits signed"
        approvals.reader.error(codes.NOT_OFFERED, approvals.read.node("author_may_approve"), message, hint)


@dataclass(frozen=True, slots=True)
class _Approvers:
    """What a root document says of its role `approver`. Nobody: there is no root, or none that can be read."""

    people: frozenset[str] = frozenset()
    threshold: int = 0
    version: int = 0


def _approvers(found: Gathered, tree: Tree) -> _Approvers:
    """Of the newest root document; nothing is verified here, whoever believes it does that."""
    root = _newest_root(found, tree)
    try:
        (role,) = (role for role in root["roles"] if role["name"] == "approver")
        people = frozenset(str(key["holder"]) for key in role["keys"])
        return _Approvers(people, int(role.get("threshold", 0)), int(root.get("version", 0)))
    except (KeyError, TypeError, ValueError):
        return _Approvers()


def _newest_root(found: Gathered, tree: Tree) -> dict[str, Any]:
    """What the newest root document says, whoever signed it; nothing where there is none that can be read."""
    numbered = [(int(stem), path) for path in found.trust_roots if (stem := _stem(path)).isdigit()]
    try:
        envelope = json.loads(tree.read(max(numbered)[1]))
        root = json.loads(base64.b64decode(envelope["payload"]))
    except (OSError, ValueError, KeyError, TypeError, binascii.Error, RecursionError):
        return {}
    return root if isinstance(root, dict) else {}


def _stem(path: str) -> str:
    return path.rsplit("/", 1)[-1].removesuffix(".json")


def _prices(found: Gathered, budgets: Declared) -> None:
    """A ceiling that refuses hosts without a price, over hosts without one."""
    scopes = budgets.read.get("scopes")
    for scope, read in scopes.values.items() if isinstance(scopes, Table) else ():
        price = read.get("price") if isinstance(read, Read) else None
        if price is None or price.get("unknown", "refuse") != "refuse":
            continue
        hosts = [h for h in found.hosts.values() if h.scope == scope and h.read.get("class") is not HostClass.EXTERNAL]
        without = sorted(h.name for h in hosts if "price_per_hour" not in h.read.entries)
        if without:
            names = ", ".join(without[:NAMED]) + (f" and {len(without) - NAMED} more" if len(without) > NAMED else "")
            message = f"no price is known of {names}: new replicas are refused there"
            hint = "0 is a price; or set `unknown: allow`"
            budgets.reader.warn(codes.NO_PRICE, read.key("price"), message, hint)


def _digests(found: Gathered) -> None:
    """The same file of the same source with two digests: one of them may be out of date."""
    seen: dict[tuple[str, str], tuple[str, Declared, Node]] = {}
    for name in sorted(found.profiles):
        profile = found.profiles[name]
        configs = profile.read.get("configs")
        for config in configs.values.values() if isinstance(configs, Table) else ():
            artifact = config.get("artifact") if isinstance(config, Read) else None
            if not isinstance(artifact, Read):
                continue
            for file, _ in listed(artifact, "files"):
                path, digest = file.get("path"), file.get("sha256")
                if path is None or digest is None:
                    continue
                key = (artifact.get("source") or "", path)
                first = seen.setdefault(key, (digest, profile, file.node("sha256")))
                if first[0] != digest:
                    related = (Related(first[1].source.place(first[2]), "another digest here"),)
                    message = f"`{path}` has two digests"
                    profile.reader.warn(codes.TWO_DIGESTS, file.node("sha256"), message, related=related)
