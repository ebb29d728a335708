"""What a forecast would make of the fleet as it stands, right or wrong ten times over (rule S15).

No controller is given forecasts yet, so nothing is carried out here: the question that the controller would ask of its
planner now is asked once more with a forecast in it, for models that may have more or fewer replicas than their files
say. The independent checker must have nothing against the answer, it must be the same twice, and no model may leave
its bounds, however wrong the forecast is.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from gridops.base.codes.placement import MASS_STALE
from gridops.base.record import to_bytes
from gridops.controller.core.propose import inputs
from gridops.lab.broken import Broken
from gridops.lab.dice import Dice
from gridops.lab.head import Head
from gridops.model.forecast import Band, Forecast, ProfileForecast, Watermark
from gridops.model.plan import CauseKind, DecisionKind, Plan
from gridops.model.profile import Profile
from gridops.planner.check import check
from gridops.planner.planner import Inputs
from gridops.planner.planner import plan as make_plan
from gridops.planner.world import supposing

MORE = 2
"""So many replicas more than its file asks for a model may have by demand."""
BUSY_MLANES = 3_000
TIMES = (1, 1, 10)
"""By how much a forecast is wrong, up or down."""
HORIZON_MS = 300_000
COOLDOWN_MS = 30_000
"""So long after a request a model counts as used."""
MRPM_PER_LANE = 12_000
"""Requests of five seconds that keep one lane busy."""


class Forecasts:
    """Whoever asks what a forecast would change."""

    def __init__(self, head: Head) -> None:
        self._head = head
        self._dice = Dice(head.around.options.seed, "forecasts")

    def ask(self) -> None:
        """One question for each scope that can be planned for now. Raises Broken."""
        controller = self._head.current
        if controller is None:
            return
        now_ms = controller.now()
        for scope in self._head.around.options.scope_names:
            asked = inputs(controller.state, controller.soft, controller.roster, scope, now_ms, "lab")
            if asked is not None:
                question = self._foreseen(asked)
                # If that were in force, and nobody asked for anything any more:
                then = supposing(question, self._judge(question))
                self._judge(replace(then, forecast=_nothing(question)))

    def _foreseen(self, asked: Inputs) -> Inputs:
        desired = asked.intent.desired
        profiles = tuple(_wider(p) if p.scope == asked.scope else p for p in desired.profiles)
        entries = tuple(self._entry(p, asked.now_ms) for p in profiles if p.scope == asked.scope)
        forecast = Forecast(made_ms=asked.now_ms, horizon_ms=HORIZON_MS, profiles=entries)
        intent = replace(asked.intent, desired=replace(desired, profiles=profiles))
        return replace(asked, intent=intent, forecast=forecast)

    def _entry(self, profile: Profile, now_ms: int) -> ProfileForecast:
        """What is offered, as a forecast says it that may be ten times too high or too low."""
        dice, trace = self._dice, self._head.around.trace
        offered = dice.between(0, BUSY_MLANES) if dice.happens(600_000) else 0
        times = dice.one_of(TIMES)
        if times > 1:
            trace.saw("a forecast was wrong ten times over")
        said = offered * times if dice.happens(500_000) else offered // times
        rate = said * MRPM_PER_LANE // 1_000
        return ProfileForecast(
            profile=profile.name,
            rate_mrpm=Band(low=rate, likely=rate, high=rate),
            observed_mrpm=offered * MRPM_PER_LANE // 1_000,
            offered_mlanes=said,
            confidence_ppm=1_000_000,
            last_used_ms=now_ms - dice.between(0, 2 * COOLDOWN_MS),
            watermarks=(Watermark(at_ms=now_ms - COOLDOWN_MS, offered_mlanes=said),),
        )

    def _judge(self, question: Inputs) -> Plan:
        made = make_plan(question)
        notes = check(made, question)
        if notes:
            raise Broken("S15", f"with a forecast: {notes[0]}")
        if to_bytes(make_plan(question)) != to_bytes(made):
            raise Broken("S15", "with a forecast, the same question has two answers")
        self._inside(made, question)
        for d in made.decisions:
            if d.cause.kind is CauseKind.DEMAND:
                what = {DecisionKind.PLACE: "asked for a replica", DecisionKind.REMOVE: "let a replica go"}
                self._head.around.trace.saw(f"a forecast {what.get(d.kind, 'found no place')}")
        return made

    def _inside(self, made: Plan, question: Inputs) -> None:
        """No model has more replicas than it may, and none that should stand is let go for want of demand.

        While many hosts are silent at once nothing is taken away, so that there may be as many as there were.
        """
        placed = Counter(a.profile for a in made.placement)
        kept = any(MASS_STALE.code in note for note in made.report.notes)
        before = Counter(a.profile for a in question.parent.placement) if kept and question.parent else Counter[str]()
        for profile in question.intent.desired.profiles:
            most = max(profile.replicas_max, before[profile.name])
            if profile.scope == question.scope and placed[profile.name] > most:
                raise Broken("S15", f"by a forecast {profile.name} has {placed[profile.name]} replicas")
        stand = {p.name for p in question.intent.desired.profiles if p.replicas_min}
        for d in made.decisions:
            if d.profile in stand and d.cause.kind is CauseKind.DEMAND and d.last_replica:
                raise Broken("S15", f"a forecast takes the last replica of {d.profile}")


def _nothing(question: Inputs) -> Forecast:
    """That demand is over, and has been for a while."""
    past_ms = question.now_ms - 2 * COOLDOWN_MS
    said = question.forecast.profiles if question.forecast is not None else ()
    entries = tuple(
        ProfileForecast(profile=entry.profile, offered_mlanes=0, confidence_ppm=1_000_000, last_used_ms=past_ms)
        for entry in said
    )
    return Forecast(made_ms=question.now_ms, horizon_ms=HORIZON_MS, profiles=entries)


def _wider(profile: Profile) -> Profile:
    """A file asks for a count; here it is what may be, from one on."""
    least = min(1, profile.replicas_min)
    timing = replace(profile.timing, scale_down_after_ms=COOLDOWN_MS)
    return replace(profile, replicas_min=least, replicas_max=profile.replicas_max + MORE, timing=timing)
