"""What a person does who reads a fix: the change made by hand, planned, and nobody the worse for it."""

from __future__ import annotations

from dataclasses import replace

from gridops.base.units import exact_bytes, parse_bytes, parse_micro, parse_ppm
from gridops.model.fleet import Host
from gridops.model.intent import Desired
from gridops.model.plan import CauseKind, DecisionKind, Plan
from gridops.model.policy import BudgetPolicy
from gridops.model.profile import Config, Profile
from gridops.planner.check import check
from gridops.planner.fixes import Fix
from gridops.planner.fixes_ideas import FixKind
from gridops.planner.planner import Inputs, plan
from tests.planner.fleet import SCOPE


def costs_nobody(inputs: Inputs, before: Plan, replica: str, fix: Fix) -> None:
    desired = done(inputs.intent.desired, fix, replica.rpartition("/")[0])
    changed = replace(inputs, intent=replace(inputs.intent, desired=desired))
    after = plan(changed)
    assert check(after, changed) == ()
    where = {a.replica: a.seat for a in after.placement}
    assert where[replica] == fix.seat  # type: ignore[index]
    assert {a.replica for a in before.placement} < set(where), "somebody lost a seat"
    known = {(d.kind, d.replica) for d in before.decisions}
    fresh = [d for d in after.decisions if (d.kind, d.replica) not in known and d.replica not in (fix.moves, replica)]
    harmless = (DecisionKind.PLACE, DecisionKind.CANNOT_PLACE)
    assert all(d.kind in harmless and d.cause.kind is not CauseKind.DISPLACED for d in fresh)
    if fix.moves is not None:
        assert where[fix.moves].host == fix.moves_to


def done(desired: Desired, fix: Fix, name: str) -> Desired:
    """What a person does who reads `field`, `of`, `old` and `new`."""
    if fix.kind is FixKind.DRAIN:
        return replace(desired, drains=tuple(d for d in desired.drains if d.host != fix.of))
    if fix.kind is FixKind.HEADROOM:
        headroom = replace(desired.planning.headroom, memory_ppm=parse_ppm(fix.new))
        return replace(desired, planning=replace(desired.planning, headroom=headroom))
    if fix.kind is FixKind.PRICE:
        scope = desired.budgets.of(SCOPE)
        assert scope.price is not None
        new = {"unknown": fix.new} if fix.new == "allow" else {"max_per_hour_micro": parse_micro(fix.new)}
        price = replace(scope.price, **new)  # type: ignore[arg-type]
        return replace(desired, budgets=BudgetPolicy(scopes=(replace(scope, price=price),)))
    on_host = (FixKind.RESERVE, FixKind.CEILING, FixKind.MAX_REPLICAS, FixKind.DISK)
    if fix.kind in on_host or fix.field == "tags":
        return replace(
            desired, hosts=tuple(host_done(h, fix) if fix.of.split(" ")[0] == h.id else h for h in desired.hosts)
        )
    subject = fix.of if fix.kind is FixKind.COLOCATION else (fix.moves or f"{name}/1").rpartition("/")[0]
    return replace(desired, profiles=tuple(profile_done(p, fix) if p.name == subject else p for p in desired.profiles))


def host_done(one: Host, fix: Fix) -> Host:
    if fix.field == "tags":
        return replace(one, tags=(*one.tags, fix.new))
    if fix.field == "max_replicas":
        return replace(one, max_replicas=int(fix.new))
    if fix.kind is FixKind.DISK:
        field = {"disk.keep_free": "keep_free_bytes", "disk.artifacts": "artifacts_bytes"}[fix.field]
        return replace(one, disk=replace(one.disk, **{field: parse_bytes(fix.new)}))  # type: ignore[type-var]
    field = {"reserve": "reserve_bytes", "memory": "memory_bytes"}[fix.field]
    device = next(d for d in one.devices if d.id == fix.of.split(" ")[1])
    assert exact_bytes(getattr(device, field)) == fix.old
    new = replace(device, **{field: parse_bytes(fix.new)})
    return replace(one, devices=tuple(new if d.id == new.id else d for d in one.devices))


def profile_done(one: Profile, fix: Fix) -> Profile:
    section, _, field = fix.field.partition(".")
    match section:
        case "footprint" | "context":
            name = fix.of.removeprefix("config ")
            return replace(one, configs=tuple(config_done(c, fix) if c.name == name else c for c in one.configs))
        case "max_per_host":
            return replace(one, max_per_host=int(fix.new))
        case "spread":
            assert one.spread is not None
            return replace(one, spread=replace(one.spread, min=int(fix.new)))
        case "placement":
            values = [v for v in getattr(one.placement, field) if v != fix.old] + ([fix.new] if fix.new else [])
            return replace(one, placement=replace(one.placement, **{field: tuple(values)}))
        case "colocation" if field == "max":
            return replace(one, colocation=replace(one.colocation, max=int(fix.new)))
        case "colocation":
            kept = tuple(n for n in one.colocation.exclude if n != fix.old)
            return replace(one, colocation=replace(one.colocation, exclude=kept))
    raise AssertionError(f"nobody knows how to do {fix}")


def config_done(one: Config, fix: Fix) -> Config:
    if fix.field == "context":
        return replace(one, context=int(fix.new))
    field = {"footprint.device": "device_bytes", "footprint.host": "host_bytes"}[fix.field]
    return replace(one, footprint=replace(one.footprint, **{field: parse_bytes(fix.new)}))
