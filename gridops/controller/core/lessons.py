"""What receipts teach about a host: how long fetches and starts take there, and how often they failed in a row.

`fold` adds a lesson for each receipt that ends a command, so that it is durable with the receipt and replay comes to
the same; `propose` hands all of them to the planner, which decides what each is worth. Durations are the host's own,
their age is controller time. A duration that is impossible teaches nothing, and a load that found its files there says
nothing about a fetch. How fast a host answers is not learned here: no gateway tells it yet.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from gridops.base import limits
from gridops.base.ids import ConfigName, Digest, HostId, ProfileName
from gridops.controller.core.learned import counts, trim
from gridops.controller.core.state import Attempt, HostBook, Lesson, LessonKey
from gridops.model.action import Action, Load, Warm
from gridops.model.learned import FailedStarts, Learned, LearnedTime, TimeKind
from gridops.model.profile import Profile
from gridops.planner.constants import LEARN_CAP_MS, LEARN_VALID_MS
from gridops.planner.learned import revision_of
from gridops.protocol.messages import Outcome, Receipt

NEWEST = 4
"""The newest duration counts for one part in so many. Source: allocator-facts.md (alpha 0.25). Double: a host that
became slower is found out later; half: one slow start moves the mean by half."""
SAMPLES = 8
"""So many durations are counted: what is older has hardly a share in the mean."""


def learn(book: HostBook, action: Action, receipt: Receipt, attempt: Attempt | None, at_ms: int) -> None:
    """Take in one final receipt. `attempt`: how often in a row the step failed, if it did."""
    about = _about(action)
    if about is None or receipt.outcome is Outcome.VOIDED:
        return
    before = book.lessons.get(about, Lesson())
    if receipt.outcome is Outcome.SUCCEEDED:
        after = replace(_timed(before, action, receipt, at_ms), failures=0, failed_ms=0, code=None)
    elif attempt is not None and counts(attempt, receipt):
        after = replace(before, failures=before.failures + 1, failed_ms=at_ms, code=receipt.code)
    else:
        return
    book.lessons.pop(about, None)
    for old in [k for k, lesson in book.lessons.items() if not _is_young(lesson, at_ms)]:
        del book.lessons[old]
    if after != Lesson():
        book.lessons[about] = after
        trim(book.lessons, limits.LESSONS_PER_HOST)


def learned(books: Mapping[HostId, HostBook], profiles: Sequence[Profile], now_ms: int) -> Learned | None:
    """All lessons that concern what these profiles declare now. None: nothing was learned."""
    declared = {p.name for p in profiles}
    about: dict[LessonKey, list[tuple[ProfileName, ConfigName]]] = {}
    for profile in profiles:
        names = {profile.name} | ({profile.renamed_from} - {None} - declared)
        for config in profile.configs:
            revision, here = revision_of(config.artifact), (profile.name, config.name)
            about.setdefault(_fetched(revision), []).append(here)
            for name in sorted(str(n) for n in names):
                about.setdefault((TimeKind.WARM.value, name, config.name, revision), []).append(here)
    times: list[LearnedTime] = []
    failures: dict[tuple[HostId, ProfileName, ConfigName, Digest], FailedStarts] = {}
    for host, book in sorted(books.items()):
        for key, lesson in sorted(book.lessons.items()):
            for profile_name, config_name in about.get(key, ()) if _is_young(lesson, now_ms) else ():
                one = (host, profile_name, config_name, key[3])
                if lesson.count:
                    times.append(_time(one, TimeKind(key[0]), lesson))
                if lesson.failures:
                    failures[one] = _failed(one, failures.get(one), lesson)
    if not times and not failures:
        return None
    ordered = sorted(times, key=lambda t: (t.host, t.profile, t.config, t.kind, t.last_ms))
    return Learned(times=tuple(ordered), failures=tuple(failures[k] for k in sorted(failures)))


def _about(action: Action) -> LessonKey | None:
    match action:
        case Load():
            return _fetched(revision_of(action.artifact))
        case Warm():
            launch = action.launch
            return TimeKind.WARM.value, action.profile, launch.config, revision_of(launch.artifact)
        case _:
            return None


def _fetched(revision: Digest) -> LessonKey:
    return TimeKind.FETCH.value, "", "", revision


def _timed(before: Lesson, action: Action, receipt: Receipt, at_ms: int) -> Lesson:
    """With the duration of the receipt, if it is one."""
    took = receipt.ended_ms - receipt.began_ms
    whole = sum(f.size_bytes for f in action.artifact.files) if isinstance(action, Load) else None
    if not 0 <= took <= LEARN_CAP_MS or (whole is not None and receipt.fetched_bytes != whole):
        return before
    if not before.count or at_ms - before.last_ms >= LEARN_VALID_MS:
        return replace(before, count=1, mean_ms=took, last_ms=at_ms)
    mean = (before.mean_ms * (NEWEST - 1) + took) // NEWEST
    return replace(before, count=min(SAMPLES, before.count + 1), mean_ms=mean, last_ms=at_ms)


def _is_young(lesson: Lesson, now_ms: int) -> bool:
    return now_ms - max(lesson.last_ms, lesson.failed_ms) < LEARN_VALID_MS


def _time(one: tuple[HostId, ProfileName, ConfigName, Digest], kind: TimeKind, lesson: Lesson) -> LearnedTime:
    host, profile, config, revision = one
    return LearnedTime(
        host=host,
        profile=profile,
        config=config,
        revision=revision,
        kind=kind,
        count=lesson.count,
        ewma_ms=lesson.mean_ms,
        last_ms=lesson.last_ms,
    )


def _failed(
    one: tuple[HostId, ProfileName, ConfigName, Digest], other: FailedStarts | None, lesson: Lesson
) -> FailedStarts:
    """Fetches and starts that failed count together; the newest says why."""
    host, profile, config, revision = one
    newest = other if other is not None and other.last_ms > lesson.failed_ms else None
    return FailedStarts(
        host=host,
        profile=profile,
        config=config,
        revision=revision,
        count=lesson.failures + (other.count if other is not None else 0),
        last_ms=newest.last_ms if newest is not None else lesson.failed_ms,
        code=newest.code if newest is not None else lesson.code,
    )
