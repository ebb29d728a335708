"""A host simulator in thirty lines: carries out every step that waits for nothing, one pass at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from gridops.base.ids import Digest
from gridops.footprint.need import identity
from gridops.model.action import Drain, Evict, Load, Operate, Unload, Warm
from gridops.model.plan import Plan, Terms
from gridops.model.snapshot import HostReport, Residency, ResidencyState, Snapshot
from gridops.planner.actions import Step, actions
from tests.planner.fleet import Fleet, digest

STARTING, READY = ResidencyState.WARMING, ResidencyState.READY


@dataclass
class Walk:
    """From a fleet to its target. `history` holds every snapshot on the way, the first included."""

    fleet: Fleet
    target: Plan
    busy: frozenset[str] = frozenset()
    """Replicas whose requests never end."""
    terms: dict[Digest, Terms] = field(default_factory=dict)
    history: list[Snapshot] = field(default_factory=list)
    taken: list[str] = field(default_factory=list)
    """Steps in the order in which they were carried out: `warm coder/1 ant`."""

    def steps(self) -> tuple[Step, ...]:
        desired = self.fleet.inputs().intent.desired
        return actions(self.target, self.fleet.snapshot(), self.fleet.now, desired=desired, applied_terms=self.terms)

    def run(self, passes: int = 40) -> Walk:
        """Until nothing can be done any more; fails when that does not happen."""
        self.history.append(self.fleet.snapshot())
        for _ in range(passes):
            self._settle()
            ready = [s for s in self.steps() if s.waits_for is None]
            for step in ready:
                self._carry_out(step)
            self.history.append(self.fleet.snapshot())
            if not ready and not self._moving():
                return self
        raise AssertionError(f"still at work after {passes} passes: {[_text(s) for s in self.steps()]}")

    def reports(self) -> Iterator[HostReport]:
        yield from self.fleet.snapshot().hosts

    def _moving(self) -> bool:
        return any(r.state is STARTING and r.replica in self.started for h in self.reports() for r in h.residencies)

    @property
    def started(self) -> set[str]:
        return {line.split(" ")[1] for line in self.taken if line.startswith("warm")}

    def _settle(self) -> None:
        """What was starting is ready; what drains and is not busy has nothing in flight."""
        for report in list(self.reports()):
            changed = tuple(self._next(r) for r in report.residencies)
            self.fleet = self.fleet.reporting(report.host, residencies=changed)

    def _next(self, r: Residency) -> Residency:
        if r.state is STARTING and r.replica in self.started:
            return replace(r, state=READY)
        if r.state is ResidencyState.DRAINING:
            return replace(r, in_flight=1 if r.replica in self.busy else 0)
        return r

    def _carry_out(self, step: Step) -> None:
        action = step.action
        self.taken.append(f"{action.kind} {step.replica} {action.host}")
        report = self.fleet.snapshot().host(action.host)
        assert report is not None, "a step for a host that does not report"
        match action:
            case Evict():
                gone = set(action.files)
                self.fleet = self.fleet.reporting(
                    action.host,
                    cached=tuple(f for f in report.cached if f not in gone),
                    prefetched=tuple(p for p in report.prefetched or () if p.files != action.files) or None,
                )
            case Load():
                cached = {*report.cached, *(f.sha256 for f in action.artifact.files)}
                self.fleet = self.fleet.reporting(action.host, cached=tuple(sorted(cached)))
            case Warm():
                self._warm(action, report)
            case Drain() | Unload() | Operate():
                self._touch(action, report)

    def _warm(self, action: Warm, report: HostReport) -> None:
        assert all(f.sha256 in report.cached for f in action.launch.artifact.files), "warm before its artifact is there"
        made = Residency(
            profile=action.profile,
            state=STARTING,
            replica=action.replica,
            config=action.launch.config,
            incarnation=digest(f"{action} {len(self.taken)}"),
            identity=identity(action.launch),
            devices=action.devices,
            device_bytes=action.device_bytes,
            host_bytes=action.host_bytes,
        )
        assert made.incarnation is not None
        self.terms[made.incarnation] = next(t for t in self.target.terms if t.profile == action.profile)
        self.fleet = self.fleet.reporting(action.host, residencies=(*report.residencies, made))

    def _touch(self, action: Drain | Unload | Operate, report: HostReport) -> None:
        changed: list[Residency] = []
        for r in report.residencies:
            if r.incarnation != action.incarnation:
                changed.append(r)
            elif isinstance(action, Drain):
                assert r.state in (READY, STARTING, ResidencyState.LOADING)
                changed.append(replace(r, state=ResidencyState.DRAINING, in_flight=1))
            elif isinstance(action, Operate):
                changed.append(replace(r, replica=action.replica, profile=action.profile))
                self.terms[action.incarnation] = next(t for t in self.target.terms if t.profile == action.profile)
            else:
                assert r.in_flight == 0
                assert r.state in (ResidencyState.DRAINING, ResidencyState.FAILED)
        self.fleet = self.fleet.reporting(action.host, residencies=tuple(changed))


def _text(step: Step) -> str:
    return f"{step.action.kind} {step.replica} {step.action.host} {step.waits_for or ''}"
