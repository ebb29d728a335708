"""Plans on behalf of the loop: off the thread, checked, and judged again when they come back. And applies by people.

One question at a time: a lock keeps a pass and an apply, and two applies, from deciding side by side. While a plan is
being made hosts go on reporting; what follows is judged on the state of that later moment.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

from gridops import __version__
from gridops.base.codes.control import GO424, GO425, NOT_READY
from gridops.base.errors import GridopsError, Refusal
from gridops.base.ids import PlanId, ScopeName, short
from gridops.base.units import render_instant
from gridops.controller.core import advised, operate
from gridops.controller.core import apply as applying
from gridops.controller.core import rows as r
from gridops.controller.core.modes import desired_now, permitted
from gridops.controller.core.observe import as_heard, recovering
from gridops.controller.core.propose import cause_of, fingerprint, follow, inputs
from gridops.controller.metrics import Histogram
from gridops.controller.project import Place
from gridops.controller.service import Controller
from gridops.files.plandoc import read_plan
from gridops.model.plan import Plan
from gridops.planner.check import check
from gridops.planner.planner import Inputs, Recall
from gridops.planner.planner import plan as make_plan
from gridops.planner.render_words import headline
from gridops.trust.join import join_key, make_token
from gridops.trust.operator import OperatorRequest, open_operator

log = logging.getLogger("gridops.plan")

Aside = Callable[..., Awaitable[Any]]
UNSAFE = "unsafe_plan"
REPLANS = 3
"""So often a plan for an apply is made again because a commit came meanwhile; a person may ask again."""


class Planning:
    """Everything that needs the planner."""

    def __init__(
        self,
        controller: Controller,
        place: Callable[[], Place],
        aside: Callable[..., Awaitable[Any]] = asyncio.to_thread,
    ) -> None:
        """`aside` runs what takes long (the planner, the checker, git) without holding up the loop."""
        self.controller = controller
        self.durations: dict[str, Histogram] = {}
        self._recalls: dict[str, Recall] = {}
        """What the last plan of each scope left for the next one."""
        self._place = place
        self._aside = aside
        self._lock = asyncio.Lock()

    async def consider(self, scope: ScopeName) -> bool:
        """Plan if something material changed; True when another look is due: a target was set, or a commit came."""
        async with self._lock:
            controller = self.controller
            now_ms = controller.now()
            standing = permitted(controller.state, scope, now_ms)
            print_ = fingerprint(controller.state, controller.soft, controller.roster, scope, standing, now_ms)
            soft = controller.soft.scope(scope)
            if print_ == soft.seen:
                return False
            question = inputs(controller.state, controller.soft, controller.roster, scope, now_ms, __version__)
            if question is None:
                return False
            plan = await self._plan(question)
            if self._overtaken(question):
                return True
            if plan is None:
                soft.seen = print_
                return False
            cause = cause_of(soft.seen, print_)
            soft.seen = print_
            soft.plans += 1
            now_ms = controller.now()
            rows = follow(controller.rights(scope, now_ms), controller.soft, controller.roster, plan, cause)
            part = next((row.plan for row in rows if isinstance(row, r.TargetSet)), None)
            if part is not None and not self._clean(question, part, check(part, question, partial=True)):
                return False
            controller.commit(rows, now_ms)
            target = any(isinstance(row, r.TargetSet) for row in rows)
            proposed = any(isinstance(row, r.Proposed) for row in rows)
            result = "target" if target else "proposal" if proposed else "quiet"
            controller.counters.add("gridops_reconcile_total", scope=scope, result=result)
            return target

    async def operator(self, envelope: str) -> dict[str, Any]:
        """A person's signed request. Raises Refusal or Busy; the answer is a JSON object."""
        controller = self.controller
        now_ms = controller.now()
        request = open_operator(envelope, controller.soft.chain, now_ms)
        if request.nonce in controller.state.nonces:
            raise Refusal(GO425.code, f"this request by {request.by} was used already")
        controller.commit((r.NonceUsed(nonce=request.nonce, until_ms=request.not_after_ms),), now_ms)
        if request.verb == "apply":
            answer = await self._apply(request)
        elif request.verb == "errand":
            answer = self._errand(advised.Asked(request, envelope))
        else:
            answer = self._other(request)
        return {"schema": "gridops.operator/1", "verb": request.verb, **answer}

    def find(self, wanted: str) -> Plan | None:
        """A plan of the journal, by id or short digest."""
        return applying.find(self.controller.state, PlanId(wanted))

    async def stored(self, wanted: str, scope: ScopeName | None = None) -> tuple[Plan, tuple[str, ...]] | None:
        """A plan of the plans branch with its approvals, its signature checked; None when there is none."""
        keys = self.controller.soft.chain.plan_keys()
        place = self._place()

        def read() -> tuple[Plan, tuple[str, ...]] | None:
            branch = place.branch()
            try:
                at = branch.find(wanted, scope)
                found = branch.read(at.id, at.scope)
            except GridopsError:
                return None
            return read_plan(found.yaml, found.envelope, keys, file=branch.plan_file(at)), found.approvals

        found: tuple[Plan, tuple[str, ...]] | None = await self._aside(read)
        return found

    async def _apply(self, request: OperatorRequest) -> dict[str, Any]:
        if request.plan is None:
            raise Refusal(GO424.code, "name the plan that shall be applied")
        if self.controller.state.accepted is None:
            raise Refusal(NOT_READY.code, "no commit has been accepted yet, so nothing can be applied")
        async with self._lock:
            reviewed = self.find(request.plan)
            stored = await self.stored(reviewed.id if reviewed is not None else request.plan, request.scope)
            if reviewed is None and stored is not None:
                reviewed = stored[0]
            if reviewed is None:
                raise Refusal(GO424.code, f"no plan `{request.plan}`", hints=("gridops plans list",))
            if request.resume:
                return self._resume(request, reviewed)
            return await self._set_target(request, reviewed, stored[1] if stored is not None else ())

    async def _set_target(self, request: OperatorRequest, reviewed: Plan, given: tuple[str, ...]) -> dict[str, Any]:
        controller = self.controller
        already = applying.begin(controller.state, request, reviewed, controller.now())
        if already is not None:
            return _already(already)
        current = await self._replan(reviewed)
        now_ms = controller.now()
        # Hosts, commits and freezes went on while the plan was made: what was allowed then is asked again now.
        applying.begin(controller.state, request, reviewed, now_ms)
        approvals = tuple(dict.fromkeys((*request.approvals, *given)))
        if current.decisions_digest != reviewed.decisions_digest:
            # A reading may have done it, which triggers nothing: the next pass proposes what is true now.
            controller.soft.scope(current.scope).seen = None
        touched = {g.host for p in (reviewed, current) for g in p.reads.hosts}
        heard = as_heard(controller.soft, controller.roster, touched, now_ms)
        question = applying.Question(reviewed, current, approvals, heard)
        ready = applying.finish(controller.state, controller.soft.chain, request, question, now_ms)
        rows: list[r.Row] = [ready.row]
        waits = controller.state.scope(current.scope).proposal
        if waits is not None:
            why = "applied" if waits.plan.decisions_digest == current.decisions_digest else "replaced"
            rows.append(r.ProposalClosed(scope=current.scope, plan=waits.plan.id, why=why, by=request.by))
        controller.commit(rows, now_ms)
        controller.reconcile(current.scope)
        return {
            "plan": current.id,
            "applied": True,
            "already": False,
            "scope": current.scope,
            "headline": headline(current),
            "decisions": len(current.to_do),
            "approved_by": list(ready.row.approvers),
            "notes": list(ready.notes),
            "progress": f"/v1/plans/{current.id}",
        }

    async def _replan(self, reviewed: Plan) -> Plan:
        """The same question asked now; again if a commit came in between, because its answer would be out of date."""
        for _ in range(REPLANS):
            question = self._question(reviewed)
            plan = await self._plan(question)
            if self._overtaken(question):
                continue
            if plan is None:
                notes = self.controller.soft.scope(reviewed.scope).unsafe
                raise Refusal(UNSAFE, "the plan breaks a safety rule of its own and is not used", evidence=notes)
            self.controller.soft.scope(reviewed.scope).candidate = plan
            return plan
        raise Refusal(NOT_READY.code, "commits keep arriving while the plan is made, and nothing was changed")

    def _overtaken(self, question: Inputs) -> bool:
        """A commit came while a plan was made: the plan says nothing about what people want now."""
        return desired_now(self.controller.state) != question.intent.desired

    def _question(self, reviewed: Plan) -> Inputs:
        controller = self.controller
        now_ms = controller.now()
        question = inputs(controller.state, controller.soft, controller.roster, reviewed.scope, now_ms, __version__)
        if question is None:
            silent = ", ".join(recovering(controller.state, controller.soft, controller.roster, now_ms))
            raise Refusal(NOT_READY.code, f"the controller has not heard these hosts yet: {silent}")
        return replace(question, waiting=reviewed)

    def _resume(self, request: OperatorRequest, reviewed: Plan) -> dict[str, Any]:
        controller = self.controller
        now_ms = controller.now()
        row = applying.resume(controller.state, request, reviewed, now_ms)
        controller.commit((row,), now_ms)
        controller.reconcile(reviewed.scope)
        return {
            "plan": row.plan,
            "applied": True,
            "already": False,
            "resumed": True,
            "progress": f"/v1/plans/{row.plan}",
        }

    def _other(self, request: OperatorRequest) -> dict[str, Any]:
        controller = self.controller
        state, now_ms = controller.state, controller.now()
        if request.verb == "invite":
            return self._invite(request, now_ms)
        done = operate.carry_out(state, controller.soft, controller.roster, request, now_ms)
        controller.commit(done.rows, now_ms)
        if request.verb == "freeze":
            # What no host has decided is taken back now, not at the next pass.
            for scope in sorted(state.scopes):
                controller.reconcile(scope)
        return done.answer

    def _errand(self, asked: advised.Asked) -> dict[str, Any]:
        controller = self.controller
        now_ms, accepted = controller.now(), controller.state.accepted
        if accepted is None:
            raise Refusal(NOT_READY.code, "no commit has been accepted yet, so nothing is advised")
        row, answer = advised.approve(controller.state, controller.soft, accepted.desired, asked, now_ms)
        controller.commit((row,), now_ms)
        controller.reconcile(row.scope)
        return answer

    def _invite(self, request: OperatorRequest, now_ms: int) -> dict[str, Any]:
        controller = self.controller
        done = operate.invite(controller.state, request, now_ms)
        host = done.answer["host"]
        secret = os.urandom(32)
        # The key first: an invitation without its key would refuse the host, a key without invitation is nothing.
        controller.dir.keep_invite(host, join_key(secret))
        controller.commit(done.rows, now_ms)
        return {**done.answer, "token": make_token(controller.soft.chain.fleet, host, secret)}

    async def _plan(self, question: Inputs) -> Plan | None:
        """A plan that the independent checker has nothing against; None, with an alarm, when it has."""
        started = time.monotonic()
        # Taken out while it is in use: a plan that is given up goes on in its thread.
        recall = self._recalls.pop(question.scope, None) or Recall()
        plan: Plan = await self._aside(make_plan, question, recall)
        self._recalls[question.scope] = recall
        notes: tuple[str, ...] = await self._aside(check, plan, question)
        self.durations.setdefault(question.scope, Histogram()).observe(time.monotonic() - started)
        return plan if self._clean(question, plan, notes) else None

    def _clean(self, question: Inputs, plan: Plan, notes: tuple[str, ...]) -> bool:
        """Whether the checker had nothing against a plan; an alarm says what it had."""
        controller = self.controller
        soft = controller.soft.scope(question.scope)
        soft.unsafe = tuple(f"unsafe plan {short(plan.decisions_digest)}: {note}" for note in notes)
        key = f"{UNSAFE}:{question.scope}"
        if notes:
            if key not in controller.state.alarms:
                text = f"scope {question.scope}: a plan breaks a safety rule and is not used: {notes[0]}"
                controller.commit((r.AlarmRaised(key=key, text=text),), controller.now())
            return False
        if key in controller.state.alarms:
            controller.commit((r.AlarmCleared(key=key),), controller.now())
        return True


def _already(already: applying.Already) -> dict[str, Any]:
    apply = already.apply
    ended = render_instant(apply.ended_ms) if apply.ended_ms is not None else None
    return {
        "plan": apply.plan.id,
        "applied": True,
        "already": True,
        "scope": apply.plan.scope,
        "outcome": apply.outcome,
        "ended": ended,
        "notes": [f"already applied by {apply.by}, {apply.outcome} at {ended}"],
        "progress": f"/v1/plans/{apply.plan.id}",
    }
