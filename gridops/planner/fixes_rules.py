"""Changes that might place a replica that rules, counts, price or a drain keep out: one rule gives way a little.

Called by `fixes`. Data tiers are never proposed to be lowered: they say where data may go, and a replica without a
seat is no reason to change that. What a host waits for by itself (silence, a paused owner) is no change of files.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gridops.base.codes import placement as codes
from gridops.base.ids import HostId, ProfileName
from gridops.base.units import render_price
from gridops.model.intent import Desired
from gridops.model.policy import BudgetPolicy, PriceCeiling, ScopeBudgets
from gridops.model.profile import Colocation, PlacementRules, Profile
from gridops.planner.capacity import Ask, Offer
from gridops.planner.eligible import Way, open_way
from gridops.planner.fixes_ideas import (
    ENTRY,
    NEAR_HOSTS,
    WHOLE,
    Change,
    Edit,
    FixKind,
    Idea,
    Question,
    host_is,
    host_paths,
    profile_is,
    profile_paths,
    share,
)
from gridops.planner.world import HostView


def rule_ideas(asked: Question) -> Iterator[Idea]:
    """For every reason among the lines that somebody wrote down."""
    yield from _counts(asked)
    yield from _placement(asked)
    yield from _company(asked)
    yield from _price(asked)
    yield from _drains(asked)
    yield from _pin(asked)
    spread = asked.profile.spread
    if spread is not None and spread.min > 1:
        edit = Edit("spread.min", str(spread.min), str(spread.min - 1), profile_paths(asked.profile.name, "spread"))
        less = replace(asked.profile, spread=replace(spread, min=spread.min - 1))
        yield Idea(FixKind.SPREAD, share(1, spread.min), edit, profile_is(less))


def _counts(asked: Question) -> Iterator[Idea]:
    profile = asked.profile
    for line in _roomiest(asked, codes.MAX_REPLICAS.code):
        host = asked.draft.world.hosts[line].host
        most = host.max_replicas or 0
        edit = Edit("max_replicas", str(most), str(most + 1), host_paths(line, "max_replicas"), line)
        yield Idea(FixKind.MAX_REPLICAS, share(1, most), edit, host_is(replace(host, max_replicas=most + 1)))
    if asked.of(codes.MAX_PER_HOST.code) and profile.max_per_host is not None:
        most = profile.max_per_host
        more = replace(profile, max_per_host=most + 1)
        if asked.fits_as(more, asked.item.pin):
            edit = Edit("max_per_host", str(most), str(most + 1), profile_paths(profile.name, "max_per_host"))
            yield Idea(FixKind.MAX_PER_HOST, share(1, most), edit, profile_is(more))


def _placement(asked: Question) -> Iterator[Idea]:
    profile, rules = asked.profile, asked.profile.placement
    for line in asked.of(codes.MISSING_TAG.code)[:NEAR_HOSTS]:
        host = asked.draft.world.hosts[line.host].host
        lacking = [t for t in rules.require_tags if t not in host.tags]
        tagged = replace(host, tags=(*host.tags, *lacking[:1]))
        if len(lacking) == 1 and _has_room(asked, replace(asked.draft.world.hosts[line.host], host=tagged)):
            edit = Edit("tags", "", lacking[0], host_paths(line.host, "tags"), line.host)
            yield Idea(FixKind.TAG, ENTRY, edit, host_is(tagged))
    if asked.of(codes.MISSING_TAG.code):
        for tag in sorted(rules.require_tags):
            fewer = replace(rules, require_tags=tuple(t for t in rules.require_tags if t != tag))
            yield from _rule(asked, FixKind.TAG, fewer, ("placement.require_tags", tag, ""))
    if asked.of(codes.FORBIDDEN_TAG.code):
        for tag in sorted(rules.forbid_tags):
            fewer = replace(rules, forbid_tags=tuple(t for t in rules.forbid_tags if t != tag))
            yield from _rule(asked, FixKind.TAG, fewer, ("placement.forbid_tags", tag, ""))
    for line in asked.of(codes.NOT_ALLOWED.code):
        more = replace(rules, allow_hosts=tuple(sorted({*rules.allow_hosts, line.host})))
        if _has_room(asked, asked.draft.world.hosts[line.host], replace(profile, placement=more)):
            yield from _rule(asked, FixKind.HOSTS, more, ("placement.allow_hosts", "", line.host))
    for line in asked.of(codes.DENIED.code):
        fewer = replace(rules, deny_hosts=tuple(h for h in rules.deny_hosts if h != line.host))
        yield from _rule(asked, FixKind.HOSTS, fewer, ("placement.deny_hosts", line.host, ""))


def _rule(asked: Question, kind: FixKind, rules: PlacementRules, words: tuple[str, str, str]) -> Iterator[Idea]:
    """Other placement rules, where they leave a host with room."""
    profile = replace(asked.profile, placement=rules)
    if asked.fits_as(profile, asked.item.pin):
        field, old, new = words
        edit = Edit(field, old, new, profile_paths(profile.name, "placement"))
        yield Idea(kind, ENTRY if kind is FixKind.HOSTS else WHOLE, edit, profile_is(profile))


def _company(asked: Question) -> Iterator[Idea]:
    """One objection on a host gives way, where it is the only one there."""
    for line in asked.of(codes.COLOCATION.code)[:NEAR_HOSTS]:
        found = list(_objections(asked, line.host))
        if len(found) == 1:
            yield found[0]


def _objections(asked: Question, host: HostId) -> Iterator[Idea]:
    profile, world = asked.profile, asked.draft.world
    others = sorted(set(asked.draft.board.hosts[host].profiles()) - {profile.name})
    together = len(others) + 1
    if profile.colocation.max is not None and together > profile.colocation.max:
        yield _wider(profile, together)
    for name in others:
        other = world.profiles.get(name)
        if name in profile.colocation.exclude:
            yield _accepts(profile, name)
        if other is not None and profile.name in other.colocation.exclude:
            yield _accepts(other, profile.name)
        if other is not None and other.colocation.max is not None and together > other.colocation.max:
            yield _wider(other, together)


def _wider(profile: Profile, most: int) -> Idea:
    old = profile.colocation.max or 0
    edit = Edit("colocation.max", str(old), str(most), profile_paths(profile.name, "colocation"), profile.name)
    return Idea(FixKind.COLOCATION, share(most - old, old), edit, _company_is(profile, most=most))


def _accepts(profile: Profile, name: ProfileName) -> Idea:
    edit = Edit("colocation.exclude", name, "", profile_paths(profile.name, "colocation"), profile.name)
    return Idea(FixKind.COLOCATION, WHOLE, edit, _company_is(profile, without=name))


def _company_is(profile: Profile, most: int | None = None, without: ProfileName | None = None) -> Change:
    rule = profile.colocation
    kept = tuple(n for n in rule.exclude if n != without)
    return profile_is(replace(profile, colocation=Colocation(max=rule.max if most is None else most, exclude=kept)))


def _price(asked: Question) -> Iterator[Idea]:
    draft = asked.draft
    ceiling, scope = draft.world.budgets.price, draft.world.inputs.scope
    if ceiling is None:
        return
    paths = (f"budgets/{scope}/price", f"budgets/{scope}", "budgets")
    hosts = [line.host for line in asked.of(codes.PRICE_CEILING.code)]
    prices = sorted({draft.world.hosts[h].host.price_per_hour_micro or 0 for h in hosts})
    for price in prices[:2]:
        needed, old = draft.board.price_micro + price, ceiling.max_per_hour_micro
        edit = Edit("price.max_per_hour", render_price(old), render_price(needed), paths)
        higher = replace(ceiling, max_per_hour_micro=needed)
        yield Idea(FixKind.PRICE, share(needed - old, old), edit, _priced(asked, higher))
    if asked.of(codes.PRICE_UNKNOWN.code):
        edit = Edit("price.unknown", "refuse", "allow", paths)
        yield Idea(FixKind.PRICE, WHOLE, edit, _priced(asked, replace(ceiling, unknown="allow")))


def _priced(asked: Question, ceiling: PriceCeiling) -> Change:
    new: ScopeBudgets = replace(asked.draft.world.budgets, price=ceiling)

    def change(desired: Desired) -> Desired:
        others = tuple(s for s in desired.budgets.scopes if s.scope != new.scope)
        scopes = tuple(sorted((*others, new), key=lambda s: s.scope))
        return replace(desired, budgets=BudgetPolicy(scopes=scopes))

    return change


def _drains(asked: Question) -> Iterator[Idea]:
    for line in asked.of(codes.HOST_DRAINING.code):
        view = asked.draft.world.hosts[line.host]
        if view.drain is None or not _has_room(asked, replace(view, closed=None)):
            continue
        edit = Edit("drain", view.drain.reason, "", (f"drains/{line.host}",), line.host)
        yield Idea(FixKind.DRAIN, WHOLE, edit, _ended(line.host))


def _ended(host: HostId) -> Change:
    def change(desired: Desired) -> Desired:
        return replace(desired, drains=tuple(d for d in desired.drains if d.host != host))

    return change


def _pin(asked: Question) -> Iterator[Idea]:
    pin, profile = asked.item.pin, asked.profile
    if pin is None or pin not in profile.placement.pins or not asked.fits_as(profile, None):
        return
    fewer = replace(profile.placement, pins=tuple(p for p in profile.placement.pins if p != pin))
    edit = Edit("placement.pins", pin, "", profile_paths(profile.name, "placement"))
    yield Idea(FixKind.PIN, WHOLE, edit, profile_is(replace(profile, placement=fewer)))


def _has_room(asked: Question, view: HostView, profile: Profile | None = None) -> bool:
    """Would the host, seen like this, take the replica now in any config?"""
    wanted = profile or asked.profile
    for config in wanted.configs:
        way = open_way(wanted, config, view, asked.draft.world.planning)
        if isinstance(way, Way):
            answer = asked.draft.board.offer(view.host.id, Ask(asked.item.replica, wanted, way))
            if isinstance(answer, Offer):
                return True
    return False


def _roomiest(asked: Question, code: str) -> list[HostId]:
    """Hosts with this reason, most free memory first."""
    grid = asked.walk.seats.grid
    hosts = [line.host for line in asked.of(code)]
    free = {h: int((grid.open[grid.row[h]] - grid.used[grid.row[h]]).max()) for h in hosts}
    return sorted(hosts, key=lambda h: (-free[h], h))[:NEAR_HOSTS]
