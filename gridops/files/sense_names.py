"""Does every name that a file uses exist? Hosts, profiles, scopes, tiers, workloads; and is each taken only once?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from typing import Any

from gridops.base.codes import Code
from gridops.base.codes import sense as codes
from gridops.files import near
from gridops.files.diagnose import Related
from gridops.files.gather import DEFAULT_SCOPE, Declared, Gathered
from gridops.files.nodes import Node
from gridops.files.reader import Reader
from gridops.files.shape import Items, Read, Table
from gridops.model.policy import PlanningPolicy


def judge(found: Gathered) -> None:
    """Every reference from one thing to another."""
    _scopes(found)
    for name in sorted(found.profiles):
        _profile(found, found.profiles[name])
    _serves(found)
    _tiers_and_workloads(found)
    for name in sorted(found.hosts):
        _links(found, found.hosts[name])
    for name, drain in sorted(found.drains.items()):
        _known(codes.UNKNOWN_HOST, drain.reader, drain.read.node("host"), name, found.hosts, "host")
    for name, key in sorted(found.keys.items()):
        if name not in found.hosts:
            key.reader.warn(
                codes.UNKNOWN_HOST, key.read.node("host"), f"no file declares host `{name}`", "its key is unused"
            )
    _keys(found)
    _mode(found)


def _keys(found: Gathered) -> None:
    """A key speaks for one host. What a host has signed over from, or was expunged with, speaks for nobody again."""
    over: dict[object, str] = {}
    for name, key in sorted(found.keys.items()):
        over |= {former: f"one that {name} has signed over from" for former, _ in listed(key.read, "previous")}
        if key.read.get("expunged"):
            over[key.read.get("key")] = f"the one that {name} was expunged with"
    held: dict[object, str] = {}
    for name, key in sorted(found.keys.items()):
        mine = key.read.get("key")
        if mine is None or key.read.get("expunged"):
            continue
        whose = over.get(mine) or (f"that of {held[mine]}" if mine in held else None)
        held.setdefault(mine, name)
        if whose is not None:
            key.reader.error(codes.HOST_KEY_AGAIN, key.read.node("key"), f"the key of `{name}` is {whose}")


def listed(read: Read | None, field: str) -> Iterator[tuple[Any, Node]]:
    """Values of a list field with their places."""
    items = read.get(field) if read is not None else None
    if isinstance(items, Items):
        yield from zip(items.values, items.nodes, strict=True)


def _known(code: Code, reader: Reader, node: Node, name: str, known: Collection[str], what: str) -> bool:
    """A name that must exist."""
    if name in known:
        return True
    close = near.nearest(name, known)
    hint = f"did you mean `{close}`?" if close is not None else ""
    notes: tuple[str, ...] = ()
    if close is None and 0 < len(known) <= 12:
        notes = (f"{what}s: {', '.join(sorted(known))}",)
    reader.error(code, node, f"unknown {what} `{name}`", hint, notes=notes)
    return False


def _foreseen(code: Code, reader: Reader, node: Node, name: str, known: Collection[str], what: str) -> None:
    """A name that may be ahead of the fleet or behind it: a stranger is worth a warning, a slip is an error."""
    if name in known:
        return
    close = near.nearest(name, known)
    if close is not None:
        reader.error(code, node, f"unknown {what} `{name}`", f"did you mean `{close}`?")
    else:
        reader.warn(code, node, f"there is no {what} `{name}`", "so this has no effect")


def _scopes(found: Gathered) -> None:
    if not found.hosts:
        return  # an empty fleet is a proposal of its own, not a slip in every profile
    sizes = Counter(host.scope for host in found.hosts.values())
    for name in sorted(found.profiles):
        profile = found.profiles[name]
        if profile.scope not in sizes:
            close = near.nearest(profile.scope, sizes.keys())
            node = profile.read.node("scope")
            hint = f"did you mean `{close}`?" if close else f"scopes with hosts: {', '.join(sorted(sizes))}"
            related = _scope_place(found, close, sizes) if close else ()
            message = f"no host is in scope `{profile.scope}`"
            profile.reader.error(codes.UNKNOWN_SCOPE, node, message, hint, related=related)
    known = {*sizes, *(p.scope for p in found.profiles.values()), DEFAULT_SCOPE}
    for kind in ("Mode", "Budgets"):
        policy = found.policies.get(kind)
        scopes = policy.read.get("scopes") if policy is not None else None
        if policy is not None and isinstance(scopes, Table):
            for name, entry in scopes.entries.items():
                _foreseen(codes.UNKNOWN_SCOPE, policy.reader, entry.key, name, known, "scope")


def _scope_place(found: Gathered, scope: str, sizes: Counter[str]) -> tuple[Related, ...]:
    host = min((h for h in found.hosts.values() if h.scope == scope), key=lambda h: (h.source.file, h.name))
    count = sizes[scope]
    label = f"{count} host{'s' if count != 1 else ''} here"
    line = next((n for n, text in enumerate(host.source.lines, 1) if text.startswith("scope:")), None)
    place = host.source.place(host.read.anchor)
    if line is not None:
        column = host.source.line(line).index(scope) + 1 if scope in host.source.line(line) else 1
        place = host.source.spot(line, column, length=len(scope))
    return (Related(place, label),)


def _profile(found: Gathered, profile: Declared) -> None:
    read, reader = profile.read, profile.reader
    placement = read.get("placement")
    for field in ("allow_hosts", "deny_hosts", "pins"):
        for name, node in listed(placement, field):
            ask = _foreseen if field == "deny_hosts" else _known
            ask(codes.UNKNOWN_HOST, reader, node, name, found.hosts, "host")
    for name, node in listed(read.get("colocation"), "exclude"):
        if name == profile.name:
            reader.error(codes.CONTRADICTION, node, "a profile cannot exclude itself", "use `max_per_host: 1`")
        else:
            _foreseen(codes.UNKNOWN_PROFILE, reader, node, name, found.profiles, "profile")
    old = read.get("renamed_from")
    if old is not None and old in found.profiles:
        alive = found.profiles[old]
        related = (
            () if old == profile.name else (Related(alive.source.place(alive.read.anchor), "still declared here"),)
        )
        message = f"`{old}` is still a profile" if related else "a profile cannot be renamed from itself"
        reader.error(codes.RENAMED_FROM, read.node("renamed_from"), message, related=related)


def _serves(found: Gathered) -> None:
    """One id, one profile, within a scope."""
    taken: dict[tuple[str, str], tuple[Declared, Node]] = {}
    for name in sorted(found.profiles):
        profile = found.profiles[name]
        taken[profile.scope, name] = (profile, profile.read.node("name"))
    for name in sorted(found.profiles):
        profile = found.profiles[name]
        for served, node in listed(profile.read, "serves"):
            owner, place = taken.setdefault((profile.scope, served), (profile, node))
            if owner.name != name:
                related = (Related(owner.source.place(place), "already served here"),)
                message = f"`{served}` is served by profile `{owner.name}` too"
                profile.reader.error(codes.SERVES_TWICE, node, message, related=related)


def _tiers_and_workloads(found: Gathered) -> None:
    planning = found.policies.get("Planning")
    policy = planning.value if planning is not None and planning.value is not None else PlanningPolicy()
    for host in found.hosts.values():
        _tier(host.read, host.reader, policy)
    for profile in found.profiles.values():
        _tier(profile.read.get("placement"), profile.reader, policy)
    if not policy.workloads:
        return
    for profile in found.profiles.values():
        workloads = profile.read.get("workloads")
        for name, entry in workloads.entries.items() if isinstance(workloads, Table) else ():
            _known(codes.UNKNOWN_WORKLOAD, profile.reader, entry.key, name, policy.workloads, "workload")


def _tier(read: Read | None, reader: Reader, policy: PlanningPolicy) -> None:
    tier = read.get("tier") if read is not None else None
    if read is not None and tier is not None:
        _known(codes.UNKNOWN_TIER, reader, read.node("tier"), tier, policy.tiers, "tier")


def _links(found: Gathered, host: Declared) -> None:
    links = host.read.get("links")
    for name, entry in links.entries.items() if isinstance(links, Table) else ():
        if name != "download" and (name == host.name or name not in found.hosts):
            hint = "write `download`, or the name of another host"
            host.reader.warn(codes.UNKNOWN_HOST, entry.key, f"link to unknown host `{name}`", hint)


def _mode(found: Gathered) -> None:
    """Consent that names a profile which does not exist: harmless, and often a profile that was just removed."""
    mode = found.policies.get("Mode")
    scopes = mode.read.get("scopes") if mode is not None else None
    if mode is None or not isinstance(scopes, Table):
        return
    for scope in scopes.values.values():
        automatic = scope.get("automatic") if isinstance(scope, Read) else None
        for field in ("allow_displace", "last_replica"):
            for name, node in listed(automatic, field):
                if name not in found.profiles:
                    close = near.nearest(name, found.profiles)
                    hint = f"did you mean `{close}`?" if close else "it has no effect"
                    mode.reader.warn(codes.UNKNOWN_PROFILE, node, f"`{field}` names unknown profile `{name}`", hint)
