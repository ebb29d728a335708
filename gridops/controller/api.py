"""What the listener may ask of a running controller (`endpoints.Api`), with the loop's wake and its end attached."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gridops.base.codes.control import GO424
from gridops.base.errors import Refusal
from gridops.base.units import render_instant
from gridops.controller import documents as d
from gridops.controller import views
from gridops.controller.endpoints import DirectiveAnswer, JoinAnswer, JoinBody, OperatorBody
from gridops.controller.measures import metrics
from gridops.controller.planning import Planning
from gridops.controller.service import Controller
from gridops.controller.together import Together
from gridops.controller.writer import Lost
from gridops.protocol.messages import Beat


class RunningApi:
    """Implements `endpoints.Api`. `Lost` ends the process whoever's request met it."""

    def __init__(
        self,
        controller: Controller,
        planning: Planning,
        changed: Callable[[], None],
        fail: Callable[[BaseException], None],
    ) -> None:
        self._controller = controller
        self._planning = planning
        self._changed = changed
        self._fail = fail
        self._together = Together(controller.beats, changed, fail)

    async def beat(self, beat: Beat) -> DirectiveAnswer:
        return DirectiveAnswer(directive=await self._together.answer(beat))

    def poll(self, beat: Beat, done: Callable[[str | Exception], None]) -> None:
        self._together.put(beat, done)

    def join(self, body: JoinBody) -> JoinAnswer:
        try:
            return JoinAnswer(reply=self._controller.join(body.request))
        except Lost as error:
            self._fail(error)
            raise

    async def operator(self, body: OperatorBody) -> Any:
        try:
            answer = await self._planning.operator(body.request)
        except Lost as error:
            self._fail(error)
            raise
        self._changed()
        return answer

    def roots(self) -> d.RootsDoc:
        return d.RootsDoc(roots=tuple(self._controller.state.roots))

    def status(self) -> d.StatusDoc:
        return views.status(self._controller.view())

    def fronts(self) -> d.FrontsDoc:
        return views.fronts(self._controller.view())

    def snapshot(self) -> d.SnapshotDoc:
        return views.snapshot(self._controller.view())

    def plans(self) -> d.PlansDoc:
        return views.plans(self._controller.view())

    async def plan(self, wanted: str) -> d.PlanDoc:
        found = self._planning.find(wanted)
        if found is None:
            stored = await self._planning.stored(wanted)
            found = stored[0] if stored is not None else None
        if found is None:
            raise Refusal(GO424.code, f"no plan `{wanted[:80]}`", hints=("gridops plans list",))
        return views.plan(self._controller.view(), found, self._controller.signer)

    def events(self, after: int) -> d.EventsDoc:
        ring = self._controller.events
        oldest, newest = ring.bounds
        events = tuple(
            d.EventDoc(n=e.n, time=render_instant(e.at_ms), kind=e.kind, text=e.text) for e in ring.after(after)
        )
        return d.EventsDoc(events=events, newest=newest, oldest=oldest)

    def pending(self) -> d.PendingListDoc:
        return views.pending(self._controller.view())

    def metrics(self) -> str:
        return metrics(self._controller.view(), self._controller.counters, self._planning.durations)

    def healthz(self) -> tuple[int, d.HealthDoc]:
        return 200, d.HealthDoc(status="ok")

    def readyz(self) -> tuple[int, d.HealthDoc]:
        reasons = self._controller.why_not_ready()
        return (503 if reasons else 200), d.HealthDoc(status="waiting" if reasons else "ok", reasons=reasons)

    def refused(self, code: str) -> None:
        refusals = self._controller.soft.refusals
        refusals[code] = refusals.get(code, 0) + 1
